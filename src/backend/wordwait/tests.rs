//! The logic around the instructions, with a scripted one: spurious ends, caps, bounds, late ends,
//! stores at every point, and the verdicts of the self-test.

use super::monitor::{Ended, LONGEST_WAIT, Monitor, Parked, park};
use super::scale::Scale;
use super::self_test::{self, ALONE, ALONE_WAIT, PATIENCE, SOON, STORES};
use super::unsupported::{SelfTestFault, Unsupported};
use crate::core::line::{CompletionLine, Slot, reached};
use crate::core::time::{DurNs, MonoNs};
use core::cell::{Cell, RefCell};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec::Vec;

const SLOT: Slot = Slot::ALL[2];
/// Two ticks a nanosecond.
const SCALE: Scale = Scale { hz: 2_000_000_000, error_ppm: 0 };

/// How the scripted CPU ends its waits: all but stores and deadlines.
#[derive(Clone, Copy, Debug)]
enum End {
    /// For no reason, after so many ns.
    Early(u64),
    /// By the kernel's cap, after so many ns.
    Cap(u64),
    /// So many ns after the deadline: a family with a granularity.
    Late(u64),
}

/// A CPU whose time passes in its waits only, but for a nanosecond a read of its clock.
#[derive(Default)]
struct Cpu {
    now: Cell<u64>,
    /// How the next waits end; after these, by their deadline.
    script: RefCell<VecDeque<End>>,
    /// When a device stores which number into the word.
    stores: RefCell<VecDeque<(u64, u64)>>,
    line: CompletionLine,
    /// What the monitor remembers: how many stores there were.
    armed: Cell<Option<u64>>,
    stored: Cell<u64>,
    waits: Cell<u64>,
    /// A monitor that does not see stores.
    blind: bool,
    /// A wait does not wait.
    sleepless: bool,
}

impl Cpu {
    fn clock(&self) -> MonoNs {
        self.pass(1);
        MonoNs(self.now.get())
    }

    /// Time passes, and what the device does in it happens.
    fn pass(&self, ns: u64) {
        self.now.set(self.now.get().saturating_add(ns));
        let mut stores = self.stores.borrow_mut();
        while stores.front().is_some_and(|(at, _)| *at <= self.now.get()) {
            self.line.store(SLOT, stores.pop_front().unwrap().1);
            self.stored.set(self.stored.get() + 1);
        }
    }

    fn park(&self, target: u64, bound: DurNs) -> Parked {
        let looks = Cell::new(None);
        let ready = |line: &CompletionLine| {
            let seen = reached(line, SLOT, target);
            looks.set(Some(seen));
            seen
        };
        let parked = park(self, &SCALE, || self.clock(), &self.line, ready, bound);
        assert_eq!(looks.get(), Some(parked.ready), "what ready said last is returned");
        assert_eq!(parked.waits, self.waits.get(), "each wait is counted");
        parked
    }
}

impl Monitor for Cpu {
    fn ticks(&self) -> u64 {
        self.now.get().saturating_mul(2)
    }

    fn arm(&self, line: &CompletionLine) {
        assert!(core::ptr::eq(line, &self.line) || self.stores.borrow().is_empty());
        self.armed.set(Some(self.stored.get()));
    }

    fn wait(&self, until: u64) -> Ended {
        self.waits.set(self.waits.get() + 1);
        let armed = self.armed.take().expect("a wait follows an arm");
        if self.sleepless || (armed != self.stored.get() && !self.blind) {
            return Ended::Unknown;
        }
        let deadline = (until / 2).max(self.now.get());
        let (end, ended) = match self.script.borrow_mut().pop_front() {
            None => (deadline, Ended::Unknown),
            Some(End::Early(ns)) => (deadline.min(self.now.get() + ns), Ended::Unknown),
            Some(End::Cap(ns)) => (deadline.min(self.now.get() + ns), Ended::Capped),
            Some(End::Late(ns)) => (deadline + ns, Ended::Unknown),
        };
        let store = self.stores.borrow().front().map(|(at, _)| *at).filter(|_| !self.blind);
        let stop = store.map_or(end, |at| at.max(self.now.get()).min(end));
        self.pass(stop - self.now.get());
        if stop < end { Ended::Unknown } else { ended }
    }
}

