//! Wakes from other threads, whatever the executor is doing: asleep on a timer, parked on a line, or
//! with nothing else to wait for.

mod common;

use common::{Mailbox, wait_for};
use gpu_async_reactor::host::{ParkPolicy, StdClock, StdIdle};
use gpu_async_reactor::{
    Clock, CompletionLine, Doorbell, DurNs, ErrorCode, Executor, Idle, MemoryDescriptor, MonoNs,
    Reactor, Slot,
};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Much longer than any wake may take: one that only the bound finds shows.
const BOUND: DurNs = DurNs::from_ms(2_000);

#[derive(Clone, Copy, PartialEq, Debug)]
enum Busy {
    /// Asleep until a timer, far away.
    Timer,
    /// Parked on a line that nobody stores to.
    Line,
    /// With nothing else.
    Nothing,
}

/// An idle that says when it begins to idle.
struct Announcing(StdIdle, Arc<AtomicBool>);

impl Idle for Announcing {
    fn sleep_until(&mut self, at: MonoNs) {
        self.1.store(true, Ordering::Relaxed);
        self.0.sleep_until(at);
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        self.1.store(true, Ordering::Relaxed);
        self.0.park_line(line, ready, bound)
    }

    fn unparker(&self) -> Option<Waker> {
        self.0.unparker()
    }

    fn thread_token(&self) -> Option<fn() -> usize> {
        self.0.thread_token()
    }
}

/// The best of many times from a send on another thread, `after` the executor began to idle, to the
/// receiving task.
fn best_wake(busy: Busy, doorbell: Option<&Doorbell>, policy: ParkPolicy, after: DurNs) -> DurNs {
    let clock = StdClock::new();
    let line = CompletionLine::default();
    let times = (0..30).map(|_| {
        let reactor = match doorbell {
            Some(doorbell) => Reactor::with_doorbell(clock, doorbell),
            None => Reactor::new(clock),
        };
        let idles = Arc::new(AtomicBool::new(false));
        let mut idle = Announcing(StdIdle::with(clock, policy), idles.clone());
        let mailbox = Mailbox::new();
        let sender = mailbox.clone();
        let thread = std::thread::spawn(move || {
            wait_for(|| idles.load(Ordering::Relaxed));
            let send_at = clock.monotonic_ns().after(after);
            wait_for(|| clock.monotonic_ns() >= send_at);
            let sent = clock.monotonic_ns();
            sender.send(sent.0);
        });
        let mut executor: Executor<Task> = Executor::new();
        match busy {
            Busy::Timer => {
                let far = clock.monotonic_ns().after(DurNs::from_ms(60_000));
                drop(executor.spawn(Box::pin(reactor.alarm(far))));
            }
            Busy::Line => {
                let never = reactor.ready(MemoryDescriptor::new(&line, Slot::ALL[0], 1), None);
                drop(executor.spawn(Box::pin(async { _ = never.await })));
            }
            Busy::Nothing => {}
        }
        let main = async {
            let sent = mailbox.receive().await;
            clock.monotonic_ns().since(MonoNs(sent))
        };
        let (took, _) = executor.run_until(&reactor, &mut idle, BOUND, main).unwrap();
        thread.join().unwrap();
        assert!(took < DurNs::from_ms(1_500), "{busy:?}: only the bound ended it");
        took
    });
    times.min().unwrap()
}

#[test]
fn a_wake_from_another_thread_ends_any_idleness_in_well_under_a_millisecond() {
    let doorbell = Doorbell::new();
    for busy in [Busy::Timer, Busy::Line, Busy::Nothing] {
        for policy in [ParkPolicy::BALANCED, ParkPolicy::SAVING] {
            for doorbell in [None, Some(&doorbell)] {
                // On its way into idleness, and long after, in the kernel.
                for after in [DurNs::ZERO, DurNs::from_us(1_500)] {
                    let best = best_wake(busy, doorbell, policy, after);
                    println!("{busy:?}, {}, sent after {after:?}: {best:?}", doorbell.is_some());
                    assert!(best < DurNs::from_us(500), "{busy:?}: {best:?} at best");
                }
            }
        }
    }
}

/// An idle without an unparker, which watches nothing but the line it was given.
struct Plain(StdIdle);

impl Idle for Plain {
    fn sleep_until(&mut self, at: MonoNs) {
        self.0.sleep_until(at);
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        self.0.park_line(line, ready, bound)
    }
}

