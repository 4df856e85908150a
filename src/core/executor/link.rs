//! The wake protocol between tasks' wakers, on any thread, and the one thread that runs the tasks.
//!
//! A [`Link`] holds the ready set as two stacks of task numbers, linked through the tasks
//! themselves, so that a wake allocates nothing and costs the same whatever the number of tasks:
//!
//! * the **own** stack, which only the thread that runs the executor touches. It needs no atomic
//!   read-modify-write; its fields are atomics, loaded and stored relaxed, only because a waker can
//!   be sent. The host tells threads apart by [`Idle::thread_token`](crate::Idle::thread_token).
//! * the **foreign** stack, which any thread pushes to. While it is not empty the own thread pushes
//!   there as well, so that the wakes of both stay in the order in which they happened.
//!
//! A drain takes both stacks whole, the own one first, and so is one round: FIFO in the order of the
//! wakes, each task once.
//!
//! # Idling
//!
//! ```text
//!          1 begin_idle                 2 notify: ring, unpark
//!   BUSY --------------> IDLE ------------------------------> NOTIFIED
//!    ^  ^                 | 3 end_idle                            |
//!    |  +-----------------+                                       |
//!    +------------------------- 3 end_idle, 1 begin_idle (refused)+
//!   BUSY --2 notify: nobody to tell--> NOTIFIED
//! ```
//!
//! The losing interleaving: the thread looks at the stacks, finds them empty, and idles; between the
//! look and the idle another thread pushes and finds nobody idle, so tells nobody. Here the state is
//! swapped by both sides, the thread *before* its look and the waker *after* its push. Whichever swap
//! comes second reads the other's: either the waker finds IDLE and rings, or the thread finds
//! NOTIFIED and does not idle. Both swaps are acquire and release, so that the push is seen too.

use crate::core::doorbell::Doorbell;
use crate::core::sync::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use alloc::{sync::Arc, task::Wake, vec::Vec};
use core::task::Waker;

/// The end of a stack.
pub(super) const NONE: u32 = u32::MAX;

const BUSY: u32 = 0;
const IDLE: u32 = 1;
const NOTIFIED: u32 = 2;

/// What every waker of one executor shares. Made anew where the executor runs with another idle.
pub(super) struct Link {
    own: OwnSide,
    foreign: ForeignSide,
    doorbell: Option<Doorbell>,
    unparker: Option<Waker>,
    thread_token: Option<fn() -> usize>,
}

/// Touched by the running thread alone. On a cache line that no foreign wake writes.
#[repr(align(64))]
struct OwnSide {
    /// The token of the thread that runs the executor; 0 while none does. Read by all.
    runner: AtomicUsize,
    head: AtomicU32,
}

#[repr(align(64))]
struct ForeignSide {
    head: AtomicU32,
    state: AtomicU32,
}

/// What wakes one task. Lives as long as any waker of it.
pub(super) struct Task {
    link: Arc<Link>,
    index: u32,
    /// In the own stack or in the round that is being run. Running thread only.
    queued: AtomicBool,
    next: AtomicU32,
    foreign_queued: AtomicBool,
    foreign_next: AtomicU32,
}

impl Link {
    pub(super) fn new(
        doorbell: Option<Doorbell>,
        unparker: Option<Waker>,
        thread_token: Option<fn() -> usize>,
    ) -> Self {
        Link {
            own: OwnSide { runner: AtomicUsize::new(0), head: AtomicU32::new(NONE) },
            foreign: ForeignSide { head: AtomicU32::new(NONE), state: AtomicU32::new(BUSY) },
            doorbell,
            unparker,
            thread_token,
        }
    }

    /// Whether wakers of this link tell the right one: the same doorbell, unparker and way to tell
    /// threads apart.
    pub(super) fn serves(
        &self,
        doorbell: Option<&Doorbell>,
        unparker: Option<&Waker>,
        thread_token: Option<fn() -> usize>,
    ) -> bool {
        let same_doorbell = match (&self.doorbell, doorbell) {
            (Some(own), Some(other)) => own.same_as(other),
            (None, None) => true,
            _ => false,
        };
        let same_unparker = match (&self.unparker, unparker) {
            (Some(own), Some(other)) => own.will_wake(other),
            (None, None) => true,
            _ => false,
        };
        let address = |token: Option<fn() -> usize>| token.map(|token| token as usize);
        same_doorbell && same_unparker && address(self.thread_token) == address(thread_token)
    }

    pub(super) fn has_unparker(&self) -> bool {
        self.unparker.is_some()
    }

    /// The calling thread runs the executor from now on.
    pub(super) fn start_running(&self) {
        let token = self.thread_token.map_or(0, |token| token());
        self.own.runner.store(token, Ordering::Relaxed);
    }

    pub(super) fn stop_running(&self) {
        self.own.runner.store(0, Ordering::Relaxed);
    }

