//! One estimate for each readback point.

use super::{Outcome, PointEstimate};
use crate::core::plan::DeadlinePlan;
use crate::core::time::DurNs;
use alloc::collections::BTreeMap;
use core::borrow::Borrow;

/// The estimates of many readback points, by the caller's name for each.
///
/// A point is an entry from its first observation on and is never removed: its names are call
/// sites, not requests. A look-up compares O(log n) keys; only the first observation of a point
/// allocates.
#[derive(Clone, Debug)]
pub struct PointTable<K: Ord> {
    points: BTreeMap<K, PointEstimate>,
}

impl<K: Ord> PointTable<K> {
    /// A table without points. Does not allocate.
    #[must_use]
    pub const fn new() -> Self {
        PointTable { points: BTreeMap::new() }
    }

    /// How long the next wait at `key` sleeps before it looks; see [`PointEstimate::sleep_ns`].
    /// `None` for a point that was never observed.
    #[must_use]
    pub fn sleep_ns<Q>(&self, key: &Q, plan: &DeadlinePlan) -> Option<DurNs>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.points.get(key)?.sleep_ns(plan)
    }

    /// Takes in what a wait at `key` under `plan` said; see [`PointEstimate::observe`].
    pub fn observe(&mut self, key: K, plan: &DeadlinePlan, outcome: Outcome) {
        self.points.entry(key).or_default().observe(plan, outcome);
    }

    /// How many points were observed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Whether no point was observed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Every point and its estimate, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &PointEstimate)> {
        self.points.iter()
    }
}

impl<K: Ord> Default for PointTable<K> {
    fn default() -> Self {
        PointTable::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{string::String, vec::Vec};

    #[test]
    fn points_do_not_know_of_each_other() {
        let plan =
            DeadlinePlan { margin_ns: 10, min_sleep_ns: 1, max_sleep_ns: u64::MAX, window: 4 };
        let mut table = PointTable::<String>::new();
        assert!(table.is_empty());
        table.observe("prefill".into(), &plan, Outcome::Exact { residual_ns: 500 });
        table.observe("decode".into(), &plan, Outcome::Exact { residual_ns: 100 });
        table.observe("decode".into(), &plan, Outcome::Late { woke_ns: 90 });

        assert_eq!(table.sleep_ns("prefill", &plan), Some(DurNs(490)));
        assert_eq!(table.sleep_ns("decode", &plan), Some(DurNs(35)));
        assert_eq!(table.sleep_ns("sample", &plan), None);
        assert_eq!(table.len(), 2, "asking makes no point");
        let points: Vec<_> =
            table.iter().map(|(key, point)| (key.as_str(), point.predicted_ns())).collect();
        assert_eq!(points, [("decode", Some(DurNs(45))), ("prefill", Some(DurNs(500)))]);
    }

    #[test]
    fn a_key_may_be_borrowed_in_the_way_it_is_kept() {
        let plan = DeadlinePlan { margin_ns: 0, min_sleep_ns: 0, max_sleep_ns: 9, window: 1 };
        let mut table = PointTable::default();
        table.observe("decode", &plan, Outcome::Exact { residual_ns: 5 });
        assert_eq!(table.sleep_ns(&"decode", &plan), Some(DurNs(5)));
    }
}
