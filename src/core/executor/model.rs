//! The wake protocol under the model checker: every interleaving of foreign wakes with one thread
//! that drains, idles and polls as `drive` and `turn_beside` do.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release --lib model`.

use super::link::{Link, Task};
use crate::core::doorbell::Doorbell;
use crate::core::sync::{AtomicBool, AtomicU32, Ordering};
use alloc::{sync::Arc, vec::Vec};
use core::task::Waker;
use loom::thread;

/// What the runner's host lends it.
#[derive(Clone, Copy, PartialEq)]
enum Host {
    /// Parks on the doorbell: ends once its line differs from the snapshot.
    Doorbell,
    /// Sleeps until unparked, with nothing to watch.
    Unparker,
}

struct Unpark(AtomicBool);

impl alloc::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

fn check(host: Host, wakers: usize, preemptions: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let doorbell = Doorbell::new();
        let unpark = Arc::new(Unpark(AtomicBool::new(false)));
        let link = Arc::new(match host {
            Host::Doorbell => Link::new(Some(doorbell.clone()), None, None),
            Host::Unparker => Link::new(None, Some(Waker::from(unpark.clone())), None),
        });
        let task = Arc::new(Task::new(link.clone(), 0));
        let sent: Arc<Vec<AtomicU32>> = Arc::new((0..wakers).map(|_| AtomicU32::new(0)).collect());

        let threads: Vec<_> = (0..wakers)
            .map(|at| {
                let (waker, sent) = (Waker::from(task.clone()), sent.clone());
                thread::spawn(move || {
                    // What is sent before a wake must be seen by a poll after it.
                    sent[at].store(1, Ordering::Relaxed);
                    waker.wake();
                })
            })
            .collect();

        let mut round = Vec::new();
        loop {
            link.drain(&mut round, |_| &task);
            assert!(round.len() <= 1, "each task once a round");
            if round.pop().is_some() {
                task.begin_poll();
                if sent.iter().all(|value| value.load(Ordering::Relaxed) == 1) {
                    break;
                }
                continue;
            }
            let snapshot = (host == Host::Doorbell).then(|| doorbell.snapshot());
            if link.begin_idle() {
                // One look, then idle until told: a lost wake idles for ever, which the checker
                // reports.
                let idle = !link.has_ready();
                while idle {
                    let over = match &snapshot {
                        Some(snapshot) => doorbell.changed_since(snapshot),
                        None => unpark.0.load(Ordering::Acquire),
                    };
                    if over {
                        unpark.0.store(false, Ordering::Relaxed);
                        break;
                    }
                    thread::yield_now();
                }
                link.end_idle();
            }
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn a_foreign_wake_ends_a_park_on_the_doorbell() {
    check(Host::Doorbell, 1, 3);
}

#[test]
fn a_foreign_wake_ends_a_sleep() {
    check(Host::Unparker, 1, 4);
}

#[test]
fn two_foreign_wakes_of_one_task_are_both_seen() {
    check(Host::Unparker, 2, 2);
}
