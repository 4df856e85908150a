//! What is handed to the ring's submission queue.

use super::slots::Key;
use crate::core::time::MonoNs;
use io_uring::{opcode, squeue, types};

/// An operation, ready for the kernel but for its number.
pub enum Request {
    /// An entry whose memory and descriptors its operation owns.
    Entry(squeue::Entry),
    /// A timer. The instant is copied to a place that the kernel reads at submission.
    Timeout(MonoNs),
}

/// What waits for a place in the submission queue.
pub(super) enum Queued {
    Start(Key, Request),
    Cancel(Key),
}

/// The `user_data` of the ring's own operations. No key is one of these.
pub(super) const BELL: u64 = u64::MAX;
pub(super) const CANCEL: u64 = u64::MAX - 1;

/// `at` on `CLOCK_MONOTONIC`, as the kernel reads it.
pub(super) fn timespec(at: MonoNs) -> types::Timespec {
    // The remainder is below 10^9.
    types::Timespec::new().sec(at.0 / 1_000_000_000).nsec((at.0 % 1_000_000_000) as u32)
}

/// The entry that cancels the operation `key`.
pub(super) fn cancel(key: Key) -> squeue::Entry {
    opcode::AsyncCancel::new(key.user_data()).build().user_data(CANCEL)
}
