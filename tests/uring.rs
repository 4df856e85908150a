//! A thread that idles in an io_uring: its sleeps and parks, what ends them, and the program's own
//! I/O beside device work. `tests/uring_ops.rs` has the operations themselves.
#![cfg(all(feature = "io-uring", feature = "software", target_os = "linux", not(loom)))]

mod common;

use common::{Mailbox, device, wait_for};
use gpu_async_reactor::host::uring::{RingMode, RingNeed, SetupCall, SetupCalls};
use gpu_async_reactor::host::{ParkPolicy, StdClock, StdIdle, UringIdle, thread_cpu_time};
use gpu_async_reactor::{
    Clock, CompletionLine, DurNs, Executor, Idle, MemoryDescriptor, MonoNs, Reactor, ReactorPort,
    Slot, WaitPlan, reached, wait,
};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

const SLOT: Slot = Slot::ALL[3];
/// Much longer than anything here may take.
const BOUND: DurNs = DurNs::from_ms(5_000);

/// The tests here measure: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> MonoNs {
    StdClock::new().monotonic_ns()
}

/// Two ends of a connection.
fn pair() -> (Arc<OwnedFd>, Arc<OwnedFd>) {
    let (one, other) = UnixStream::pair().unwrap();
    (Arc::new(one.into()), Arc::new(other.into()))
}

/// What a kernel without some of it would have.
struct Without(&'static [RingNeed], RingMode);

impl SetupCalls for Without {
    fn before(&self, call: SetupCall) -> io::Result<()> {
        match call {
            SetupCall::Setup(RingMode::Deferred) if self.1 != RingMode::Deferred => invalid(),
            SetupCall::Setup(RingMode::Cooperative) if self.1 == RingMode::Plain => invalid(),
            _ => Ok(()),
        }
    }

    fn has(&self, need: RingNeed, found: bool) -> bool {
        found && !self.0.contains(&need)
    }
}

fn invalid() -> io::Result<()> {
    Err(io::Error::from_raw_os_error(rustix::io::Errno::INVAL.raw_os_error()))
}

/// This kernel, and what older ones are like.
const KERNELS: [Without; 4] = [
    Without(&[], RingMode::Deferred),
    Without(&[RingNeed::FutexWaits, RingNeed::InstantWaits], RingMode::Deferred),
    Without(&[RingNeed::FutexWaits, RingNeed::InstantWaits], RingMode::Cooperative),
    Without(&[RingNeed::FutexWaits, RingNeed::InstantWaits], RingMode::Plain),
];

fn idle_on(kernel: &Without, policy: ParkPolicy) -> Option<UringIdle> {
    match UringIdle::with_calls(StdClock::new(), policy, 64, kernel) {
        Ok(idle) => Some(idle),
        Err(why) => {
            println!("skipped: no io_uring here: {why}");
            None
        }
    }
}

fn idle_with(policy: ParkPolicy) -> Option<UringIdle> {
    idle_on(&KERNELS[0], policy)
}

fn idle() -> Option<UringIdle> {
    idle_with(ParkPolicy::default())
}

#[test]
fn a_sleep_never_ends_early_and_at_best_close_to_its_time_on_any_kernel() {
    let _machine = alone();
    for kernel in &KERNELS {
        let Some(mut idle) = idle_on(kernel, ParkPolicy::default()) else { return };
        for us in [20, 200, 1000] {
            let mut all: Vec<u64> = (0..100)
                .map(|_| {
                    let at = now().after(DurNs::from_us(us));
                    idle.sleep_until(at);
                    let woke = now();
                    assert!(woke >= at, "{} ns early", at.since(woke).0);
                    woke.since(at).0
                })
                .collect();
            all.sort_unstable();
            let (best, p50, p99) = (all[0], all[50], all[98]);
            println!("{:?}, sleep {us} us: lateness ns best {best} p50 {p50} p99 {p99}", kernel.1);
            assert!(best < 200_000, "{best} ns at best");
        }
    }
}

#[test]
fn a_sleep_leaves_the_timer_slack_of_its_thread_alone() {
    let _machine = alone();
    let Some(mut idle) = idle() else { return };
    let before = rustix::thread::current_timer_slack().unwrap();
    idle.sleep_until(now().after(DurNs::from_us(50)));
    assert_eq!(rustix::thread::current_timer_slack().unwrap(), before);
}

#[test]
fn a_sleep_whose_time_has_come_returns_at_once_without_a_system_call() {
    let _machine = alone();
    let Some(mut idle) = idle() else { return };
    let before = idle.handle().stats().enters;
    idle.sleep_until(MonoNs(0));
    idle.sleep_until(now());
    for _ in 0..1000 {
        idle.sleep_until(now().after(DurNs(1)));
    }
    assert_eq!(idle.handle().stats().enters, before);
}

#[test]
fn a_notification_sticks_until_one_sleep_or_park_has_used_it() {
    let _machine = alone();
    for kernel in &KERNELS {
        let Some(mut idle) = idle_on(kernel, ParkPolicy::default()) else { return };
        let line = CompletionLine::default();
        let waker = idle.unparker().unwrap();
        let before = idle.handle().stats().enters;
        waker.wake_by_ref();
        waker.wake_by_ref();
        idle.sleep_until(MonoNs::MAX);
        waker.wake_by_ref();
        assert!(!idle.park_line(&line, |_| false, DurNs::MAX));
        waker.wake();
        idle.sleep_until(MonoNs::MAX);
        assert_eq!(idle.handle().stats().enters, before, "none of these entered the kernel");
        let at = now().after(DurNs::from_us(300));
        idle.sleep_until(at);
        assert!(now() >= at, "nothing is left of the notifications");
    }
}

/// Wakes and sleeps or parks hand a counter to and fro; a lost wake hangs the test.
fn ping_pong(
    idle: impl FnOnce() -> Option<UringIdle> + Send,
    rounds: u64,
    idle_once: impl Fn(&mut UringIdle) + Send,
) {
    let (asked, answered) = (AtomicU64::new(0), AtomicU64::new(0));
    let (tell, unparker) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let (asked, answered) = (&asked, &answered);
        scope.spawn(move || {
            let Some(mut idle) = idle() else { return };
            tell.send(idle.unparker().unwrap()).unwrap();
            for round in 1..=rounds {
                while asked.load(Ordering::Acquire) < round {
                    idle_once(&mut idle);
                }
                answered.store(round, Ordering::Release);
            }
        });
        let Ok(unparker) = unparker.recv() else { return };
        for round in 1..=rounds {
            // Before, around and after the moment at which the other thread falls asleep.
            let from = now().after(DurNs((round % 64) * 1_000));
            while now() < from {
                std::hint::spin_loop();
            }
            asked.store(round, Ordering::Release);
            unparker.wake_by_ref();
            wait_for(|| answered.load(Ordering::Acquire) >= round);
        }
    });
}

