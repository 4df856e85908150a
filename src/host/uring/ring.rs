//! The ring: what waits for submission, what is in the kernel, and the completions that come back.
//!
//! ```text
//!  start      fill            submit, wait          reap              finish
//! ------> backlog ---> submission queue ---> kernel ---> completions ---> wakers, orphans
//! ```
//!
//! One thread. Everything stands in one cell, which is borrowed for as long as a system call or a walk
//! of a queue takes, and never while a waker or the drop of a buffer runs: what a walk finds is
//! collected in [`Reaped`], the borrow ends, then orphans are freed and wakers woken.
//!
//! Operations go through the backlog, so that their number is not bounded by the queue's, and one
//! that is dropped before it was submitted never reaches the kernel. The kernel keeps completions for
//! which its queue has no room, and hands them over at the next entry.
//!
//! # Costs
//!
//! Starting an operation is two copies of its entry, and no allocation once the tables have grown.
//! A look without news is three loads.

use super::request::{BELL, CANCEL, Queued, Request, cancel, timespec};
use super::setup::{Made, RingMode};
use super::slots::{Abandoned, Key, Orphan, Settled, Slots};
use super::unparker::{Bell, Unparker};
use crate::core::time::{DurNs, MonoNs};
use crate::monotonic;
use alloc::{boxed::Box, collections::VecDeque, sync::Arc, vec::Vec};
use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::{Poll, Waker};
use io_uring::{EnterFlags, IoUring, opcode, squeue, types};
use rustix::io::Errno;
use std::io;

/// How long closing a ring waits for the operations that it has cancelled.
const CLOSE_BOUND: DurNs = DurNs::from_ms(100);

/// The longest single wait where the kernel is told a time rather than an instant.
const LONGEST_WAIT: DurNs = DurNs::from_ms(86_400_000);

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
}

static LEAKED: AtomicU64 = AtomicU64::new(0);

/// How many dropped operations, and with them their buffers, the process has leaked, because they had
/// not ended 100 ms after their ring was closed.
#[must_use]
pub fn uring_leaked() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

pub(super) struct Ring {
    inner: RefCell<Inner>,
    /// Emptied buffers of `reap`, kept for their memory.
    scratch: Cell<Reaped>,
}

struct Inner {
    uring: IoUring,
    slots: Slots,
    backlog: VecDeque<Queued>,
    /// One place for each entry of the submission queue: the kernel reads it at submission, and the
    /// entry's place is used again only after that.
    timespecs: Box<[types::Timespec]>,
    pushed: usize,
    unparker: Arc<Unparker>,
    /// The bell is in the submission queue, in the kernel, or its completion is not reaped yet.
    armed: bool,
    instant_waits: bool,
    stats: UringStats,
}

/// What a walk found, to be finished once nothing is borrowed.
#[derive(Default)]
pub(super) struct Reaped {
    wakers: Vec<Waker>,
    orphans: Vec<(Box<dyn Orphan>, i32)>,
    /// Whether an operation ended whose future is there.
    ended: bool,
}

impl Reaped {
    /// A buffer or a waker that panics does not keep the others from their turn.
    fn finish_all(&mut self) {
        struct Rest<'a, T, F: FnMut(T)>(alloc::vec::Drain<'a, T>, F);
        impl<T, F: FnMut(T)> Drop for Rest<'_, T, F> {
            fn drop(&mut self) {
                self.0.by_ref().for_each(&mut self.1);
            }
        }
        let wakers = Rest(self.wakers.drain(..), Waker::wake);
        drop(Rest(self.orphans.drain(..), |(orphan, result): (Box<dyn Orphan>, i32)| {
            orphan.finish(result);
        }));
        drop(wakers);
    }
}

impl Ring {
    pub(super) fn new(made: Made) -> (Self, Arc<Unparker>, RingMode) {
        let unparker = Unparker::new(made.bell);
        let places = made.uring.params().sq_entries() as usize;
        let inner = Inner {
            uring: made.uring,
            slots: Slots::default(),
            backlog: VecDeque::new(),
            timespecs: (0..places).map(|_| types::Timespec::new()).collect(),
            pushed: 0,
            unparker: unparker.clone(),
            armed: false,
            instant_waits: made.instant_waits,
            stats: UringStats::default(),
        };
        (Ring { inner: RefCell::new(inner), scratch: Cell::default() }, unparker, made.mode)
    }

    /// Whether anything is queued, in flight, or not collected.
    #[inline]
    pub(super) fn has_io(&self) -> bool {
        let inner = self.inner.borrow();
        inner.slots.in_use() != 0 || !inner.backlog.is_empty()
    }

    pub(super) fn stats(&self) -> UringStats {
        let inner = self.inner.borrow();
        let (in_flight, orphans) = (inner.slots.in_use(), inner.slots.orphans());
        UringStats { in_flight, orphans, ..inner.stats }
    }

