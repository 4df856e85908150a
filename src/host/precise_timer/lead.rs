//! How much before its time a task is woken: learned from how late the last ones were, and bounded by
//! what it may cost.

use crate::core::time::{DurNs, MonoNs};
use core::sync::atomic::{AtomicU64, Ordering};

/// Moves by a quarter of what the last task was late, and by a sixty-fourth of what it was early: who is
/// early spins a little, who is late is late. It settles where few are late, and those by little.
///
/// A task spins no longer than the lead, so a lead of at most a quarter of the time between two sleeps
/// keeps all spinning of a timer below a quarter of a core, however many tasks sleep by it.
///
/// Any thread reads and moves it, relaxed and without a read-modify-write: a move that is lost is made
/// up by the next.
#[derive(Debug)]
pub(super) struct Lead {
    ns: AtomicU64,
    /// A quarter of the time between two sleeps of late.
    affordable_ns: AtomicU64,
    longest: DurNs,
}

/// What it begins with: two wakes of a machine that is not asleep deeply.
const FIRST: DurNs = DurNs::from_us(30);

/// The most of a core that may be spun away: one part in this many.
const SHARE: u64 = 4;

impl Lead {
    pub(super) fn new(longest: DurNs) -> Self {
        Lead {
            ns: AtomicU64::new(FIRST.min(longest).0),
            affordable_ns: AtomicU64::new(longest.0),
            longest,
        }
    }

    pub(super) fn get(&self) -> DurNs {
        let affordable = self.affordable_ns.load(Ordering::Relaxed);
        DurNs(self.ns.load(Ordering::Relaxed).min(affordable))
    }

    /// A task that slept until `at` was resumed at `now`.
    pub(super) fn observe(&self, at: MonoNs, now: MonoNs) {
        let lead = self.ns.load(Ordering::Relaxed);
        // A runtime that was busy for long says nothing about wakes: no step is longer than this.
        let late = now.since(at).min(self.longest).0;
        let early = at.since(now).0;
        let moved = lead.saturating_add(late / 4).saturating_sub(early / 64);
        self.ns.store(moved.min(self.longest.0), Ordering::Relaxed);
    }

    /// `count` sleeps end, `elapsed` after the last that ended. Called by the timer's thread.
    pub(super) fn afford(&self, elapsed: DurNs, count: usize) {
        // More than this is enough for the longest lead; it must not hide a burst for long.
        let each = (elapsed.0 / (count as u64).max(1)).min(2 * SHARE * self.longest.0) / SHARE;
        let affordable = self.affordable_ns.load(Ordering::Relaxed);
        self.affordable_ns.store((affordable * 7 + each) / 8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lead_settles_at_what_wakes_take_and_keeps_its_bound() {
        let lead = Lead::new(DurNs::from_us(100));
        for _ in 0..200 {
            let at = MonoNs(1_000_000);
            lead.observe(at, MonoNs(at.0 - lead.get().0).after(DurNs::from_us(60)));
        }
        let settled = lead.get().0;
        assert!((59_000..62_000).contains(&settled), "{settled}");
        (0..50).for_each(|_| lead.observe(MonoNs(0), MonoNs(5_000_000)));
        assert_eq!(lead.get(), DurNs::from_us(100));
        let never = Lead::new(DurNs::ZERO);
        never.observe(MonoNs(0), MonoNs(5_000_000));
        assert_eq!(never.get(), DurNs::ZERO);
    }

    #[test]
    fn many_sleeps_a_second_afford_a_shorter_lead_and_rare_ones_the_longest() {
        let lead = Lead::new(DurNs::from_us(100));
        (0..50).for_each(|_| lead.observe(MonoNs(0), MonoNs(5_000_000)));
        (0..100).for_each(|_| lead.afford(DurNs::from_us(60), 1));
        assert!((14_900..15_100).contains(&lead.get().0), "{:?}", lead.get());
        (0..100).for_each(|_| lead.afford(DurNs::from_us(60), 10));
        assert!(lead.get() < DurNs::from_us(2));
        (0..20).for_each(|_| lead.afford(DurNs::from_ms(5), 1));
        assert_eq!(lead.get(), DurNs::from_us(100));
    }
}