#[test]
fn a_wake_from_another_thread_ends_a_sleep_whenever_it_comes() {
    let _machine = alone();
    for kernel in &KERNELS {
        let idle = || idle_on(kernel, ParkPolicy::default());
        ping_pong(idle, 1_000, |idle| idle.sleep_until(MonoNs::MAX));
    }
}

#[test]
fn a_wake_from_another_thread_ends_a_park_whenever_it_comes() {
    let _machine = alone();
    let line = CompletionLine::default();
    let sleepy = ParkPolicy {
        spin: DurNs::ZERO,
        yielding: DurNs::ZERO,
        min_slice: DurNs::MAX,
        max_slice: DurNs::MAX,
        share_permille: 1_000,
    };
    for policy in [sleepy, ParkPolicy::SPIN, ParkPolicy::BALANCED, ParkPolicy::SAVING] {
        for kernel in &KERNELS {
            ping_pong(
                || idle_on(kernel, policy),
                500,
                |idle| {
                    assert!(!idle.park_line(&line, |_| false, DurNs::MAX));
                },
            );
        }
    }
}

#[test]
fn a_park_looks_before_it_waits_and_never_ends_before_its_bound_without_reason() {
    let _machine = alone();
    let Some(mut idle) = idle() else { return };
    let line = CompletionLine::default();
    assert!(!idle.park_line(&line, |_| false, DurNs::ZERO));
    for us in [1, 50, 300, 1_500, 3_000] {
        let end = now().after(DurNs::from_us(us));
        assert!(!idle.park_line(&line, |line| reached(line, SLOT, 1), DurNs::from_us(us)));
        assert!(now() >= end);
    }
    line.store(SLOT, 1);
    assert!(idle.park_line(&line, |line| reached(line, SLOT, 1), DurNs::ZERO));
}

/// Why a task waits while its executor idles.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Busy {
    Timer,
    Line,
    Nothing,
}

