//! How much before its time a task is woken, and what may be spun away because it is.
//!
//! Two wakes of the kernel lie between the timer's thread and the task, and how long they take
//! depends on the machine, so the lead is learned from how late the last tasks were. What it may
//! cost is no matter of the lead: a task that is to spin takes the time out of one budget first,
//! and sleeps by the board, without a lead, if there is not enough left.

use crate::core::time::{DurNs, MonoNs};
use crate::host::budget::{Share, SharedBudget};
use core::sync::atomic::{AtomicU64, Ordering};

/// Moves by a quarter of what the last task was late, and by a sixty-fourth of what it was early:
/// one that is early spins a little, one that is late is late. It settles where few are late, and
/// those by little.
///
/// Any thread reads and moves it, relaxed and without a read-modify-write: a move that is lost is
/// made up by the next.
#[derive(Debug)]
pub(super) struct Lead {
    ns: AtomicU64,
    /// By how much the last tasks were woken early: the lead, or 0 if that could not be afforded.
    last_ns: AtomicU64,
    longest: DurNs,
    budget: SharedBudget,
    /// Everything taken out of the budget so far, in ns.
    spun: AtomicU64,
}

/// What it begins with: two wakes of a machine that is not asleep deeply.
const FIRST: DurNs = DurNs::from_us(30);

/// A little less than the quarter of a core that is promised, and a burst of some twenty leads.
const SHARE: Share = Share::new(240, DurNs::from_ms(1));

impl Lead {
    pub(super) fn new(longest: DurNs) -> Self {
        Lead {
            ns: AtomicU64::new(FIRST.min(longest).0),
            last_ns: AtomicU64::new(0),
            longest,
            budget: SharedBudget::new(SHARE),
            spun: AtomicU64::new(0),
        }
    }

    /// The lead, whether or not it can be afforded.
    pub(super) fn get(&self) -> DurNs {
        DurNs(self.ns.load(Ordering::Relaxed))
    }

    /// The lead with which tasks are woken at `now`: none if one of them could not spin it away.
    pub(super) fn affordable(&self, now: MonoNs) -> DurNs {
        let lead = self.get();
        let lead = if self.budget.left(now) >= lead { lead } else { DurNs::ZERO };
        self.last_ns.store(lead.0, Ordering::Relaxed);
        lead
    }

    /// Whether a task may spin for `left`, from `now` on. If so, it is taken out of the budget.
    #[must_use]
    pub(super) fn take(&self, now: MonoNs, left: DurNs) -> bool {
        let taken = left <= self.get() && self.budget.take(now, left);
        if taken {
            self.spun.fetch_add(left.0, Ordering::Relaxed);
        }
        taken
    }

    /// Everything that tasks took to spin.
    pub(super) fn spun(&self) -> DurNs {
        DurNs(self.spun.load(Ordering::Relaxed))
    }

    /// A task that slept until `at` was resumed at `now`.
    pub(super) fn observe(&self, at: MonoNs, now: MonoNs) {
        let lead = self.get();
        // What the lead should have been, whichever it was woken by.
        let woken = MonoNs(at.0.saturating_sub(self.last_ns.load(Ordering::Relaxed)));
        let took = now.since(woken);
        // A runtime that was busy for long says nothing about wakes: no step is longer than this.
        let late = took.0.saturating_sub(lead.0).min(self.longest.0);
        let early = lead.0.saturating_sub(took.0);
        let moved = lead.0.saturating_add(late / 4).saturating_sub(early / 64);
        self.ns.store(moved.min(self.longest.0), Ordering::Relaxed);
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
            let woken = MonoNs(at.0 - lead.affordable(MonoNs(0)).0);
            lead.observe(at, woken.after(DurNs::from_us(60)));
        }
        let settled = lead.get().0;
        assert!((59_000..62_000).contains(&settled), "{settled}");
        (0..50).for_each(|_| lead.observe(MonoNs(0), MonoNs(5_000_000)));
        assert_eq!(lead.get(), DurNs::from_us(100));
        let never = Lead::new(DurNs::ZERO);
        never.observe(MonoNs(0), MonoNs(5_000_000));
        assert_eq!(never.get(), DurNs::ZERO);
        assert!(!never.take(MonoNs(0), DurNs(1)), "without a lead nobody spins");
    }

    #[test]
    fn what_is_woken_without_a_lead_teaches_the_same_lead() {
        let lead = Lead::new(DurNs::from_us(100));
        while lead.take(MonoNs(0), DurNs::from_us(20)) {}
        while lead.take(MonoNs(0), DurNs(1)) {}
        for _ in 0..200 {
            assert_eq!(lead.affordable(MonoNs(0)), DurNs::ZERO);
            lead.observe(MonoNs(1_000_000), MonoNs(1_060_000));
        }
        let settled = lead.get().0;
        assert!((59_000..62_000).contains(&settled), "{settled}");
    }

    #[test]
    fn sleeps_of_any_length_back_to_back_spin_less_than_a_quarter_of_the_time() {
        for us in [1, 20, 28, 30] {
            let lead = Lead::new(DurNs::from_us(100));
            let (mut now, second) = (MonoNs(1_000_000_000), 1_000_000_000);
            while now.0 < 2 * second {
                let _ = lead.take(now, DurNs::from_us(us));
                now = now.after(DurNs::from_us(us));
            }
            // Its burst beside it.
            assert!(lead.spun() <= DurNs(second / 4), "{us} us: {} of a second", lead.spun());
            assert!(lead.spun() >= DurNs(second / 5), "{us} us: {} of a second", lead.spun());
        }
    }

    #[test]
    fn rare_sleeps_have_the_whole_lead_and_a_budget_that_is_used_up_leaves_none() {
        let lead = Lead::new(DurNs::from_us(100));
        let mut now = MonoNs(1_000_000_000);
        for _ in 0..1_000 {
            assert_eq!(lead.affordable(now), FIRST);
            assert!(lead.take(now, FIRST));
            now = now.after(DurNs::from_us(200));
        }
        while lead.take(now, FIRST) {}
        assert_eq!(lead.affordable(now), DurNs::ZERO);
        assert_eq!(lead.affordable(now.after(DurNs::from_ms(5))), FIRST);
    }
}
