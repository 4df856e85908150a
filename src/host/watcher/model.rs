//! The watcher's protocols under the model checker: registering against a scanner that goes to
//! sleep, ending a watch against its future, taking over against a late return, and the crew's
//! book: a thread that comes back against one that is started, and a rest against the spare that
//! falls asleep over it.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release --lib model`.

use super::counters::Counters;
use super::duty::Duty;
use super::entry::{Ended, Entry};
use super::inbox::Inbox;
use super::roster::Roster;
use super::sync::{Mutex, lock};
use crate::core::sync::{AtomicBool, AtomicU32, Ordering};
use crate::core::time::{DurNs, MonoNs};
use alloc::{sync::Arc, task::Wake, vec::Vec};
use core::task::Waker;
use loom::thread;

/// A waker that counts.
struct Counted(AtomicU32);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn counted() -> (Arc<Counted>, Waker) {
    let counted = Arc::new(Counted(AtomicU32::new(0)));
    (counted.clone(), Waker::from(counted))
}

/// The scanner: takes letters until it has `wanted`, and sleeps for good in between. A lost wake
/// sleeps for ever, which the checker reports.
fn scan_until(inbox: &Inbox<usize>, unpark: &AtomicBool, wanted: usize) -> Vec<usize> {
    let mut letters = Vec::new();
    loop {
        inbox.drain(&mut letters);
        if letters.len() == wanted {
            return letters;
        }
        if inbox.begin_sleep(MonoNs::MAX) {
            while !unpark.load(Ordering::Acquire) {
                thread::yield_now();
            }
            unpark.store(false, Ordering::Relaxed);
            inbox.end_sleep();
        } else {
            thread::yield_now();
        }
    }
}

fn register(shards: &'static [usize], preemptions: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let inbox = Arc::new(Inbox::new());
        let unpark = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = shards
            .iter()
            .enumerate()
            .map(|(at, &shard)| {
                let (inbox, unpark) = (inbox.clone(), unpark.clone());
                thread::spawn(move || {
                    if inbox.push(shard, at, || MonoNs(1)).unwrap() {
                        unpark.store(true, Ordering::Release);
                    }
                })
            })
            .collect();
        let mut letters = scan_until(&inbox, &unpark, shards.len());
        letters.sort_unstable();
        assert!(letters.into_iter().eq(0..shards.len()), "each once");
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn a_registration_ends_the_sleep_of_the_scanner_or_keeps_it_from_sleeping() {
    register(&[0], 4);
}

#[test]
fn of_two_registrations_in_one_shard_both_are_taken_up() {
    register(&[0, 0], 2);
}

#[test]
fn of_two_registrations_in_two_shards_both_are_taken_up() {
    register(&[0, 1], 2);
}

#[test]
fn what_was_accepted_before_the_close_is_there_when_the_close_is_seen() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new());
        let pushing = inbox.clone();
        let pusher = thread::spawn(move || pushing.push(0, 7, || MonoNs::MAX).is_ok());
        let closing = inbox.clone();
        let closer = thread::spawn(move || closing.close());
        let mut letters = Vec::new();
        while !inbox.is_closed() {
            inbox.drain(&mut letters);
            thread::yield_now();
        }
        inbox.drain(&mut letters);
        closer.join().unwrap();
        assert_eq!(letters.len() == 1, pusher.join().unwrap(), "accepted and seen, or refused");
    });
}

fn done() -> Ended {
    Ended::Done { reached: true, elapsed: DurNs::ZERO, queries: 1 }
}

#[test]
fn a_poll_finds_the_result_or_leaves_the_waker_that_is_woken() {
    loom::model(|| {
        let ((old, first), (new, second)) = (counted(), counted());
        let entry = Arc::new(Entry::new(first, ()));
        let ending = entry.clone();
        let thread = thread::spawn(move || {
            let waker = ending.finish(done(), &Counters::default()).expect("nobody else ends it");
            waker.wake();
        });
        let found = entry.poll(&second).is_some();
        thread.join().unwrap();
        let woken = (old.0.load(Ordering::Relaxed), new.0.load(Ordering::Relaxed));
        assert_eq!(woken.0 + woken.1, 1, "one wake");
        assert!(found || woken.1 == 1, "a pending poll is woken by its own waker");
        assert_eq!(entry.poll(&second).is_some(), !found, "the result is taken once");
    });
}

