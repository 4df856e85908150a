//! What many waiting descriptors cost a thread that has other things to do, in virtual time: each
//! check of a line moves the clock by what it costs in a table too large for the caches.

use gpu_async_reactor::{
    Clock, CompletionLine, Doorbell, DurNs, Executor, Idle, ManualClock, MonoNs, OwnedDescriptor,
    Reactor, Ready, SharedLine, Slot, yield_now,
};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

const SLOT: Slot = Slot::ALL[0];
/// What a poll takes, and the check of one line.
const POLL: DurNs = DurNs(18);
const LINE_NS: u64 = 6;
const BOUND: DurNs = DurNs::from_ms(1);
const MANY: usize = 100_000;

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A line whose check takes time.
struct CostlyLine {
    line: CompletionLine,
    clock: Arc<ManualClock>,
    checks: Arc<AtomicU64>,
}

impl AsRef<CompletionLine> for CostlyLine {
    fn as_ref(&self) -> &CompletionLine {
        self.checks.fetch_add(1, Ordering::Relaxed);
        self.clock.advance(DurNs(LINE_NS));
        &self.line
    }
}

struct World {
    clock: Arc<ManualClock>,
    checks: Arc<AtomicU64>,
    lines: Vec<SharedLine>,
    doorbell: Option<Doorbell>,
}

impl World {
    fn new(lines: usize, doorbell: bool) -> Self {
        let (clock, checks) = (Arc::new(ManualClock::new()), Arc::new(AtomicU64::new(0)));
        let line = |_| -> SharedLine {
            let (clock, checks) = (clock.clone(), checks.clone());
            Arc::new(CostlyLine { line: CompletionLine::default(), clock, checks })
        };
        let lines = (0..lines).map(line).collect();
        World { clock: clock.clone(), checks, lines, doorbell: doorbell.then(Doorbell::new) }
    }

    fn reactor(&self) -> Reactor<'static, &ManualClock> {
        match &self.doorbell {
            Some(doorbell) => Reactor::with_doorbell(&self.clock, doorbell),
            None => Reactor::new(&self.clock),
        }
    }

    fn store(&self, line: usize) {
        (*self.lines[line]).as_ref().store(SLOT, 1);
        if let Some(doorbell) = &self.doorbell {
            doorbell.ring();
        }
    }

    fn now(&self) -> u64 {
        self.clock.monotonic_ns().0
    }
}

/// Sleeps and parks by moving the clock, in steps of 100 ns, so that it ends when it should.
struct StepIdle(Arc<ManualClock>);

impl Idle for StepIdle {
    fn sleep_until(&mut self, at: MonoNs) {
        self.0.set(at);
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        let end = self.0.monotonic_ns().after(bound);
        while !ready(line) && self.0.monotonic_ns() < end {
            let left = end.since(self.0.monotonic_ns());
            self.0.advance(left.min(DurNs(100)));
        }
        ready(line)
    }
}

/// Registers a wait on each line but the first, which are kept by what is returned.
fn register<'r, 'c>(
    world: &World,
    reactor: &'r Reactor<'static, &'c ManualClock>,
) -> Vec<Ready<'r, 'static, &'c ManualClock>> {
    let mut cx = Context::from_waker(Waker::noop());
    let lines = world.lines.iter().skip(1);
    lines
        .map(|line| {
            let line = line.clone();
            let descriptor = OwnedDescriptor { line, slot: SLOT, target: 1 };
            let mut wait = reactor.ready_owned(descriptor, None);
            assert!(Pin::new(&mut wait).poll(&mut cx).is_pending());
            wait
        })
        .collect()
}

/// The time of a poll of a busy executor beside `lines` waits, over many polls.
fn poll_ns(lines: usize, doorbell: bool, rung: bool) -> f64 {
    let world = World::new(lines, doorbell);
    let reactor = world.reactor();
    let waits = register(&world, &reactor);
    let mut executor: Executor<Task> = Executor::new();
    const POLLS: u64 = 150_000;
    let began = world.now();
    let main = async {
        for _ in 0..POLLS {
            world.clock.advance(POLL);
            if let Some(doorbell) = world.doorbell.as_ref().filter(|_| rung) {
                doorbell.ring();
            }
            yield_now().await;
        }
    };
    executor.run_until(&reactor, &mut StepIdle(world.clock.clone()), BOUND, main).unwrap();
    drop(waits);
    (world.now() - began) as f64 / POLLS as f64
}

#[test]
fn a_poll_beside_100_000_descriptors_costs_at_most_twice_what_it_costs_beside_64() {
    for (doorbell, rung) in [(false, false), (true, false), (true, true)] {
        let (few, many) = (poll_ns(64, doorbell, rung), poll_ns(MANY, doorbell, rung));
        println!(
            "doorbell {doorbell}, rung {rung}: {few:.1} ns a poll beside 64, {many:.1} beside {MANY}"
        );
        assert!(many <= 2.0 * few, "doorbell {doorbell}, rung {rung}: {many:.1} and {few:.1} ns");
        let poll = POLL.0 as f64;
        assert!(
            many <= 2.0 * poll,
            "doorbell {doorbell}, rung {rung}: checks cost more than polls"
        );
    }
}