#[test]
fn a_bound_of_zero_looks_once_and_does_not_wait() {
    let cpu = Cpu::default();
    assert_eq!(cpu.park(1, DurNs::ZERO), Parked::default());
    cpu.line.store(SLOT, 1);
    assert!(cpu.park(1, DurNs::ZERO).ready);
    assert_eq!(cpu.waits.get(), 0);
}

#[test]
fn what_is_ready_is_not_waited_for() {
    let cpu = Cpu::default();
    cpu.line.store(SLOT, 5);
    assert_eq!(cpu.park(5, DurNs::MAX), Parked { ready: true, waits: 0, capped: 0 });
}

#[test]
fn a_store_behind_the_last_look_ends_the_wait_at_once() {
    // F3. The device stores when the counter is read, between the look and the wait.
    struct Storing(Cpu);
    impl Monitor for Storing {
        fn ticks(&self) -> u64 {
            self.0.pass(0);
            if self.0.stored.get() == 0 {
                self.0.stores.borrow_mut().push_back((0, 1));
                self.0.pass(0);
            }
            self.0.ticks()
        }
        fn arm(&self, line: &CompletionLine) {
            self.0.arm(line);
        }
        fn wait(&self, until: u64) -> Ended {
            self.0.wait(until)
        }
    }
    let cpu = Storing(Cpu::default());
    let ready = |line: &CompletionLine| reached(line, SLOT, 1);
    let parked = park(&cpu, &SCALE, || cpu.0.clock(), &cpu.0.line, ready, DurNs::MAX);
    assert_eq!(parked, Parked { ready: true, waits: 1, capped: 0 });
    assert!(cpu.0.now.get() < 10, "no time passed");
}

#[test]
fn a_store_between_the_first_look_of_a_caller_and_the_arm_is_seen() {
    // F3. The device stores while the monitor is being armed: too soon for the monitor to see it.
    struct Storing(Cpu);
    impl Monitor for Storing {
        fn ticks(&self) -> u64 {
            self.0.ticks()
        }
        fn arm(&self, line: &CompletionLine) {
            self.0.stores.borrow_mut().push_back((0, 1));
            self.0.pass(0);
            self.0.arm(line);
        }
        fn wait(&self, until: u64) -> Ended {
            self.0.wait(until)
        }
    }
    let cpu = Storing(Cpu::default());
    let ready = |line: &CompletionLine| reached(line, SLOT, 1);
    let parked = park(&cpu, &SCALE, || cpu.0.clock(), &cpu.0.line, ready, DurNs::MAX);
    assert_eq!(parked, Parked { ready: true, waits: 0, capped: 0 });
}

#[test]
fn the_kernels_cap_is_rearmed_until_the_bound() {
    let cpu = Cpu::default();
    cpu.script.borrow_mut().extend([End::Cap(50_000); 100]);
    let parked = cpu.park(1, DurNs::from_ms(3));
    // Each wait is followed by a clock read of 1 ns, so the last one is a little shorter.
    assert_eq!(parked, Parked { ready: false, waits: 60, capped: 60 });
    assert!(cpu.now.get() >= 3_000_000);
}

#[test]
fn a_monitor_that_misses_the_store_costs_one_longest_wait() {
    let cpu = Cpu { blind: true, ..Cpu::default() };
    cpu.stores.borrow_mut().push_back((100_000, 1));
    let parked = cpu.park(1, DurNs::from_ms(1_000));
    assert!(parked.ready);
    assert!(cpu.now.get() <= 100_000 + LONGEST_WAIT.0, "{} ns", cpu.now.get());
}

