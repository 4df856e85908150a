//! How often a driver was asked through a stream.

use core::sync::atomic::{AtomicU64, Ordering};

/// How often a driver was asked through one stream. Each is a few driver calls: the context and the capture
/// mode are changed and put back around it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StreamCalls {
    /// Status queries, of everything or of a mark that was not known to be done.
    pub queries: u64,
    /// Marks, each a batch of stores and an event.
    pub marks: u64,
    /// Blocking waits.
    pub synchronizes: u64,
}

impl StreamCalls {
    /// All of them.
    #[must_use]
    pub fn total(self) -> u64 {
        self.queries + self.marks + self.synchronizes
    }
}

/// Relaxed: a count orders nothing.
#[derive(Default)]
pub(super) struct CallCounter {
    pub(super) queries: AtomicU64,
    pub(super) marks: AtomicU64,
    pub(super) synchronizes: AtomicU64,
}

pub(super) fn count(calls: &AtomicU64) {
    calls.fetch_add(1, Ordering::Relaxed);
}
