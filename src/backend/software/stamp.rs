//! When stores landed, by the device's own clock.

use crate::core::time::MonoNs;
use alloc::collections::VecDeque;

/// How many of its latest stamps a stream keeps.
pub const STAMPS_KEPT: usize = 1024;

/// The latest stamps of a stream, by number. At most 16 KiB.
#[derive(Default)]
pub(super) struct Stamps(VecDeque<(u64, MonoNs)>);

impl Stamps {
    /// Makes room for one more, so that nothing is left to do between the stamp and the store.
    pub(super) fn make_room(&mut self) {
        if self.0.len() == STAMPS_KEPT {
            self.0.pop_front();
        }
        self.0.reserve(1);
    }

    /// Keeps the stamp of `number`. A late store comes after those of larger numbers.
    pub(super) fn keep(&mut self, number: u64, at: MonoNs) {
        let place = self.0.partition_point(|&(kept, _)| kept < number);
        self.0.insert(place, (number, at));
    }

    pub(super) fn of(&self, number: u64) -> Option<MonoNs> {
        let place = self.0.binary_search_by_key(&number, |&(kept, _)| kept).ok()?;
        Some(self.0[place].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_stamps_are_kept_and_a_late_one_finds_its_place() {
        let mut stamps = Stamps::default();
        for number in (1..=STAMPS_KEPT as u64 + 1).filter(|&number| number != 500) {
            stamps.make_room();
            stamps.keep(number, MonoNs(number * 10));
        }
        stamps.make_room();
        stamps.keep(500, MonoNs(99));
        assert_eq!(stamps.of(500), Some(MonoNs(99)));
        assert_eq!(stamps.of(501), Some(MonoNs(5010)));
        assert_eq!(stamps.of(1), None, "dropped for a later one");
        assert_eq!(stamps.of(9999), None);
    }
}
