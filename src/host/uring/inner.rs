//! What stands in the ring's cell: the backlog, the operations in the kernel, and the walks from one to
//! the other and back.
//!
//! ```text
//!  backlog --fill--> submission queue --submit, wait--> kernel --reap--> wakers, orphans
//!     |                      \-----------------------------/
//!     |  lose: refused at once              |  lose, then release: lost
//!     v                                     v
//!  wakers                             wakers, orphans
//! ```

use super::ended::Ended;
use super::queues::{Entry, Queues};
use super::refusal::UringRefusal;
use super::release::Release;
use super::request::{BELL, CANCEL, Queued, Request, cancel};
use super::ring::{Reaped, UringStats};
use super::slots::{Key, Slots};
use super::unparker::{Bell, Unparker};
use crate::core::time::MonoNs;
use alloc::{collections::VecDeque, sync::Arc};
use io_uring::{opcode, squeue, types};

pub(super) struct Inner {
    /// Or why the ring was lost. It is closed then, and never entered again.
    queues: Result<Queues, UringRefusal>,
    pub(super) slots: Slots,
    backlog: VecDeque<Queued>,
    unparker: Arc<Unparker>,
    /// The bell is in the submission queue, in the kernel, or its completion is not reaped yet.
    armed: bool,
    release: Release,
    pub(super) stats: UringStats,
}

impl Inner {
    pub(super) fn new(queues: Queues, release: Release, unparker: &Arc<Unparker>) -> Self {
        Inner {
            queues: Ok(queues),
            slots: Slots::default(),
            backlog: VecDeque::new(),
            unparker: unparker.clone(),
            armed: false,
            release,
            stats: UringStats::default(),
        }
    }

    /// Why the ring was lost, if it was.
    pub(super) fn lost(&self) -> Option<UringRefusal> {
        self.queues.as_ref().err().copied()
    }

    /// Whether anything is queued, in flight, or not collected.
    #[inline]
    pub(super) fn has_io(&self) -> bool {
        self.slots.in_use() != 0 || !self.backlog.is_empty()
    }

    /// Queues an operation, or a cancellation.
    pub(super) fn queue(&mut self, queued: Queued, reaped: &mut Reaped) {
        let Ok(queues) = &self.queues else { return };
        let half = queues.places() / 2;
        self.backlog.push_back(queued);
        if self.backlog.len() >= half {
            // What could not be submitted stays queued, and is tried again when the thread idles.
            self.submit(reaped);
        }
    }

    /// Enters the kernel without waiting, if that would bring anything on. Returns whether it did.
    pub(super) fn enter_if_wanted(&mut self, reaped: &mut Reaped) -> bool {
        let wanted = match &mut self.queues {
            Ok(queues) => !self.backlog.is_empty() || queues.wants_enter(),
            Err(_) => return self.look_for_release(reaped),
        };
        if wanted {
            // What could not be submitted stays queued.
            self.submit(reaped);
        }
        wanted
    }

    /// Moves the backlog into the submission queue, as far as there is room.
    fn fill(&mut self) {
        let Ok(queues) = &mut self.queues else { return };
        while !queues.is_full() {
            let entry = match self.backlog.pop_front() {
                Some(Queued::Start(key, request)) => {
                    if !self.slots.take_up(key) {
                        continue;
                    }
                    self.stats.submitted += 1;
                    match request {
                        Request::Entry(entry) => entry.user_data(key.user_data()),
                        Request::Timeout(at) => queues.timeout(at).user_data(key.user_data()),
                    }
                }
                Some(Queued::Cancel(key)) => cancel(key),
                None => return,
            };
            let pushed = queues.push(&entry);
            debug_assert!(pushed, "there was room, and nobody else pushes");
        }
    }

    /// Hands to the kernel all that is queued, without waiting, and lets it hand over completions.
    fn submit(&mut self, reaped: &mut Reaped) -> Entry {
        loop {
            self.fill();
            let queued = self.queued();
            let entry = self.enter(None, reaped);
            if entry != Entry::Went {
                return entry;
            }
            let left = self.queued();
            if self.backlog.is_empty() && left == 0 {
                return Entry::Went;
            }
            if left == queued {
                return Entry::Busy;
            }
        }
    }

    fn queued(&mut self) -> usize {
        self.queues.as_mut().map_or(0, Queues::queued)
    }

