//! The ring: what waits for submission, what is in the kernel, and the completions that come back.
//!
//! ```text
//!  start      fill            submit, wait          reap              finish
//! ------> backlog ---> submission queue ---> kernel ---> completions ---> wakers, orphans
//! ```
//!
//! One thread. Everything stands in one cell, which is borrowed for as long as a system call or a walk
//! of a queue takes, and never while a waker or the drop of a buffer runs: what a walk finds is
//! collected in [`Reaped`], the borrow ends, then orphans are freed and wakers woken. A panic of one
//! of these ends there and is counted; all others have their turn.
//!
//! Operations go through the backlog, so that their number is not bounded by the queue's, and one
//! that is dropped before it was submitted never reaches the kernel. The kernel keeps completions for
//! which its queue has no room, and hands them over at the next entry.
//!
//! # A ring that is lost
//!
//! A kernel may refuse to be entered after the set-up: a sandbox that is entered late, a process that
//! was restored from a checkpoint. The ring is then closed and never entered again. What the kernel
//! never had ends at once, and what it had once it has let go of it ([`Release`](super::release)).
//!
//! # A forked child
//!
//! has a copy of this memory and shares the queues with its parent. There nothing here touches them:
//! [`serves`](Ring::serves) is `false`, and what the cell holds is forgotten rather than dropped.
//!
//! # Costs
//!
//! Starting an operation is two copies of its entry, and no allocation once the tables have grown.
//! A look without news is three loads.

use super::ended::Ended;
use super::inner::Inner;
use super::queues::{Entry, Queues};
use super::refusal::UringRefusal;
use super::request::{Queued, Request};
use super::setup::{Made, RingMode};
use super::slots::{Abandoned, Key, Orphan, Settled};
use super::unparker::Unparker;
use crate::contain::contain;
use crate::core::time::{DurNs, MonoNs};
use crate::fork::Own;
use crate::monotonic;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::{Poll, Waker};
use core::time::Duration;
use std::thread;

/// How long closing a ring waits for the operations that it has cancelled.
const CLOSE_BOUND: DurNs = DurNs::from_ms(100);

/// How many entries of the kernel closing a ring makes at the least: a thread that was kept from its
/// core for all of that time still submits the cancellations and takes what came of them.
const CLOSE_TRIES: u32 = 8;

/// How long a thread sleeps where the kernel is short of memory, before it tries again. Wakes from
/// other threads wait that long too.
const BUSY_NAP: Duration = Duration::from_micros(50);

/// What rings have done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct UringStats {
    /// System calls on the ring.
    pub enters: u64,
    /// Operations handed to the kernel.
    pub submitted: u64,
    /// Operations that ended in the kernel.
    pub completed: u64,
    /// Operations that have not ended, orphans included, or whose result was not collected.
    pub in_flight: usize,
    /// Operations among them whose future was dropped.
    pub orphans: usize,
    /// Panics of wakers, and of destructors of buffers, that ended here.
    pub panics: u64,
}

static LEAKED: AtomicU64 = AtomicU64::new(0);

/// How many dropped operations, and with them their buffers, the process has leaked, because they had
/// not ended 100 ms after their ring was closed.
#[must_use]
pub fn uring_leaked() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

pub(super) struct Ring {
    inner: Own<RefCell<Inner>>,
    /// Emptied buffers of `reap`, kept for their memory.
    scratch: Cell<Reaped>,
}

/// What a walk found, to be finished once nothing is borrowed.
#[derive(Default)]
pub(super) struct Reaped {
    wakers: Vec<Waker>,
    orphans: Vec<(Box<dyn Orphan>, Ended)>,
}

