//! Learning that the kernel has let go of all operations of a ring that was closed.
//!
//! Closing a ring does not wait for its operations: the kernel cancels them afterwards, on a thread of
//! its own (`io_ring_exit_work` in io_uring/io_uring.c), and posts no completion that this process
//! could still read. Until then it may write to their buffers.
//!
//! So the ring has the write end of a pipe as its only registered file, and nothing else keeps that
//! end open. The kernel gives a registered file up in `io_ring_ctx_free`, which `io_ring_exit_work`
//! calls once the last request has dropped its reference to the ring. End of file at the read end is
//! therefore the proof. A child that was forked keeps the ring open and delays it.
//!
//! It costs a pipe and one more system call at the set-up, and a descriptor for as long as the ring
//! lives. Nothing reads the pipe while the ring is served.

use crate::core::time::MonoNs;
use crate::monotonic;
use io_uring::IoUring;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::time::Timespec;
use std::io;

/// The read end.
#[derive(Debug)]
pub(super) struct Release(OwnedFd);

impl Release {
    /// Ties a new pipe to `uring`, which has no registered files yet.
    pub(super) fn of(uring: &IoUring) -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        uring.submitter().register_files(&[writer.as_raw_fd()])?;
        Ok(Release(reader))
    }

    /// Returns `true` if the ring was closed and the kernel holds none of its operations any more.
    pub(super) fn has_come(&self) -> bool {
        matches!(rustix::io::read(&self.0, &mut [0; 1]), Ok(0))
    }

    /// Blocks until that, or until `at`, or less.
    pub(super) fn wait(&self, at: MonoNs) {
        let left = at.since(monotonic::now()).0;
        let left =
            Timespec { tv_sec: (left / 1_000_000_000) as _, tv_nsec: (left % 1_000_000_000) as _ };
        // The caller checks; a signal or an error is a shorter wait.
        let _ = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&left));
    }
}