#[test]
fn of_the_end_of_a_watch_and_the_drop_of_its_future_one_is_first() {
    loom::model(|| {
        let entry = Arc::new(Entry::new(Waker::noop().clone(), ()));
        let ending = entry.clone();
        let thread = thread::spawn(move || ending.finish(done(), &Counters::default()).is_some());
        let unregisters = entry.abandon();
        let ended = thread.join().unwrap();
        assert!(unregisters != ended, "it is either unregistered or has ended");
    });
}

#[test]
fn a_late_thread_and_its_spare_are_neither_both_on_duty_nor_neither() {
    loom::model(|| {
        let duty = Arc::new(Duty::default());
        // What whoever is on duty holds between two calls.
        let tables = Arc::new(Mutex::new(0));
        let held = lock(&tables);
        let call = duty.begin_call(7);
        drop(held);
        let (spares, spares_tables, own) = (duty.clone(), tables.clone(), call);
        let spare = thread::spawn(move || {
            let call = spares.look();
            let device = call.and_then(|call| spares.take_over(call));
            if let Some(device) = device {
                *lock(&spares_tables) += 1;
                // Calls are numbered 1, 3, ...: this one's device is known with it.
                let first = call == Some(own);
                assert_eq!(device, if first { 7 } else { 8 }, "the device of the call taken over");
            }
            device.is_some()
        });
        // Two calls: a take-over of the first must not take the second.
        let mut on_duty = duty.end_call(call);
        if on_duty {
            let mut held = lock(&tables);
            *held += 1;
            let call = duty.begin_call(8);
            drop(held);
            on_duty = duty.end_call(call);
        }
        let took_over = spare.join().unwrap();
        assert!(on_duty != took_over, "exactly one is on duty");
        assert!((1..=2).contains(&*lock(&tables)));
    });
}

/// A roster with a thread on duty and a spare, which are this one and the model's second.
fn crew() -> Arc<Roster> {
    let roster = Arc::new(Roster::new());
    for on_duty in [true, false] {
        roster.enlist(on_duty, MonoNs(1), || Ok(std::thread::current().id())).unwrap();
    }
    roster
}

#[test]
fn a_thread_that_comes_back_while_another_spare_is_started_leaves_exactly_one() {
    loom::model(|| {
        let (roster, duty) = (crew(), Arc::new(Duty::default()));
        let call = duty.begin_call(7);
        let (spares, spares_duty) = (roster.clone(), duty.clone());
        let spare = thread::spawn(move || {
            let taken = spares.take_over(&spares_duty, call, 4)?;
            assert!(taken.device == 7 && taken.is_stuck && taken.another);
            let mut started = false;
            let start = || {
                started = true;
                Ok(std::thread::current().id())
            };
            spares.enlist(false, MonoNs(1), start).unwrap();
            Some(started)
        });
        let came_back = (!duty.end_call(call)).then(|| roster.come_back());
        let started = spare.join().unwrap();
        match (came_back, started) {
            // It was back in time, and the spare is the one that there was.
            (None, None) => {}
            (Some(is_spare), Some(started)) => {
                assert!(is_spare != started, "one of the two stands by");
            }
            other => panic!("taken over on one side only: {other:?}"),
        }
        assert_eq!((roster.count().0, roster.stuck()), (1, 0));
        assert!(roster.has_spare());
    });
}

#[test]
fn a_spare_that_falls_asleep_over_a_rest_is_awake_after_it_or_not_asleep_at_all() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let roster = crew();
        let hangs = Arc::new(AtomicBool::new(false));
        let (standing, seen) = (roster.clone(), hangs.clone());
        let spare = thread::spawn(move || {
            let mut quiet = 0;
            // It looks until it sees the call that hangs; asleep for good it never would.
            while standing.stand(&mut quiet, core::time::Duration::ZERO) {
                if seen.load(Ordering::Relaxed) {
                    return true;
                }
            }
            false
        });
        roster.rest();
        thread::yield_now();
        roster.stir();
        hangs.store(true, Ordering::Relaxed);
        assert!(spare.join().unwrap(), "the spare was told of an end");
    });
}