#[test]
fn a_bound_that_never_comes_waits_in_steps() {
    let cpu = Cpu::default();
    cpu.stores.borrow_mut().push_back((10_000_000_000, 7));
    let parked = cpu.park(7, DurNs::MAX);
    assert!(parked.ready && parked.waits <= 10_001, "{parked:?}");
    assert_eq!(cpu.now.get() / 1_000, 10_000_000);
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        (0_u64..2_000_000).prop_map(End::Early),
        (1_u64..200_000).prop_map(End::Cap),
        (0_u64..GRANULARITY).prop_map(End::Late),
    ]
}

const GRANULARITY: u64 = 100_000;

proptest! {
    #[test]
    fn a_park_is_true_only_when_ready_and_ends_on_time(
        script in prop::collection::vec(end(), 0..200),
        gaps in prop::collection::vec(0_u64..3_000_000, 0..20),
        target in 1_u64..20,
        bound in 0_u64..20_000_000,
    ) {
        let cpu = Cpu::default();
        cpu.script.borrow_mut().extend(&script);
        let mut at = 0;
        let stores = gaps.iter().enumerate().map(|(number, gap)| {
            at += gap;
            (at, number as u64 + 1)
        });
        let stores: Vec<_> = stores.collect();
        cpu.stores.borrow_mut().extend(&stores);
        let due = stores.iter().find(|(_, number)| *number >= target).map(|(at, _)| *at);
        let capped = script.iter().filter(|end| matches!(end, End::Cap(_))).count() as u64;

        let parked = cpu.park(target, DurNs(bound));
        let now = cpu.now.get();
        prop_assert_eq!(parked.ready, reached(&cpu.line, SLOT, target));
        prop_assert!(parked.capped <= capped);
        // A nanosecond a clock read, and what a wait may be late by.
        prop_assert!(now <= bound + GRANULARITY + 2 * (parked.waits + 2), "late by {}", now - bound);
        match due {
            Some(at) if at <= bound => prop_assert!(parked.ready && now <= at + 2 * (parked.waits + 2)),
            _ if !parked.ready => prop_assert!(now >= bound),
            _ => {}
        }
        // Waits end by the script, a store, the bound or the longest wait.
        let most = script.len() + stores.len() + (bound / LONGEST_WAIT.0) as usize + 2;
        prop_assert!(parked.waits <= 2 * most as u64, "{} waits", parked.waits);
    }
}

/// The self-test's second part, with a device that stores `after` ns after it was asked.
fn stores(cpu: &Cpu, after: u64) -> Result<(), Unsupported> {
    let last = Slot::ALL[7];
    let stored_at = Cell::new(MonoNs(0));
    let asked = Cell::new(0);
    // The self-test looks at the last word; the scripted device stores into another one beside it.
    let mirror = |cpu: &Cpu| cpu.line.store(last, cpu.line.load(SLOT));
    struct Mirrored<'a, F: Fn(&Cpu)>(&'a Cpu, F);
    impl<F: Fn(&Cpu)> Monitor for Mirrored<'_, F> {
        fn ticks(&self) -> u64 {
            self.0.ticks()
        }
        fn arm(&self, line: &CompletionLine) {
            self.0.arm(line);
        }
        fn wait(&self, until: u64) -> Ended {
            let ended = self.0.wait(until);
            self.0.pass(1);
            self.1(self.0);
            ended
        }
    }
    let monitor = Mirrored(cpu, mirror);
    let ask = |number| {
        let at = cpu.now.get() + after;
        asked.set(asked.get() + 1);
        stored_at.set(MonoNs(at));
        cpu.stores.borrow_mut().push_back((at, number));
    };
    let verdict =
        self_test::stores(&monitor, &SCALE, || cpu.clock(), &cpu.line, ask, || stored_at.get());
    assert!(asked.get() == STORES || verdict.is_err());
    verdict
}

#[test]
fn a_cpu_that_parks_passes_both_parts_of_the_self_test() {
    let cpu = Cpu::default();
    assert_eq!(self_test::alone(&cpu, &SCALE), Ok(()));
    assert_eq!(cpu.now.get(), u64::from(ALONE) * ALONE_WAIT.0);
    assert_eq!(stores(&cpu, 100_000), Ok(()));
    // With a cap, many waits before the one that the store ends.
    let capped = Cpu::default();
    capped.script.borrow_mut().extend([End::Cap(30_000); 3]);
    assert_eq!(stores(&capped, 100_000), Ok(()));
}

