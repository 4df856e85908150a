//! The reactor against a naive model, under random registrations, stores, clock steps, polls, drops,
//! forgotten futures, and wakers that drop, register and fire while they are being woken.

use gpu_async_reactor::{
    Clock, CompletionLine, Doorbell, DurNs, ManualClock, MonoNs, OwnedDescriptor, Reactor, Ready,
    SharedLine, Slot,
};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

const LINES: usize = 3;
const FUTURES: usize = 12;
/// All slots are looked at once this time even where nobody rings.
const SCAN_BOUND: DurNs = DurNs::from_ms(1);

#[derive(Clone, Debug)]
enum Op {
    Register {
        future: usize,
        line: usize,
        slot: usize,
        target: u64,
        until: Option<u64>,
        on_wake: Reaction,
    },
    Store {
        line: usize,
        slot: usize,
        add: u64,
        ring: bool,
    },
    Advance(u64),
    Fire,
    Poll(usize),
    Drop(usize),
    Forget(usize),
}

/// What a waker does when it is woken.
#[derive(Clone, Copy, Debug)]
enum Reaction {
    Nothing,
    Drop(usize),
    Fire,
    Register(usize, usize),
}

fn reactions() -> impl Strategy<Value = Reaction> {
    prop_oneof![
        3 => Just(Reaction::Nothing),
        1 => (0..FUTURES).prop_map(Reaction::Drop),
        1 => Just(Reaction::Fire),
        1 => ((0..FUTURES), 0..LINES).prop_map(|(future, line)| Reaction::Register(future, line)),
    ]
}

fn ops() -> impl Strategy<Value = Op> {
    let register =
        (0..FUTURES, 0..LINES, 0..8usize, 1..12u64, prop::option::of(0..4_000_000u64), reactions())
            .prop_map(|(future, line, slot, target, until, on_wake)| Op::Register {
                future,
                line,
                slot: slot % 3,
                target,
                until,
                on_wake,
            });
    prop_oneof![
        6 => register,
        5 => (0..LINES, 0..3usize, 1..4u64, any::<bool>())
            .prop_map(|(line, slot, add, ring)| Op::Store { line, slot, add, ring }),
        2 => (0..1_500_000u64).prop_map(Op::Advance),
        5 => Just(Op::Fire),
        3 => (0..FUTURES).prop_map(Op::Poll),
        2 => (0..FUTURES).prop_map(Op::Drop),
        1 => (0..FUTURES).prop_map(Op::Forget),
    ]
}

type React = Rc<dyn Fn(Reaction)>;

thread_local! {
    /// Lets a woken waker act on the world, which it cannot hold: a waker must be `Send`.
    static REACT: RefCell<Option<React>> = const { RefCell::new(None) };
}

struct CountingWaker {
    woken: AtomicUsize,
    reaction: Reaction,
}

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::Relaxed);
        let react = REACT.with(|react| react.borrow().clone());
        if let Some(react) = react {
            react(self.reaction);
        }
    }
}

/// A registered future as the model knows it.
#[derive(Clone)]
struct Entry {
    line: usize,
    slot: usize,
    target: u64,
    until: Option<u64>,
    /// Polled pending, and neither fired nor dropped since.
    registered: bool,
    waker: Arc<CountingWaker>,
    woken: usize,
}

type Held<'r> = Option<(Pin<Box<Ready<'r, 'static, &'r ManualClock>>>, Entry)>;

struct World<'r> {
    clock: &'r ManualClock,
    lines: Vec<SharedLine>,
    doorbell: Option<Doorbell>,
    reactor: &'r Reactor<'static, &'r ManualClock>,
    futures: RefCell<Vec<Held<'r>>>,
    forgotten: RefCell<Vec<Entry>>,
    rung: Cell<bool>,
    scanned_at: Cell<MonoNs>,
    depth: Cell<usize>,
}

impl<'r> World<'r> {
    fn word(&self, entry: &Entry) -> u64 {
        (*self.lines[entry.line]).as_ref().load(Slot::new(entry.slot).unwrap())
    }

    fn is_complete(&self, entry: &Entry) -> bool {
        self.word(entry) >= entry.target
    }

    fn is_due(&self, entry: &Entry) -> bool {
        entry.until.is_some_and(|until| self.clock.monotonic_ns().0 >= until)
    }

    fn registered(&self) -> usize {
        let held = self.futures.borrow();
        let held = held.iter().flatten().filter(|(_, entry)| entry.registered).count();
        held + self.forgotten.borrow().iter().filter(|entry| entry.registered).count()
    }

    fn drop_future(&self, at: usize) {
        let dropped = self.futures.borrow_mut()[at].take();
        drop(dropped);
    }

    fn register(&self, at: usize, entry: Entry) {
        self.drop_future(at);
        let descriptor = OwnedDescriptor {
            line: self.lines[entry.line].clone(),
            slot: Slot::new(entry.slot).unwrap(),
            target: entry.target,
        };
        let future = Box::pin(self.reactor.ready_owned(descriptor, entry.until.map(MonoNs)));
        self.futures.borrow_mut()[at] = Some((future, entry));
        self.poll(at);
    }

