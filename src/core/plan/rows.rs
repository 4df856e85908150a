//! The row count of the present step, which chooses the band of a wait.

use core::sync::atomic::{AtomicU64, Ordering};

/// The row count of the present step, published by who sets the batch and read by who waits.
///
/// # Memory ordering
///
/// Relaxed: the count chooses a plan and publishes no other memory. A reader on another thread may
/// still see the count of a step before and then waits by that step's plan, which costs time and is
/// never wrong. A reader on the thread that set it sees it.
#[derive(Default, Debug)]
pub struct StepRows(AtomicU64);

impl StepRows {
    /// Zero rows: the first band, until a step says otherwise.
    #[must_use]
    pub const fn new() -> Self {
        StepRows(AtomicU64::new(0))
    }

    /// Publishes that the present step has `rows` rows.
    pub fn set(&self, rows: u64) {
        self.0.store(rows, Ordering::Relaxed);
    }

    /// The row count published last.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_count_starts_in_the_first_band_and_is_the_one_set_last() {
        static ROWS: StepRows = StepRows::new();
        assert_eq!(ROWS.get(), 0);
        ROWS.set(3);
        ROWS.set(512);
        assert_eq!(ROWS.get(), 512);
    }
}