impl Reaped {
    pub(super) fn take(&mut self, settled: Settled) {
        match settled {
            Settled::Wake(waker) => self.wakers.push(waker),
            Settled::Finish(orphan, ended) => self.orphans.push((orphan, ended)),
            Settled::Nobody => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.orphans.is_empty() && self.wakers.is_empty()
    }

    /// Frees and wakes. Returns how many of them panicked.
    fn finish(&mut self) -> u64 {
        let mut panics = 0;
        for (orphan, ended) in self.orphans.drain(..) {
            panics += u64::from(contain(|| orphan.finish(ended)).is_none());
        }
        for waker in self.wakers.drain(..) {
            panics += u64::from(contain(|| waker.wake()).is_none());
        }
        panics
    }
}

impl Ring {
    pub(super) fn new(made: Made) -> (Self, Arc<Unparker>, RingMode) {
        let Made { uring, mode, bell, instant_waits, release, before } = made;
        let unparker = Unparker::new(bell);
        let queues = Queues::new(uring, instant_waits, before);
        let inner = Own::new(RefCell::new(Inner::new(queues, release, &unparker)));
        (Ring { inner, scratch: Cell::default() }, unparker, mode)
    }

    /// What stands in the cell.
    #[cfg(all(test, not(loom)))]
    pub(super) fn with<R>(&self, look: impl FnOnce(&mut Inner) -> R) -> R {
        look(&mut self.inner.borrow_mut())
    }

    /// Whether this process is a child that was forked after the ring was made.
    #[inline]
    pub(super) fn is_forked(&self) -> bool {
        self.inner.birth().is_forked()
    }

    /// Whether a thread can sleep in it and start operations on it.
    pub(super) fn serves(&self) -> bool {
        !self.is_forked() && self.lost().is_none()
    }

    /// Why the ring was lost, if it was.
    pub(super) fn lost(&self) -> Option<UringRefusal> {
        self.inner.borrow().lost()
    }

    /// How an operation ends that is started now; `None` if it can be started.
    pub(super) fn refuses(&self) -> Option<Ended> {
        if self.is_forked() {
            return Some(Ended::Forked);
        }
        self.lost().map(Ended::Refused)
    }

    /// Whether anything is queued, in flight, or not collected.
    #[inline]
    pub(super) fn has_io(&self) -> bool {
        !self.is_forked() && self.inner.borrow().has_io()
    }

    pub(super) fn stats(&self) -> UringStats {
        let inner = self.inner.borrow();
        let (in_flight, orphans) = (inner.slots.in_use(), inner.slots.orphans());
        UringStats { in_flight, orphans, ..inner.stats }
    }

    /// Queues an operation of a ring that does not [refuse](Self::refuses) it. What the request points
    /// to belongs to whoever holds the key, until the key's result is collected or the holder is
    /// handed to [`abandon`](Self::abandon).
    ///
    /// Submits what is queued where that fills half of the submission queue. The caller stores the
    /// key before it finishes what came: that runs code of the program.
    pub(super) fn start(&self, request: Request, waker: Waker) -> (Key, Reaped) {
        let mut reaped = self.scratch.take();
        let mut inner = self.inner.borrow_mut();
        let key = inner.slots.insert(waker);
        inner.queue(Queued::Start(key, request), &mut reaped);
        (key, reaped)
    }

    /// How `key` ended, or `waker` is woken once it has.
    pub(super) fn poll_key(&self, key: Key, waker: &Waker) -> Poll<Ended> {
        if self.is_forked() {
            return Poll::Ready(Ended::Forked);
        }
        {
            let mut inner = self.inner.borrow_mut();
            if let Some(ended) = inner.slots.collect(key) {
                return Poll::Ready(ended);
            }
            if inner.slots.would_wake(key, waker) {
                return Poll::Pending;
            }
        }
        // Cloning and dropping wakers runs arbitrary code.
        let waker = waker.clone();
        let old = self.inner.borrow_mut().slots.replace_waker(key, waker);
        drop(old);
        self.inner.borrow_mut().slots.collect(key).map_or(Poll::Pending, Poll::Ready)
    }