    fn poll(&self, at: usize) {
        let Some((mut future, mut entry)) = self.futures.borrow_mut()[at].take() else { return };
        let expected = match (self.is_complete(&entry), self.is_due(&entry)) {
            (true, _) => Poll::Ready(true),
            (false, true) => Poll::Ready(false),
            (false, false) => Poll::Pending,
        };
        let waker = Waker::from(entry.waker.clone());
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        assert_eq!(polled, expected);
        if polled.is_pending() {
            entry.registered = true;
            self.futures.borrow_mut()[at] = Some((future, entry));
        }
    }

    /// Marks what a fire now must wake, and says how many those are.
    fn expect_fired(&self) -> usize {
        if self.registered() == 0 {
            return 0;
        }
        let now = self.clock.monotonic_ns();
        let scan = self.doorbell.is_none()
            || self.rung.get()
            || now.since(self.scanned_at.get()) >= SCAN_BOUND;
        if scan {
            self.rung.set(false);
            self.scanned_at.set(now);
        }
        let mut count = 0;
        let mut mark = |entry: &mut Entry| {
            let fires = (scan && self.is_complete(entry)) || self.is_due(entry);
            if entry.registered && fires {
                entry.registered = false;
                entry.woken += 1;
                count += 1;
            }
        };
        self.futures.borrow_mut().iter_mut().flatten().for_each(|(_, entry)| mark(entry));
        self.forgotten.borrow_mut().iter_mut().for_each(mark);
        count
    }

    fn fire(&self) {
        let expected = self.expect_fired();
        assert_eq!(self.reactor.fire(), expected > 0);
    }

    fn react(&self, reaction: Reaction) {
        if self.depth.replace(self.depth.get() + 1) < 4 {
            match reaction {
                Reaction::Nothing => {}
                Reaction::Drop(at) => self.drop_future(at),
                Reaction::Fire => self.fire(),
                Reaction::Register(at, line) => {
                    let entry = new_entry(line, 0, 30, None, Reaction::Nothing);
                    self.register(at, entry);
                }
            }
        }
        self.depth.set(self.depth.get() - 1);
    }

    fn check(&self) {
        assert_eq!(self.reactor.pending(), (self.registered(), 0));
        for (_, entry) in self.futures.borrow().iter().flatten() {
            let woken = entry.waker.woken.load(Ordering::Relaxed);
            assert_eq!(woken, entry.woken, "woken exactly when complete or due");
        }
    }

    fn step(&self, op: Op) {
        match op {
            Op::Register { future, line, slot, target, until, on_wake } => {
                let until = until.map(|ns| self.clock.monotonic_ns().0 + ns);
                self.register(future, new_entry(line, slot, target, until, on_wake));
            }
            Op::Store { line, slot, add, ring } => {
                let line = (*self.lines[line]).as_ref();
                let slot = Slot::new(slot).unwrap();
                line.store(slot, line.load(slot) + add);
                if let (Some(doorbell), true) = (&self.doorbell, ring) {
                    doorbell.ring();
                    self.rung.set(true);
                }
            }
            Op::Advance(ns) => self.clock.advance(DurNs(ns)),
            Op::Fire => self.fire(),
            Op::Poll(at) => self.poll(at),
            Op::Drop(at) => self.drop_future(at),
            Op::Forget(at) => {
                if let Some((future, entry)) = self.futures.borrow_mut()[at].take() {
                    std::mem::forget(future);
                    self.forgotten.borrow_mut().push(entry);
                }
            }
        }
        self.check();
    }
}

fn new_entry(
    line: usize,
    slot: usize,
    target: u64,
    until: Option<u64>,
    on_wake: Reaction,
) -> Entry {
    let waker = Arc::new(CountingWaker { woken: Default::default(), reaction: on_wake });
    Entry { line, slot, target, until, registered: false, waker, woken: 0 }
}

fn run(with_doorbell: bool, ops: Vec<Op>) {
    // Leaked, since reactions are called through a thread-local that cannot borrow.
    let clock: &'static ManualClock = Box::leak(Box::default());
    let doorbell = with_doorbell.then(Doorbell::new);
    let reactor: &'static Reactor<'static, &'static ManualClock> =
        Box::leak(Box::new(match &doorbell {
            Some(doorbell) => Reactor::with_doorbell(clock, doorbell),
            None => Reactor::new(clock),
        }));
    let world = Rc::new(World {
        clock,
        lines: (0..LINES).map(|_| CompletionLine::shared()).collect(),
        doorbell,
        reactor,
        futures: RefCell::new((0..FUTURES).map(|_| None).collect()),
        forgotten: RefCell::default(),
        rung: Cell::new(false),
        scanned_at: Cell::new(MonoNs(0)),
        depth: Cell::new(0),
    });
    let reacting = world.clone();
    REACT.with(|react| {
        *react.borrow_mut() = Some(Rc::new(move |reaction| reacting.react(reaction)));
    });
    ops.into_iter().for_each(|op| world.step(op));
    (0..FUTURES).for_each(|at| world.drop_future(at));
    world.check();
    REACT.with(|react| drop(react.borrow_mut().take()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_reactor_without_a_doorbell_does_what_the_model_says(ops in prop::collection::vec(ops(), 1..120)) {
        run(false, ops);
    }

    #[test]
    fn a_reactor_with_a_doorbell_does_what_the_model_says(ops in prop::collection::vec(ops(), 1..120)) {
        run(true, ops);
    }
}
