//! Time that may be spun away, as a share of the time that passes.
//!
//! A token bucket, kept as one instant: when everything spent so far will have been earned.
//! Spending moves it on, time catches up with it. It is full once it lies in the past, so a budget
//! that nobody uses costs nothing, and one that several threads share is one atomic word.

use crate::core::time::{DurNs, MonoNs};
use core::sync::atomic::{AtomicU64, Ordering};

/// All of a core: no limit.
pub(super) const WHOLE: u16 = 1_000;

/// How much of the time may be spent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Share {
    permille: u16,
    /// What may be spent at once after a long time of spending nothing.
    burst: DurNs,
}

impl Share {
    /// `permille` of the time, all of it from 1,000 on, and `burst` beyond that.
    pub(super) const fn new(permille: u16, burst: DurNs) -> Self {
        Share { permille, burst }
    }

    pub(super) fn is_unlimited(self) -> bool {
        self.permille >= WHOLE
    }

    /// What is left at `now`.
    fn left(self, earned_at: MonoNs, now: MonoNs) -> DurNs {
        if self.is_unlimited() {
            return DurNs::MAX;
        }
        if self.permille == 0 {
            return DurNs::ZERO;
        }
        let debt = earned_at.since(now).0 / u64::from(WHOLE) * u64::from(self.permille);
        DurNs(self.burst.0.saturating_sub(debt))
    }

    /// When everything is earned after `spent` more.
    fn spend(self, earned_at: MonoNs, now: MonoNs, spent: DurNs) -> MonoNs {
        let permille = u64::from(self.permille).max(1);
        let time = spent.0.saturating_mul(u64::from(WHOLE)) / permille;
        earned_at.max(now).after(DurNs(time))
    }
}

/// A budget of one thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    share: Share,
    earned_at: MonoNs,
}

impl Budget {
    /// A full one.
    pub(super) const fn new(share: Share) -> Self {
        Budget { share, earned_at: MonoNs(0) }
    }

    pub(super) fn is_unlimited(&self) -> bool {
        self.share.is_unlimited()
    }

    /// Whether anything is left at `now`.
    #[inline]
    pub(super) fn has_any(&self, now: MonoNs) -> bool {
        self.share.left(self.earned_at, now) > DurNs::ZERO
    }

    /// `spent` was spent by `now`. More than was left is owed, but no more than the burst once
    /// again: a thread that the system stopped in the middle has spent less than the clock says.
    pub(super) fn spend(&mut self, now: MonoNs, spent: DurNs) {
        let most = DurNs(self.share.burst.0.saturating_mul(2));
        let most = self.share.spend(MonoNs(0), now, most);
        self.earned_at = self.share.spend(self.earned_at, now, spent).min(most);
    }
}

/// A budget of any number of threads.
#[derive(Debug)]
pub(super) struct SharedBudget {
    share: Share,
    earned_at: AtomicU64,
}

impl SharedBudget {
    /// A full one.
    pub(super) const fn new(share: Share) -> Self {
        SharedBudget { share, earned_at: AtomicU64::new(0) }
    }

    /// What is left at `now`.
    pub(super) fn left(&self, now: MonoNs) -> DurNs {
        self.share.left(MonoNs(self.earned_at.load(Ordering::Relaxed)), now)
    }

    /// Takes `amount` before it is spent. `false` if less is left; then nothing is taken.
    #[must_use]
    pub(super) fn take(&self, now: MonoNs, amount: DurNs) -> bool {
        // Relaxed: the word orders nothing but itself.
        let taken =
            self.earned_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |earned_at| {
                let earned_at = MonoNs(earned_at);
                let enough = self.share.left(earned_at, now) >= amount;
                enough.then(|| self.share.spend(earned_at, now, amount).0)
            });
        taken.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTH: Share = Share::new(100, DurNs::from_ms(10));

    #[test]
    fn a_budget_gives_its_burst_at_once_and_its_share_after_that() {
        let mut budget = Budget::new(TENTH);
        let mut spent = DurNs::ZERO;
        let second = MonoNs(1_000_000_000);
        let mut now = second;
        while now < MonoNs(11 * second.0) {
            let step = DurNs::from_us(10);
            now = now.after(step);
            if budget.has_any(now) {
                budget.spend(now, step);
                spent = DurNs(spent.0 + step.0);
            }
        }
        // 10 s at a tenth, and the burst.
        assert!((1_009_900_000..1_010_100_000).contains(&spent.0), "{spent}");
    }

    #[test]
    fn what_is_owed_is_bounded_and_rare_spending_is_always_affordable() {
        let mut budget = Budget::new(TENTH);
        let now = MonoNs(5_000_000_000);
        budget.spend(now, DurNs::MAX);
        assert!(!budget.has_any(now.after(DurNs::from_ms(100))));
        assert!(budget.has_any(now.after(DurNs::from_ms(101))));
        let mut now = now.after(DurNs::from_ms(1_000));
        for _ in 0..1_000 {
            assert!(budget.has_any(now));
            budget.spend(now, DurNs::from_ms(1));
            now = now.after(DurNs::from_ms(10));
        }
    }

    #[test]
    fn all_of_a_core_is_no_limit_and_none_of_it_is_never_spent() {
        let mut whole = Budget::new(Share::new(1_000, DurNs::ZERO));
        whole.spend(MonoNs(0), DurNs::MAX);
        assert!(whole.is_unlimited() && whole.has_any(MonoNs(0)));
        assert!(!Budget::new(Share::new(0, DurNs::MAX)).has_any(MonoNs(7)));
    }

    #[test]
    fn what_several_threads_take_together_is_no_more_than_there_is() {
        let budget = SharedBudget::new(TENTH);
        let now = MonoNs(1_000_000_000);
        let taken: u64 = std::thread::scope(|scope| {
            let take = || (0..1_000).filter(|_| budget.take(now, DurNs::from_us(7))).count() as u64;
            let threads: alloc::vec::Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 10_000 / 7);
        assert!(budget.left(now) < DurNs::from_us(7));
        assert!(!budget.take(now, DurNs::from_us(7)));
    }
}