    /// The future of `key` is dropped, in the process of the ring. `orphan` lives until the operation
    /// has ended; it is asked to end soon if the kernel has it.
    pub(super) fn abandon(&self, key: Key, orphan: Box<dyn Orphan>) {
        let mut reaped = self.scratch.take();
        let abandoned = {
            let mut inner = self.inner.borrow_mut();
            let abandoned = inner.slots.abandon(key, orphan);
            if matches!(abandoned, Abandoned::InKernel(_)) {
                inner.queue(Queued::Cancel(key), &mut reaped);
            }
            abandoned
        };
        // First what is others': a destructor of the future's own may unwind, as from any drop.
        self.finish(reaped);
        match abandoned {
            Abandoned::Over(orphan, ended, waker) => {
                let _waker = waker;
                orphan.finish(ended);
            }
            Abandoned::InKernel(waker) => drop(waker),
        }
    }

    /// Takes the completions that are there, frees and wakes. Enters the kernel first, without waiting,
    /// if that is allowed and there is something to submit or to be handed over. Returns whether code
    /// of the program ran, and whether the kernel was entered.
    pub(super) fn poll(&self, may_enter: bool) -> (bool, bool) {
        if self.is_forked() {
            return (false, false);
        }
        let mut reaped = self.scratch.take();
        let entered = {
            let mut inner = self.inner.borrow_mut();
            let entered = may_enter && inner.enter_if_wanted(&mut reaped);
            inner.reap(&mut reaped);
            entered
        };
        (self.finish(reaped), entered)
    }

    /// Submits what is queued and waits for a completion or the bell, until `at`. The thread is
    /// declared asleep, and the ring [serves](Self::serves). May return earlier.
    ///
    /// The caller finishes what came.
    pub(super) fn wait(&self, at: MonoNs) -> Reaped {
        self.wait_for_any(at, true)
    }

    fn wait_for_any(&self, at: MonoNs, bell_too: bool) -> Reaped {
        let mut reaped = self.scratch.take();
        let entry = {
            let mut inner = self.inner.borrow_mut();
            let entry = inner.wait(at, bell_too, &mut reaped);
            inner.reap(&mut reaped);
            entry
        };
        if entry == Entry::Busy && reaped.is_empty() {
            thread::sleep(BUSY_NAP);
        }
        reaped
    }

    /// Whether operations of a lost ring are with the kernel still.
    pub(super) fn awaits_release(&self) -> bool {
        !self.is_forked() && self.inner.borrow().awaits_release()
    }

    /// Frees orphans, then wakes, in the order of the completions. Returns whether code of the program
    /// ran: it may have made a task of this thread ready, and nobody else notifies the thread of it.
    pub(super) fn finish(&self, mut reaped: Reaped) -> bool {
        let runs = !reaped.is_empty();
        if runs {
            let panics = reaped.finish();
            self.inner.borrow_mut().stats.panics += panics;
        }
        self.scratch.set(reaped);
        runs
    }
}

impl Drop for Ring {
    /// Every future holds the ring, so what is left are orphans, whose cancellations are queued.
    /// Waits for their ends, 100 ms at the most; what has not ended then (a read of a file on a dead
    /// network share cannot be cancelled) is leaked and counted: closing the ring does not wait for
    /// it, and the kernel may write to it later.
    fn drop(&mut self) {
        if self.is_forked() {
            return;
        }
        let end = monotonic::now().after(CLOSE_BOUND);
        let mut tries = 0;
        while self.inner.borrow().slots.in_use() != 0 {
            if tries >= CLOSE_TRIES && monotonic::now() >= end {
                break;
            }
            tries += 1;
            let reaped = match self.lost() {
                // Without the bell: nobody declared the thread asleep, and it would ring at once.
                None => self.wait_for_any(end, false),
                Some(_) => {
                    let mut reaped = self.scratch.take();
                    self.inner.borrow_mut().wait_for_release(end, &mut reaped);
                    reaped
                }
            };
            self.finish(reaped);
        }
        for orphan in self.inner.get_mut().slots.take_orphans() {
            LEAKED.fetch_add(1, Ordering::Relaxed);
            core::mem::forget(orphan);
        }
    }
}
