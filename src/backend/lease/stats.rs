//! What became of leased buffers.

use core::sync::atomic::{AtomicUsize, Ordering};

/// What became of leased buffers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LeaseStats {
    /// Buffers that a device may be using: in a lease, or waiting to be reclaimed.
    pub leased: usize,
    /// Of these, the ones whose lease was dropped early.
    pub waiting: usize,
    /// Buffers leaked for good: behind a fault, nobody can tell whether the device is done.
    pub leaked: usize,
    /// Buffers that were reclaimed and whose destructor panicked.
    pub panicked: usize,
}

/// Counts [`LeaseStats`] for all streams of one device, which share it.
///
/// Relaxed: a count orders nothing. Read while threads come and go, the counts may be of slightly
/// different times.
#[derive(Default, Debug)]
pub struct LeaseCounts {
    leased: AtomicUsize,
    waiting: AtomicUsize,
    leaked: AtomicUsize,
    panicked: AtomicUsize,
}

impl LeaseCounts {
    /// The counts now: four loads.
    #[must_use]
    pub fn get(&self) -> LeaseStats {
        LeaseStats {
            leased: self.leased.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
            leaked: self.leaked.load(Ordering::Relaxed),
            panicked: self.panicked.load(Ordering::Relaxed),
        }
    }

    pub(super) fn leased(&self) {
        self.leased.fetch_add(1, Ordering::Relaxed);
    }

    /// A leased buffer is back, or waits no more and was dropped.
    pub(super) fn returned(&self) {
        self.leased.fetch_sub(1, Ordering::Relaxed);
    }

    /// Called before a leased buffer can be found in the list.
    pub(super) fn waits(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn waits_no_more(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn leaked(&self) {
        self.leased.fetch_sub(1, Ordering::Relaxed);
        self.leaked.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn panicked(&self) {
        self.panicked.fetch_add(1, Ordering::Relaxed);
    }
}