    /// A thread that is not the runner cannot find its own token here: the runner stores it, and
    /// removes it before it could end and another thread get the same token.
    #[inline]
    fn is_runner(&self) -> bool {
        self.thread_token.is_some_and(|token| token() == self.own.runner.load(Ordering::Relaxed))
    }

    #[inline]
    fn wake(&self, task: &Task) {
        if self.is_runner() { self.wake_from_runner(task) } else { self.wake_from_afar(task) }
    }

    /// A wake by the thread that runs the executor, or that holds it while it does not run.
    #[inline]
    pub(super) fn wake_from_runner(&self, task: &Task) {
        if task.queued.load(Ordering::Relaxed) {
            return;
        }
        if self.foreign.head.load(Ordering::Relaxed) != NONE {
            return self.wake_from_afar(task);
        }
        task.queued.store(true, Ordering::Relaxed);
        task.next.store(self.own.head.load(Ordering::Relaxed), Ordering::Relaxed);
        self.own.head.store(task.index, Ordering::Relaxed);
    }

    #[inline(never)]
    fn wake_from_afar(&self, task: &Task) {
        // Release: whoever takes the flag down sees what was done before this wake, also where the
        // task was queued already.
        if task.foreign_queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut head = self.foreign.head.load(Ordering::Relaxed);
        loop {
            task.foreign_next.store(head, Ordering::Relaxed);
            match self.foreign.head.compare_exchange_weak(
                head,
                task.index,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(newer) => head = newer,
            }
        }
        // The push onto an empty stack notifies. A later one relies on it, unless the thread idles
        // already: the first pusher may have been preempted between its push and its `notify`.
        if head == NONE || self.foreign.state.load(Ordering::Relaxed) == IDLE {
            self.notify();
        }
    }

    /// Edge 2.
    fn notify(&self) {
        if self.foreign.state.swap(NOTIFIED, Ordering::AcqRel) == IDLE {
            if let Some(doorbell) = &self.doorbell {
                doorbell.ring_for_wake();
            }
            if let Some(unparker) = &self.unparker {
                unparker.wake_by_ref();
            }
        }
    }

    /// Edge 1.
    pub(super) fn begin_idle(&self) -> bool {
        if self.foreign.state.swap(IDLE, Ordering::AcqRel) == NOTIFIED {
            self.end_idle();
            return false;
        }
        true
    }

    /// Edge 3.
    pub(super) fn end_idle(&self) {
        self.foreign.state.swap(BUSY, Ordering::AcqRel);
    }

    #[inline]
    pub(super) fn has_ready(&self) -> bool {
        self.own.head.load(Ordering::Relaxed) != NONE
            || self.foreign.head.load(Ordering::Acquire) != NONE
    }

    /// Takes what is ready, as one round: pushed onto `round`, which is empty, so that popping gives
    /// it in the order of the wakes.
    #[inline]
    pub(super) fn drain<'t>(&self, round: &mut Vec<u32>, task: impl Fn(u32) -> &'t Task) {
        if self.foreign.head.load(Ordering::Relaxed) != NONE {
            self.drain_foreign(round, &task);
        }
        let mut index = self.own.head.load(Ordering::Relaxed);
        self.own.head.store(NONE, Ordering::Relaxed);
        while index != NONE {
            round.push(index);
            index = task(index).next.load(Ordering::Relaxed);
        }
    }

    #[inline(never)]
    fn drain_foreign<'t>(&self, round: &mut Vec<u32>, task: &impl Fn(u32) -> &'t Task) {
        let mut index = self.foreign.head.swap(NONE, Ordering::Acquire);
        while index != NONE {
            let next_task = task(index);
            // Read before the flag is taken down: from then on a waker may push this task again.
            let next = next_task.foreign_next.load(Ordering::Relaxed);
            next_task.foreign_queued.swap(false, Ordering::AcqRel);
            if !next_task.queued.load(Ordering::Relaxed) {
                next_task.queued.store(true, Ordering::Relaxed);
                round.push(index);
            }
            index = next;
        }
    }
}

impl Task {
    pub(super) fn new(link: Arc<Link>, index: u32) -> Self {
        Task {
            link,
            index,
            queued: AtomicBool::new(false),
            next: AtomicU32::new(NONE),
            foreign_queued: AtomicBool::new(false),
            foreign_next: AtomicU32::new(NONE),
        }
    }

    /// The task leaves the round to be polled: a wake from now on queues it again.
    #[inline]
    pub(super) fn begin_poll(&self) {
        self.queued.store(false, Ordering::Relaxed);
    }

    /// Queued without being in the own stack: the caller has put it into the round.
    pub(super) fn mark_queued(&self) {
        self.queued.store(true, Ordering::Relaxed);
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.link.wake(&self);
    }

    #[inline]
    fn wake_by_ref(self: &Arc<Self>) {
        self.link.wake(self);
    }
}
