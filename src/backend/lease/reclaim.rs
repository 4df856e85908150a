//! Where a buffer waits for its device after its lease was dropped.

/// What became of leased buffers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LeaseStats {
    /// Buffers that a device may be using: in a lease, or waiting to be reclaimed.
    pub leased: usize,
    /// Of these, the ones whose lease was dropped early.
    pub waiting: usize,
    /// Buffers leaked for good: behind a fault, nobody can tell whether the device is done.
    pub leaked: usize,
}

/// The reclaim list of one stream.
#[derive(Default, Debug)]
pub struct Reclaim {}