#[test]
fn waits_that_return_at_once_are_refused_with_their_count() {
    let cpu = Cpu { sleepless: true, ..Cpu::default() };
    let fault = SelfTestFault::ReturnsAtOnce;
    let refused = Err(Unsupported::SelfTest { fault, count: ALONE, of: ALONE });
    assert_eq!(self_test::alone(&cpu, &SCALE), refused);
    // Some early ends are no fault; more than half are.
    for (short, verdict) in [(ALONE / 2, Ok(())), (ALONE / 2 + 1, Err(ALONE / 2 + 1))] {
        let cpu = Cpu::default();
        cpu.script.borrow_mut().extend(std::iter::repeat_n(End::Early(100), short as usize));
        let verdict = verdict.map_err(|count| Unsupported::SelfTest { fault, count, of: ALONE });
        assert_eq!(self_test::alone(&cpu, &SCALE), verdict);
    }
    // However short the kernel's cap: the CPU says that it waited for it.
    let capped = Cpu::default();
    capped.script.borrow_mut().extend([End::Cap(100); ALONE as usize]);
    assert_eq!(self_test::alone(&capped, &SCALE), Ok(()));
}

#[test]
fn stores_that_do_not_end_waits_are_refused_with_their_count() {
    let fault = SelfTestFault::IgnoresStores;
    let refused = Err(Unsupported::SelfTest { fault, count: STORES, of: STORES });
    let blind = Cpu { blind: true, ..Cpu::default() };
    assert_eq!(stores(&blind, 100_000), refused);
    // Ended by the cap right behind the store is not ended by the store.
    let capped = Cpu { blind: true, ..Cpu::default() };
    capped.script.borrow_mut().extend([End::Cap(100_001); 5]);
    assert_eq!(stores(&capped, 100_000), refused);
    // Nor is ended by an event each 100 us, long after it.
    let events = Cpu { blind: true, ..Cpu::default() };
    events.script.borrow_mut().extend([End::Early(100_000 + SOON.0 + 1_000); 5]);
    assert_eq!(stores(&events, 100_000), refused);
}

#[test]
fn stores_that_never_come_end_the_self_test_all_the_same() {
    let fault = SelfTestFault::NoStore;
    let cpu = Cpu::default();
    let refused = Err(Unsupported::SelfTest { fault, count: STORES, of: STORES });
    assert_eq!(stores(&cpu, u64::MAX / 4), refused);
    assert!(cpu.now.get() >= PATIENCE.0 && cpu.now.get() < PATIENCE.0 + 2 * LONGEST_WAIT.0);
    // Late ones are no fault of the CPU.
    assert_eq!(stores(&Cpu::default(), PATIENCE.0 / 10), Ok(()));
}

/// The real instructions, where the CPU has them, without the self-test: an emulator whose waits
/// return at once runs the loop and its deadlines all the same.
#[test]
fn the_instructions_at_hand_keep_the_bound_whatever_their_waits_do() {
    let word_wait = match super::WordWait::untested() {
        Ok(word_wait) => word_wait,
        Err(why) => return std::println!("skipped: {why}"),
    };
    let line = CompletionLine::default();
    for us in [0, 30, 300, 3_000] {
        let began = std::time::Instant::now();
        let parked = word_wait.park_counted(&line, |_| false, DurNs::from_us(us));
        let took = DurNs::from(began.elapsed());
        std::println!("{}: bound {us} us, took {} ns, {parked:?}", word_wait.family(), took.0);
        assert!(!parked.ready && took >= DurNs::from_us(us));
        assert_eq!(parked.waits > 0, us > 0);
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(core::time::Duration::from_millis(1));
            line.store(SLOT, 3);
        });
        let ready = |line: &CompletionLine| reached(line, SLOT, 3);
        assert!(word_wait.park(&line, ready, DurNs::from_ms(60_000)));
    });
}