/// Runs `main` beside something that is never due, so that the executor idles as `busy` says.
fn run_beside<T>(busy: Busy, idle: &mut UringIdle, main: impl Future<Output = T>) -> T {
    let clock = StdClock::new();
    let line = CompletionLine::default();
    let reactor = Reactor::new(clock);
    let mut executor: Executor<Task> = Executor::new();
    match busy {
        Busy::Timer => {
            drop(executor.spawn(Box::pin(reactor.alarm(now().after(DurNs::from_ms(60_000))))));
        }
        Busy::Line => {
            let never = reactor.ready(MemoryDescriptor::new(&line, SLOT, 1), None);
            drop(executor.spawn(Box::pin(async { _ = never.await })));
        }
        Busy::Nothing => {}
    }
    executor.run_until(&reactor, idle, BOUND, main).unwrap().0
}

const BUSY: [Busy; 3] = [Busy::Timer, Busy::Line, Busy::Nothing];

#[test]
fn an_executor_asleep_on_the_ring_is_woken_by_a_foreign_wake() {
    let _machine = alone();
    for busy in BUSY {
        let Some(mut idle) = idle_with(ParkPolicy::SAVING) else { return };
        let best = (0..30).map(|_| {
            let mailbox = Mailbox::new();
            let sender = mailbox.clone();
            let thread = thread::spawn(move || {
                wait_for(|| sender.is_awaited());
                let at = now().after(DurNs::from_us(1_000));
                wait_for(|| now() >= at);
                sender.send(now().0);
            });
            let took = run_beside(busy, &mut idle, async {
                let sent = mailbox.receive().await;
                now().since(MonoNs(sent))
            });
            thread.join().unwrap();
            assert!(took < DurNs::from_ms(4_000), "{busy:?}: only the bound ended it");
            took
        });
        let best = best.min().unwrap();
        println!("{busy:?}: foreign wake to task {best:?} at best");
        assert!(best < DurNs::from_us(500), "{best:?} at best");
    }
}

#[test]
fn an_executor_asleep_on_the_ring_is_woken_by_a_completion_of_its_io() {
    let _machine = alone();
    for busy in BUSY {
        for kernel in &KERNELS {
            let Some(mut idle) = idle_on(kernel, ParkPolicy::SAVING) else { return };
            let handle = idle.handle();
            let best = (0..30).map(|_| {
                let (reader, writer) = pair();
                let thread = thread::spawn(move || {
                    let at = now().after(DurNs::from_us(2_000));
                    wait_for(|| now() >= at);
                    let sent = rustix::io::write(&*writer, &now().0.to_ne_bytes());
                    assert_eq!(sent, Ok(8));
                });
                let took = run_beside(busy, &mut idle, async {
                    let (read, buffer) = handle.read(&reader, Vec::with_capacity(8)).await;
                    let woke = now();
                    assert_eq!(read.unwrap(), 8);
                    woke.since(MonoNs(u64::from_ne_bytes(buffer.try_into().unwrap())))
                });
                thread.join().unwrap();
                assert!(took < DurNs::from_ms(4_000), "{busy:?}: only the bound ended it");
                took
            });
            let best = best.min().unwrap();
            println!("{busy:?}, {:?}: I/O to task {best:?} at best", kernel.1);
            assert!(best < DurNs::from_us(1_000), "{best:?} at best");
        }
    }
}

#[test]
fn an_executor_asleep_on_the_ring_is_woken_by_its_timers() {
    let _machine = alone();
    for busy in BUSY {
        let Some(mut idle) = idle_with(ParkPolicy::SAVING) else { return };
        let handle = idle.handle();
        let best = (0..50).map(|round| {
            let at = now().after(DurNs::from_us(300));
            let timer = handle.timeout(at);
            let woke = run_beside(busy, &mut idle, async {
                timer.await.unwrap();
                now()
            });
            assert!(woke >= at, "round {round}");
            woke.since(at)
        });
        let best = best.min().unwrap();
        println!("{busy:?}: {best:?} late at best");
        assert!(best < DurNs::from_ms(20), "{best:?} at best");
    }
    let Some(mut idle) = idle() else { return };
    let reactor = Reactor::new(StdClock::new());
    let mut executor: Executor<Task> = Executor::new();
    let at = now().after(DurNs::from_us(300));
    executor.run_until(&reactor, &mut idle, BOUND, reactor.alarm(at)).unwrap();
    assert!(now() >= at);
}