    /// Queues an operation. What the request points to belongs to whoever holds the key, until the
    /// key's result is collected or the holder is handed to [`abandon`](Self::abandon).
    ///
    /// Submits what is queued where that fills half of the submission queue. The caller stores the
    /// key before it finishes what came: that runs code which may unwind.
    pub(super) fn start(&self, request: Request, waker: Waker) -> (Key, Reaped) {
        let mut reaped = self.scratch.take();
        let mut inner = self.inner.borrow_mut();
        let key = inner.slots.insert(waker);
        inner.backlog.push_back(Queued::Start(key, request));
        inner.submit_if_half_full(&mut reaped);
        (key, reaped)
    }

    /// The result of `key`, or `waker` is woken once it is there.
    pub(super) fn poll_key(&self, key: Key, waker: &Waker) -> Poll<i32> {
        {
            let mut inner = self.inner.borrow_mut();
            if let Some(result) = inner.slots.collect(key) {
                return Poll::Ready(result);
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

    /// The future of `key` is dropped. `orphan` lives until the operation has ended; it is asked to
    /// end soon where the kernel has it.
    pub(super) fn abandon(&self, key: Key, orphan: Box<dyn Orphan>) {
        let mut reaped = self.scratch.take();
        let abandoned = {
            let mut inner = self.inner.borrow_mut();
            let abandoned = inner.slots.abandon(key, orphan);
            if matches!(abandoned, Abandoned::InKernel(_)) {
                inner.backlog.push_back(Queued::Cancel(key));
                inner.submit_if_half_full(&mut reaped);
            }
            abandoned
        };
        match abandoned {
            Abandoned::Settled(orphan, result) => orphan.finish(result),
            Abandoned::InKernel(waker) | Abandoned::Backlogged(waker) => drop(waker),
        }
        self.finish(reaped);
    }

    /// Takes the completions that are there, and wakes. Enters the kernel first, without waiting,
    /// where that is allowed and there is something to submit or to be handed over. Says whether a
    /// live operation ended, and whether the kernel was entered.
    pub(super) fn poll(&self, may_enter: bool) -> (bool, bool) {
        let mut reaped = self.scratch.take();
        let entered = {
            let mut inner = self.inner.borrow_mut();
            let entered = may_enter && inner.wants_enter();
            if entered {
                // What could not be submitted stays queued.
                let _ = inner.submit(&mut reaped);
            }
            inner.reap(&mut reaped);
            entered
        };
        (self.finish(reaped), entered)
    }

    /// Submits what is queued and waits for a completion or the bell, until `at`. The thread is
    /// declared asleep. May return earlier.
    ///
    /// The caller finishes what came.
    pub(super) fn wait(&self, at: MonoNs) -> Reaped {
        self.wait_for_any(at, true)
    }

    fn wait_for_any(&self, at: MonoNs, bell_too: bool) -> Reaped {
        let mut reaped = self.scratch.take();
        let mut inner = self.inner.borrow_mut();
        if inner.wait(at, bell_too, &mut reaped).is_err() {
            // The kernel is short of memory, or has completions that must be taken first.
            std::thread::yield_now();
        }
        inner.reap(&mut reaped);
        drop(inner);
        reaped
    }

    /// Frees orphans, then wakes, in the order of the completions. Whether a live operation ended.
    pub(super) fn finish(&self, mut reaped: Reaped) -> bool {
        let ended = core::mem::take(&mut reaped.ended);
        if !(reaped.orphans.is_empty() && reaped.wakers.is_empty()) {
            reaped.finish_all();
        }
        self.scratch.set(reaped);
        ended
    }
}

impl Inner {
    /// Moves the backlog into the submission queue, as far as there is room.
    fn fill(&mut self, reaped: &mut Reaped) {
        while !self.backlog.is_empty() && !self.uring.submission().is_full() {
            let entry = match self.backlog.pop_front() {
                Some(Queued::Start(key, request)) => {
                    if let Some(orphan) = self.slots.take_up(key) {
                        reaped.orphans.push((orphan, -Errno::CANCELED.raw_os_error()));
                        continue;
                    }
                    self.stats.submitted += 1;
                    match request {
                        Request::Entry(entry) => entry.user_data(key.user_data()),
                        Request::Timeout(at) => self.timeout(at).user_data(key.user_data()),
                    }
                }
                Some(Queued::Cancel(key)) => cancel(key),
                None => return,
            };
            self.push(&entry);
        }
    }

    /// A timer whose instant stands in the place that belongs to the next entry.
    fn timeout(&mut self, at: MonoNs) -> squeue::Entry {
        let place = self.pushed % self.timespecs.len();
        self.timespecs[place] = timespec(at);
        opcode::Timeout::new(&raw const self.timespecs[place])
            .flags(types::TimeoutFlags::ABS)
            .build()
    }

    /// Pushes an entry; there is room.
    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: whatever the entry refers to is valid until its operation has ended:
        // * The memory and the descriptor of an operation belong to its data, `unsafe trait
        //   Operation` answers for their stability, and the data lives until the completion is
        //   reaped: in its future, which gives it up only with the result; or, where that is dropped,
        //   as an orphan in `slots`, or leaked. A future that is forgotten drops nothing.
        // * The instant of a timer is read while the entry is submitted (IORING_FEAT_SUBMIT_STABLE,
        //   which `setup` demands). Its place is written again only for the entry that takes the
        //   same place of the queue, hence after that.
        // * The bell's word lives in `unparker`, which the ring holds. The kernel reads it while it
        //   arms, and then only keeps its address. The bell's counter is kept open likewise.
        let pushed = unsafe { self.uring.submission().push(entry) };
        debug_assert!(pushed.is_ok(), "there was room");
        self.pushed = self.pushed.wrapping_add(1);
    }

    /// Hands to the kernel all that is queued, without waiting, and lets it hand over completions.
    fn submit(&mut self, reaped: &mut Reaped) -> io::Result<()> {
        loop {
            self.fill(reaped);
            let queued = self.uring.submission().len();
            self.stats.enters += 1;
            self.uring.submit()?;
            let left = self.uring.submission().len();
            if self.backlog.is_empty() && left == 0 || left == queued {
                return Ok(());
            }
        }
    }

    fn submit_if_half_full(&mut self, reaped: &mut Reaped) {
        if 2 * self.backlog.len() >= self.timespecs.len() {
            // What could not be submitted stays queued, and is tried again when the thread idles.
            let _ = self.submit(reaped);
        }
    }

    /// Whether entering the kernel would bring anything on.
    fn wants_enter(&mut self) -> bool {
        let queue = self.uring.submission();
        !self.backlog.is_empty() || !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    /// Submits, and waits for one completion until `at`.
    fn wait(&mut self, at: MonoNs, bell_too: bool, reaped: &mut Reaped) -> io::Result<()> {
        if self.backlog.len() >= self.timespecs.len() || self.uring.submission().is_full() {
            self.submit(reaped)?;
        }
        if bell_too && !self.armed {
            let bell = self.bell();
            self.push(&bell);
            self.armed = true;
        }
        self.fill(reaped);
        if !self.backlog.is_empty() {
            // The bell took the last place.
            return self.submit(reaped);
        }
        let (until, flags) = match self.instant_waits {
            true => (timespec(at), EnterFlags::ABS_TIMER),
            false => {
                let left = at.since(monotonic::now()).min(LONGEST_WAIT);
                (timespec(MonoNs(left.0)), EnterFlags::empty())
            }
        };
        self.stats.enters += 1;
        let args = types::SubmitArgs::new().timespec(&until);
        let entered = self.uring.submitter().submit_with_args_and_flags(1, &args, flags);
        match entered {
            Ok(_) => Ok(()),
            // The time has come, or a signal.
            Err(error)
                if [Some(Errno::TIME), Some(Errno::INTR)]
                    .contains(&Errno::from_io_error(&error)) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The operation that a notification completes.
    fn bell(&self) -> squeue::Entry {
        /// FUTEX2_SIZE_U32 | FUTEX2_PRIVATE.
        const PRIVATE_U32: u32 = 2 | 128;
        let entry = match &self.unparker.bell {
            Bell::Futex => opcode::FutexWait::new(
                self.unparker.word().as_ptr().cast_const(),
                u64::from(crate::host::std_idle::state::ASLEEP),
                u64::from(u32::MAX),
                PRIVATE_U32,
            )
            .build(),
            Bell::Event(counter) => {
                use rustix::fd::AsRawFd;
                let readable = u32::from(rustix::event::PollFlags::IN.bits());
                opcode::PollAdd::new(types::Fd(counter.as_raw_fd()), readable).build()
            }
        };
        entry.user_data(BELL)
    }

    /// Takes the completions that are there.
    fn reap(&mut self, reaped: &mut Reaped) {
        for completion in self.uring.completion() {
            match completion.user_data() {
                BELL => {
                    self.armed = false;
                    self.unparker.reset();
                }
                // Whatever came of it: the operation's own completion counts.
                CANCEL => {}
                number => {
                    self.stats.completed += 1;
                    match self.slots.settle(Key::of(number), completion.result()) {
                        Settled::Wake(waker) => {
                            reaped.wakers.push(waker);
                            reaped.ended = true;
                        }
                        Settled::Finish(orphan, result) => reaped.orphans.push((orphan, result)),
                        Settled::Nobody => {}
                    }
                }
            }
        }
    }
}

impl Drop for Ring {
    /// Every future holds the ring, so what is left are orphans, whose cancellations are queued.
    /// Waits for their ends, 100 ms at the most; what has not ended then (a read of a file on a dead
    /// network share cannot be cancelled) is leaked and counted: closing the ring does not wait for
    /// it, and the kernel may write to it later.
    fn drop(&mut self) {
        let end = monotonic::now().after(CLOSE_BOUND);
        while self.has_io() {
            // Without the bell: nobody declared the thread asleep, and it would ring at once.
            let reaped = self.wait_for_any(end, false);
            self.finish(reaped);
            if monotonic::now() >= end {
                break;
            }
        }
        let inner = self.inner.get_mut();
        inner.backlog.clear();
        for orphan in inner.slots.take_orphans() {
            LEAKED.fetch_add(1, Ordering::Relaxed);
            core::mem::forget(orphan);
        }
    }
}
