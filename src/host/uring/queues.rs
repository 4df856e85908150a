//! The two queues that are shared with the kernel, and entering it.

use super::refusal::UringRefusal;
use super::request::timespec;
use super::setup::BeforeEnter;
use crate::core::time::{DurNs, MonoNs};
use crate::monotonic;
use alloc::{boxed::Box, vec::Vec};
use core::fmt;
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue, types};
use rustix::io::Errno;
use std::io;

/// The longest single wait where the kernel is told a time rather than an instant.
const LONGEST_WAIT: DurNs = DurNs::from_ms(86_400_000);

/// What an entry of the kernel came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    /// It submitted and waited, as far as there was something to wait for: a completion, the time, or
    /// a signal.
    Went,
    /// Not now: it is short of memory, has completions that must be taken first, or took nothing.
    Busy,
    /// Never again.
    Lost,
}

/// The queues.
pub(super) struct Queues {
    uring: IoUring,
    /// One place for each entry of the submission queue: the kernel reads it at submission, and the
    /// entry's place is used again only after that.
    timespecs: Box<[types::Timespec]>,
    /// The numbers of the entries, in the same places.
    numbers: Box<[u64]>,
    pushed: usize,
    instant_waits: bool,
    before: Option<BeforeEnter>,
    enters: u64,
}

impl Queues {
    pub(super) fn new(uring: IoUring, instant_waits: bool, before: Option<BeforeEnter>) -> Self {
        let places = uring.params().sq_entries() as usize;
        let timespecs = (0..places).map(|_| types::Timespec::new()).collect();
        let numbers = alloc::vec![0; places].into();
        Queues { uring, timespecs, numbers, pushed: 0, instant_waits, before, enters: 0 }
    }

    /// How many entries the submission queue has room for.
    pub(super) fn places(&self) -> usize {
        self.timespecs.len()
    }

    /// How many entries the kernel has not taken yet.
    pub(super) fn queued(&mut self) -> usize {
        self.uring.submission().len()
    }

    /// The numbers of these entries. The kernel moves the head of the queue past what it takes
    /// (`io_commit_sqring` in io_uring/io_uring.c), so that it never took these.
    pub(super) fn numbers_queued(&mut self) -> Vec<u64> {
        let queued = self.queued();
        let places = self.pushed.wrapping_sub(queued)..self.pushed;
        places.map(|pushed| self.numbers[pushed % self.numbers.len()]).collect()
    }

    pub(super) fn is_full(&mut self) -> bool {
        self.uring.submission().is_full()
    }

    /// A timer whose instant stands in the place that belongs to the next entry.
    pub(super) fn timeout(&mut self, at: MonoNs) -> squeue::Entry {
        let place = self.pushed % self.timespecs.len();
        self.timespecs[place] = timespec(at);
        opcode::Timeout::new(&raw const self.timespecs[place])
            .flags(types::TimeoutFlags::ABS)
            .build()
    }

    /// Pushes an entry. Returns `false`, and has changed nothing, if there is no room.
    #[must_use]
    pub(super) fn push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: whatever the entry refers to is valid until its operation has ended:
        // * The memory and the descriptor of an operation belong to its data, `unsafe trait
        //   Operation` answers for their stability, and the data lives until the completion is
        //   reaped, or until `Release` proves that the kernel has let go of all of a lost ring: in
        //   its future, which gives it up only with the result; or, where that is dropped, as an
        //   orphan in `slots`, or leaked. A future that is forgotten drops nothing.
        // * The instant of a timer is read while the entry is submitted (IORING_FEAT_SUBMIT_STABLE,
        //   which `setup` demands). Its place is written again only for the entry that takes the
        //   same place of the queue, hence after that. A lost ring is never entered again, so its
        //   entries are not read after these places are gone.
        // * The bell's word lives in `unparker`, which the ring holds. The kernel reads it while it
        //   arms, and then queues a waiter that is keyed by its address. `Inner` dequeues that waiter
        //   before it gives the word up. The bell's counter is kept open likewise.
        let pushed = unsafe { self.uring.submission().push(entry) }.is_ok();
        if pushed {
            self.numbers[self.pushed % self.numbers.len()] = entry.get_user_data();
            self.pushed = self.pushed.wrapping_add(1);
        }
        pushed
    }

    /// Whether entering the kernel would bring anything on.
    pub(super) fn wants_enter(&mut self) -> bool {
        let queue = self.uring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    /// The ring's descriptor, once more.
    #[cfg(all(test, not(loom)))]
    pub(super) fn duplicate(&self) -> rustix::fd::OwnedFd {
        use rustix::fd::{AsRawFd, BorrowedFd};
        // SAFETY: the descriptor is open as long as `uring` is, which is borrowed.
        let fd = unsafe { BorrowedFd::borrow_raw(self.uring.as_raw_fd()) };
        rustix::io::dup(fd).unwrap()
    }

    /// The completions that are there.
    pub(super) fn completions(&mut self) -> cqueue::CompletionQueue<'_> {
        self.uring.completion()
    }

    /// Enters the kernel: submits what is queued, and lets it hand over completions. With `until`, waits
    /// for one until then.
    ///
    /// # Errors
    ///
    /// Why this ring is lost: what neither waiting a little nor taking completions remedies.
    /// `io_uring_enter(2)`, ERRORS: EAGAIN and EBUSY pass, EINTR and ETIME are ends of a wait, and the
    /// rest stays (EPERM and ENOSYS are a filter's). EBADR says that completions were dropped for want
    /// of memory, nobody knows whose (`IO_CHECK_CQ_DROPPED_BIT` in io_uring/io_uring.c): then too only
    /// the ring's end tells of an operation whether the kernel has let go of it.
    pub(super) fn enter(&mut self, until: Option<MonoNs>) -> Result<Entry, UringRefusal> {
        self.enters += 1;
        let allowed = self.before.as_mut().map_or(Ok(()), |before| before(self.enters));
        let entered = allowed.and_then(|()| match until {
            None => self.uring.submit(),
            Some(at) => self.submit_and_wait(at),
        });
        let Err(error) = entered else { return Ok(Entry::Went) };
        match Errno::from_io_error(&error) {
            Some(Errno::TIME | Errno::INTR) => Ok(Entry::Went),
            Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) => Ok(Entry::Busy),
            // The sysctl forbids new rings only, so it is not the reason.
            _ => Err(UringRefusal::of("io_uring_enter", &error, None)),
        }
    }

    fn submit_and_wait(&self, at: MonoNs) -> io::Result<usize> {
        let (until, flags) = match self.instant_waits {
            true => (timespec(at), EnterFlags::ABS_TIMER),
            false => {
                let left = at.since(monotonic::now()).min(LONGEST_WAIT);
                (timespec(MonoNs(left.0)), EnterFlags::empty())
            }
        };
        let args = types::SubmitArgs::new().timespec(&until);
        self.uring.submitter().submit_with_args_and_flags(1, &args, flags)
    }
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queues").field("enters", &self.enters).finish_non_exhaustive()
    }
}