/// How late the completion of `line` reaches a task of a busy executor, in ns.
fn lateness(lines: usize, doorbell: bool, line: usize) -> u64 {
    let world = World::new(lines, doorbell);
    let reactor = world.reactor();
    let waits = register(&world, &reactor);
    let (stored, seen) = (Cell::new(0), Cell::new(0));
    let mut executor: Executor<Task> = Executor::new();
    executor.spawn(Box::pin(async {
        while seen.get() == 0 {
            world.clock.advance(POLL);
            if stored.get() == 0 && world.now() > 3_000_000 {
                world.store(line);
                stored.set(world.now());
            }
            assert!(world.now() < 1_000_000_000, "never seen");
            yield_now().await;
        }
    }));
    let main = async {
        let descriptor = OwnedDescriptor { line: world.lines[line].clone(), slot: SLOT, target: 1 };
        reactor.ready_owned(descriptor, None).await;
        seen.set(world.now());
    };
    executor.run_until(&reactor, &mut StepIdle(world.clock.clone()), BOUND, main).unwrap();
    drop(waits);
    seen.get() - stored.get()
}

#[test]
fn a_busy_executor_finds_every_completion_within_the_time_of_a_few_scans() {
    for doorbell in [false, true] {
        let scan = MANY as u64 * LINE_NS;
        for line in [1, MANY / 2, MANY - 1] {
            let late = lateness(MANY, doorbell, line);
            assert!(late < 9 * scan, "doorbell {doorbell}, line {line}: {late} ns, a scan {scan}");
        }
        assert!(lateness(64, doorbell, 7) < 20_000);
    }
}

/// How late an alarm reaches its task, at worst, beside `lines` waits. With `busy`, beside a task
/// that is always ready.
fn alarm_late_ns(lines: usize, doorbell: bool, busy: bool) -> u64 {
    let world = World::new(lines, doorbell);
    let reactor = world.reactor();
    let waits = register(&world, &reactor);
    let done = Cell::new(false);
    let mut executor: Executor<Task> = Executor::new();
    if busy {
        executor.spawn(Box::pin(async {
            while !done.get() {
                world.clock.advance(POLL);
                yield_now().await;
            }
        }));
    }
    let mut worst = 0;
    let main = async {
        for step in 0..50 {
            let at = world.clock.monotonic_ns().after(DurNs(1_400_000 + 777 * step));
            reactor.alarm(at).await;
            worst = worst.max(world.clock.monotonic_ns().since(at).0);
        }
        done.set(true);
    };
    let bound = DurNs::from_ms(10);
    executor.run_until(&reactor, &mut StepIdle(world.clock.clone()), bound, main).unwrap();
    drop(waits);
    worst
}

#[test]
fn an_alarm_beside_100_000_descriptors_is_at_most_a_microsecond_later_than_beside_8() {
    for (doorbell, busy) in [(false, false), (true, false), (false, true), (true, true)] {
        let few = alarm_late_ns(9, doorbell, busy);
        let many = alarm_late_ns(MANY, doorbell, busy);
        println!("doorbell {doorbell}, busy {busy}: {few} ns late beside 8, {many} beside {MANY}");
        assert!(many <= few + 1_000, "doorbell {doorbell}, busy {busy}: {few} and {many} ns late");
    }
}

#[test]
fn a_wake_by_another_thread_checks_no_line() {
    let world = World::new(1_000, true);
    let reactor = world.reactor();
    let waits = register(&world, &reactor);
    let waker: Rc<Cell<Option<Waker>>> = Rc::default();
    let mut idle = ForeignIdle { idle: StepIdle(world.clock.clone()), waker: waker.clone() };
    let checks = Cell::new(0);
    let mut executor: Executor<Task> = Executor::new();
    let main = async {
        for round in 0..100 {
            if round == 1 {
                // The first rounds have scanned once; the bound does not come again.
                checks.set(world.checks.load(Ordering::Relaxed));
            }
            let mut polled = false;
            poll_fn(|cx| {
                waker.set(Some(cx.waker().clone()));
                if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    };
    executor.run_until(&reactor, &mut idle, DurNs::from_ms(60_000), main).unwrap();
    assert_eq!(world.checks.load(Ordering::Relaxed), checks.get(), "no slot can have changed");
    drop(waits);
}

/// Parks until a thread of its own has used the waker that it holds.
struct ForeignIdle {
    idle: StepIdle,
    waker: Rc<Cell<Option<Waker>>>,
}

impl Idle for ForeignIdle {
    fn sleep_until(&mut self, at: MonoNs) {
        self.idle.sleep_until(at);
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        if let Some(waker) = self.waker.take() {
            std::thread::spawn(move || waker.wake()).join().unwrap();
        }
        self.idle.park_line(line, ready, bound)
    }
}
