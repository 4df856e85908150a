//! The unparker's protocol under the model checker:
//! `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target-loom cargo test --release --test loom_unpark`.
//!
//! The kernel's futex is a lock under which the word is compared and the sleeper queued, as one step;
//! a wake takes the same lock. A lost wake is a deadlock, which loom reports.
#![cfg(loom)]

use gpu_async_reactor::host::IdleState;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

struct Host {
    word: AtomicU32,
    bucket: Mutex<()>,
    sleepers: Condvar,
    /// What the notifier publishes, and what keeps the idler from idling for ever.
    work: AtomicU64,
}

impl Host {
    fn new() -> Arc<Self> {
        Arc::new(Host {
            word: AtomicU32::new(0),
            bucket: Mutex::new(()),
            sleepers: Condvar::new(),
            work: AtomicU64::new(0),
        })
    }

    fn state(&self) -> IdleState<&AtomicU32> {
        IdleState(&self.word)
    }

    /// `StdIdle::sleep_until` with a deadline that never comes.
    fn sleep(&self) {
        loop {
            let state = self.state();
            if state.take() {
                return;
            }
            if state.fall_asleep() {
                let bucket = self.bucket.lock().unwrap();
                // ASLEEP: the kernel's compare. One wait at most, as the kernel may return early.
                if self.word.load(Ordering::Relaxed) == 1 {
                    drop(self.sleepers.wait(bucket).unwrap());
                }
            }
            if state.rise() {
                return;
            }
        }
    }

    fn wake(&self) {
        if self.state().notify() {
            drop(self.bucket.lock().unwrap());
            self.sleepers.notify_one();
        }
    }
}

#[test]
fn a_notification_before_during_or_after_falling_asleep_ends_the_sleep() {
    loom::model(|| {
        let host = Host::new();
        let notifier = host.clone();
        let thread = thread::spawn(move || {
            notifier.work.store(7, Ordering::Relaxed);
            notifier.wake();
        });
        host.sleep();
        assert_eq!(host.work.load(Ordering::Relaxed), 7, "a wake publishes what came before it");
        thread.join().unwrap();
    });
}

#[test]
fn of_two_notifiers_the_work_of_both_is_seen() {
    // All interleavings of three threads take seven minutes: unset the bound to go through them.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let host = Host::new();
        let threads = [1, 2].map(|bit| {
            let notifier = host.clone();
            thread::spawn(move || {
                notifier.work.fetch_add(bit, Ordering::Relaxed);
                notifier.wake();
            })
        });
        while host.work.load(Ordering::Relaxed) != 3 {
            host.sleep();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn a_notification_that_races_the_end_of_a_sleep_is_used_up_or_kept_and_never_dropped() {
    loom::model(|| {
        let host = Host::new();
        let notifier = host.clone();
        let thread = thread::spawn(move || notifier.wake());
        // A sleep that ends by its deadline before the kernel is entered.
        let state = host.state();
        let slept_and_notified = state.fall_asleep() && state.rise();
        thread.join().unwrap();
        assert!(slept_and_notified || state.take(), "used up by the sleep, or there for the next");
    });
}