#[test]
fn a_busy_executor_submits_and_takes_io_between_polls() {
    let _machine = alone();
    for kernel in &KERNELS {
        let Some(mut idle) = idle_on(kernel, ParkPolicy::default()) else { return };
        let handle = idle.handle();
        let reactor = Reactor::new(StdClock::new());
        let mut executor: Executor<Task> = Executor::new();
        let done = std::rc::Rc::new(std::cell::Cell::new(false));
        // Ready in every round until the I/O beside it is through: it never lets the thread idle.
        let never_idle = done.clone();
        executor.spawn(Box::pin(async move {
            while !never_idle.get() {
                gpu_async_reactor::yield_now().await;
            }
        }));
        executor.spawn(Box::pin(async move {
            let (reader, writer) = pair();
            for round in 0..100_u8 {
                let (sent, _) = handle.write_all(&writer, vec![round]).await;
                sent.unwrap();
                let (_, received) = handle.read(&reader, Vec::with_capacity(1)).await;
                assert_eq!(received, [round]);
            }
            handle.timeout(now().after(DurNs::from_us(100))).await.unwrap();
            done.set(true);
        }));
        let stats = executor.run(&reactor, &mut idle, BOUND).unwrap();
        assert_eq!((stats.slept, stats.parked), (0, 0), "it was never idle");
        let enters = idle.handle().stats().enters;
        println!("{:?}: {} polls, {enters} entries of the kernel", kernel.1, stats.polls);
    }
}

#[test]
fn device_work_and_io_are_awaited_on_the_same_thread() {
    let _machine = alone();
    let Some(mut idle) = idle() else { return };
    let handle = idle.handle();
    let device = device();
    let stream = device.stream().unwrap();
    let reactor = Reactor::new(StdClock::new());
    let (reader, writer) = pair();
    let plan = WaitPlan::parse("spin:backstop_us=1000").unwrap();
    let mut executor: Executor<Task> = Executor::new();
    executor.spawn(Box::pin(async {
        for round in 0..20_u8 {
            stream.delay(DurNs::from_us(300)).unwrap();
            let mut port = ReactorPort::new(&stream, &reactor);
            wait(&plan, None, &mut port, &reactor).await.unwrap();
            handle.write_all(&writer, vec![round]).await.0.unwrap();
        }
    }));
    executor.spawn(Box::pin(async {
        for round in 0..20_u8 {
            let (_, received) = handle.read(&reader, Vec::with_capacity(1)).await;
            assert_eq!(received, [round]);
        }
    }));
    executor.run(&reactor, &mut idle, DurNs::from_ms(10)).unwrap();
}

#[test]
fn nothing_to_wait_for_costs_next_to_no_cpu() {
    let _machine = alone();
    let Some(mut idle) = idle() else { return };
    let handle = idle.handle();
    let before = thread_cpu_time().unwrap();
    idle.sleep_until(now().after(DurNs::from_ms(300)));
    let slept = thread_cpu_time().unwrap().0 - before.0;
    // The same with I/O in flight that never comes, in an executor with nothing else.
    let (reader, _writer) = pair();
    let before = thread_cpu_time().unwrap();
    let reactor = Reactor::new(StdClock::new());
    let mut executor: Executor<Task> = Executor::new();
    executor.spawn(Box::pin(async move {
        let _ = handle.read(&reader, Vec::with_capacity(8)).await;
    }));
    let main = reactor.alarm(now().after(DurNs::from_ms(300)));
    executor.run_until(&reactor, &mut idle, BOUND, main).unwrap();
    let ran = thread_cpu_time().unwrap().0 - before.0;
    println!("300 ms: asleep {} us of CPU, in an executor {} us", slept / 1_000, ran / 1_000);
    assert!(slept < 3_000_000 && ran < 3_000_000);
}

#[test]
fn an_executor_goes_on_with_another_idle_and_its_io_with_it() {
    let _machine = alone();
    let Some(mut ring) = idle() else { return };
    let handle = ring.handle();
    let reactor = Reactor::new(StdClock::new());
    let (reader, writer) = pair();
    let read = AtomicBool::new(false);
    let mut executor: Executor<Task> = Executor::new();
    executor.spawn(Box::pin(async {
        let (_, received) = handle.read(&reader, Vec::with_capacity(4)).await;
        assert_eq!(received, b"ping");
        read.store(true, Ordering::Relaxed);
    }));
    let soon = || reactor.alarm(now().after(DurNs::from_us(200)));
    executor.run_until(&reactor, &mut ring, BOUND, soon()).unwrap();
    let mut other = StdIdle::with(StdClock::new(), ParkPolicy::default());
    executor.run_until(&reactor, &mut other, BOUND, soon()).unwrap();
    assert!(!read.load(Ordering::Relaxed));
    executor
        .run_until(&reactor, &mut ring, BOUND, async {
            handle.write_all(&writer, "ping").await.0.unwrap();
        })
        .unwrap();
    executor.run(&reactor, &mut ring, BOUND).unwrap();
    assert!(read.load(Ordering::Relaxed));
}