#[test]
fn without_an_unparker_a_foreign_wake_is_found_within_the_park_bound() {
    let clock = StdClock::new();
    for with_timer in [false, true] {
        let reactor = Reactor::new(clock);
        let mailbox = Mailbox::new();
        let sender = mailbox.clone();
        let thread = std::thread::spawn(move || {
            wait_for(|| sender.is_awaited());
            sender.send(1);
        });
        let mut executor: Executor<Task> = Executor::new();
        if with_timer {
            let far = clock.monotonic_ns().after(DurNs::from_ms(60_000));
            executor.spawn(Box::pin(reactor.alarm(far)));
        }
        let mut idle = Plain(StdIdle::with(clock, ParkPolicy::SAVING));
        let began = clock.monotonic_ns();
        let bound = DurNs::from_ms(5);
        executor.run_until(&reactor, &mut idle, bound, mailbox.receive()).unwrap();
        thread.join().unwrap();
        assert!(clock.monotonic_ns().since(began) < DurNs::from_ms(5_000));
    }
}

#[test]
fn a_stall_is_not_reported_while_another_thread_holds_a_waker_and_is_once_it_gave_it_up() {
    let reactor = Reactor::new(StdClock::new());
    let mut idle = StdIdle::with(StdClock::new(), ParkPolicy::default());
    let mailbox = Mailbox::new();
    let sender = mailbox.clone();
    let mut executor: Executor<Task> = Executor::new();
    executor.spawn(Box::pin(async {
        // Uses the waker, and drops it: the first value ends nothing.
        mailbox.receive().await;
        std::future::pending().await
    }));
    let thread = std::thread::spawn(move || {
        wait_for(|| sender.is_awaited());
        sender.send(1);
    });
    let error = executor.run(&reactor, &mut idle, BOUND).unwrap_err();
    thread.join().unwrap();
    assert_eq!((error.code(), error.args()), (ErrorCode::Stalled, &["1".to_string()][..]));
}

#[test]
fn a_stall_is_reported_although_the_last_waker_is_dropped_while_the_thread_sleeps() {
    let reactor = Reactor::new(StdClock::new());
    let idles = Arc::new(AtomicBool::new(false));
    let mut idle = Announcing(StdIdle::with(StdClock::new(), ParkPolicy::default()), idles.clone());
    let kept = std::sync::Mutex::new(None::<Waker>);
    let mut executor: Executor<Task> = Executor::new();
    executor.spawn(Box::pin(std::future::poll_fn(|cx| {
        *kept.lock().unwrap() = Some(cx.waker().clone());
        std::task::Poll::Pending
    })));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for(|| idles.load(Ordering::Relaxed));
            drop(kept.lock().unwrap().take());
        });
        let error = executor.run(&reactor, &mut idle, DurNs::from_us(50)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Stalled);
    });
}

#[test]
fn no_wake_is_lost_among_many_from_two_threads() {
    const EACH: u64 = 20_000;
    let clock = StdClock::new();
    for doorbell in [None, Some(Doorbell::new())] {
        let reactor = match &doorbell {
            Some(doorbell) => Reactor::with_doorbell(clock, doorbell),
            None => Reactor::new(clock),
        };
        let mut idle = StdIdle::with(clock, ParkPolicy::SAVING);
        let mailboxes = [Mailbox::new(), Mailbox::new()];
        let mut executor: Executor<Task> = Executor::new();
        let threads: Vec<_> = mailboxes
            .iter()
            .map(|mailbox| {
                let sender = mailbox.clone();
                std::thread::spawn(move || {
                    for value in 0..EACH {
                        wait_for(|| sender.is_awaited());
                        sender.send(value);
                    }
                })
            })
            .collect();
        for mailbox in &mailboxes {
            executor.spawn(Box::pin(async {
                for value in 0..EACH {
                    assert_eq!(mailbox.receive().await, value);
                }
            }));
        }
        executor.run(&reactor, &mut idle, BOUND).unwrap();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn a_waker_may_outlive_its_executor() {
    let reactor = Reactor::new(StdClock::new());
    let mut idle = StdIdle::with(StdClock::new(), ParkPolicy::default());
    let kept = std::sync::Mutex::new(None::<Waker>);
    let mut executor: Executor<Task> = Executor::new();
    let main = std::future::poll_fn(|cx| {
        *kept.lock().unwrap() = Some(cx.waker().clone());
        std::task::Poll::Ready(())
    });
    executor.run_until(&reactor, &mut idle, BOUND, main).unwrap();
    drop(executor);
    let waker = kept.lock().unwrap().take().unwrap();
    std::thread::spawn(move || waker.wake()).join().unwrap();
}
