//! The wake protocol under the model checker: every interleaving of foreign wakes with one thread
//! that drains, idles and polls as `drive` and `turn_beside` do.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release --lib model`.

use super::link::{Link, Task};
use crate::core::doorbell::Doorbell;
use crate::core::sync::{AtomicBool, AtomicU32, Ordering};
use alloc::{sync::Arc, vec::Vec};
use core::hash::{Hash, Hasher};
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

/// Idles once, as the host does: a lost wake idles for ever, which the checker reports.
fn idle_once(link: &Link, doorbell: Option<&Doorbell>, unpark: &Unpark) {
    let snapshot = doorbell.map(Doorbell::snapshot);
    if !link.begin_idle() {
        return;
    }
    let idle = !link.has_ready();
    while idle {
        let over = match (doorbell, &snapshot) {
            (Some(doorbell), Some(snapshot)) => doorbell.changed_since(snapshot),
            _ => unpark.0.load(Ordering::Acquire),
        };
        if over {
            unpark.0.store(false, Ordering::Relaxed);
            break;
        }
        thread::yield_now();
    }
    link.end_idle();
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
            idle_once(&link, (host == Host::Doorbell).then_some(&doorbell), &unpark);
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

fn token() -> usize {
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    thread::current().id().hash(&mut hasher);
    hasher.finish() as usize | 1
}

/// Two tasks, each woken by a thread of its own, on an executor that tells threads apart. With
/// `own_wakes` the first task also wakes both of them from its polls, so that pushes onto the own
/// stack, onto an empty foreign one and onto one that is not empty meet in every order.
fn check_two(host: Host, own_wakes: u32, preemptions: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let doorbell = (host == Host::Doorbell).then(Doorbell::new);
        let unpark = Arc::new(Unpark(AtomicBool::new(false)));
        let unparker = doorbell.is_none().then(|| Waker::from(unpark.clone()));
        let link = Arc::new(Link::new(doorbell.clone(), unparker, Some(token)));
        let tasks: Vec<_> = (0..2).map(|index| Arc::new(Task::new(link.clone(), index))).collect();
        let sent: Arc<Vec<AtomicU32>> = Arc::new((0..2).map(|_| AtomicU32::new(0)).collect());
        let threads: Vec<_> = (0..2)
            .map(|at| {
                let (waker, sent) = (Waker::from(tasks[at].clone()), sent.clone());
                thread::spawn(move || {
                    sent[at].store(1, Ordering::Relaxed);
                    waker.wake();
                })
            })
            .collect();

        link.start_running();
        let (mut done, mut own_wakes) = ([false; 2], own_wakes);
        if own_wakes > 0 {
            Waker::from(tasks[0].clone()).wake();
        }
        let mut round = Vec::new();
        while done != [true; 2] {
            link.drain(&mut round, |index| &tasks[index as usize]);
            assert!(round.len() < 2 || round[0] != round[1], "each task once a round");
            assert!(round.len() <= 2, "each task once a round");
            if round.is_empty() {
                idle_once(&link, doorbell.as_ref(), &unpark);
            }
            while let Some(index) = round.pop() {
                let at = index as usize;
                tasks[at].begin_poll();
                if at == 0 && own_wakes > 0 {
                    own_wakes -= 1;
                    Waker::from(tasks[1].clone()).wake();
                    Waker::from(tasks[0].clone()).wake();
                }
                done[at] |= sent[at].load(Ordering::Relaxed) == 1;
            }
        }
        link.stop_running();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn two_tasks_that_two_threads_wake_both_run_with_an_unparker() {
    check_two(Host::Unparker, 0, 2);
}

#[test]
fn two_tasks_that_two_threads_wake_both_run_with_a_doorbell() {
    check_two(Host::Doorbell, 0, 2);
}

#[test]
fn wakes_of_the_own_thread_beside_foreign_ones_lose_none_of_them() {
    check_two(Host::Unparker, 1, 2);
}