    /// Submits, and waits for one completion until `at`.
    pub(super) fn wait(&mut self, at: MonoNs, bell_too: bool, reaped: &mut Reaped) -> Entry {
        let Ok(queues) = &mut self.queues else { return Entry::Lost };
        if self.backlog.len() >= queues.places() || queues.is_full() {
            let entry = self.submit(reaped);
            if entry != Entry::Went {
                return entry;
            }
        }
        let Ok(queues) = &mut self.queues else { return Entry::Lost };
        if bell_too && !self.armed {
            if !queues.push(&bell(&self.unparker)) {
                return Entry::Busy;
            }
            self.armed = true;
        }
        self.fill();
        if !self.backlog.is_empty() {
            // The bell took the last place.
            return self.submit(reaped);
        }
        self.enter(Some(at), reaped)
    }

    /// Enters the kernel. A ring that it refuses for good is lost.
    fn enter(&mut self, until: Option<MonoNs>, reaped: &mut Reaped) -> Entry {
        let Ok(queues) = &mut self.queues else { return Entry::Lost };
        self.stats.enters += 1;
        match queues.enter(until) {
            Ok(entry) => entry,
            Err(why) => {
                self.lose(why, reaped);
                Entry::Lost
            }
        }
    }

    /// Gives the ring up. What the kernel never had ends now; what it has ends once it has let go of
    /// it, which [`look_for_release`](Self::look_for_release) learns.
    fn lose(&mut self, why: UringRefusal, reaped: &mut Reaped) {
        self.reap(reaped);
        let queued = self.queues.as_mut().map(Queues::numbers_queued).unwrap_or_default();
        // Closed, so that the kernel cancels what it has, and takes no more from the queue.
        self.queues = Err(why);
        for number in queued.into_iter().filter(|number| ![BELL, CANCEL].contains(number)) {
            reaped.take(self.slots.settle(Key::of(number), Ended::Refused(why)));
        }
        self.unparker.leave_the_ring();
        self.dismiss_bell();
        for queued in self.backlog.drain(..) {
            if let Queued::Start(key, _) = queued {
                reaped.take(self.slots.settle(key, Ended::Refused(why)));
            }
        }
        self.look_for_release(reaped);
    }

    /// After the ring was lost: ends what the kernel had, if it has let go of it. Returns whether
    /// anything ended.
    fn look_for_release(&mut self, reaped: &mut Reaped) -> bool {
        let Err(why) = self.queues else { return false };
        let held = self.slots.in_kernel();
        if held.is_empty() || !self.release.has_come() {
            return false;
        }
        for key in held {
            reaped.take(self.slots.settle(key, Ended::Lost(why)));
        }
        true
    }

    /// Whether operations of a lost ring are with the kernel still.
    pub(super) fn awaits_release(&self) -> bool {
        self.queues.is_err() && !self.slots.in_kernel().is_empty()
    }

    /// Waits for the kernel to let go of the operations of a lost ring, until `at`, or less.
    pub(super) fn wait_for_release(&mut self, at: MonoNs, reaped: &mut Reaped) {
        self.release.wait(at);
        self.look_for_release(reaped);
    }

    /// Takes the bell's waiter off the word: the memory is somebody else's soon, and the kernel gives
    /// a ring up later than its descriptor is closed. A futex is keyed by its address, and a wake
    /// goes to the oldest waiter: until then this one would take the wakes of another futex at the
    /// same address.
    ///
    /// The waiter is off the word when the wake returns: `io_futex_wake_fn` in io_uring/futex.c (Linux
    /// 6.7) takes it off the kernel's queue within `FUTEX_WAKE`. The bell's own completion is not
    /// waited for. The event counter is a file that the kernel holds, and no address.
    fn dismiss_bell(&mut self) {
        if self.armed {
            self.unparker.dequeue_bell();
            self.armed = false;
        }
    }

    /// Takes the completions that are there.
    pub(super) fn reap(&mut self, reaped: &mut Reaped) {
        let Ok(queues) = &mut self.queues else { return };
        for completion in queues.completions() {
            match completion.user_data() {
                BELL => {
                    self.armed = false;
                    self.unparker.reset();
                }
                // Whatever came of it: the operation's own completion counts.
                CANCEL => {}
                number => {
                    self.stats.completed += 1;
                    let ended = Ended::Kernel(completion.result());
                    reaped.take(self.slots.settle(Key::of(number), ended));
                }
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.dismiss_bell();
    }
}

/// The operation that a notification completes.
fn bell(unparker: &Unparker) -> squeue::Entry {
    /// FUTEX2_SIZE_U32 | FUTEX2_PRIVATE.
    const PRIVATE_U32: u32 = 2 | 128;
    let entry = match unparker.bell() {
        Bell::Futex => opcode::FutexWait::new(
            unparker.word().as_ptr().cast_const(),
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

#[cfg(all(test, not(loom)))]
mod tests;
