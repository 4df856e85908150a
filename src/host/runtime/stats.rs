//! What a runtime measures at each point, ready for a metrics page.

use super::pending::PendingAt;
use crate::core::estimate::{Outcome, PointEstimate};
use crate::core::executor::RunStats;
use crate::core::plan::WaitPlan;
use crate::core::port::{End, Waited};
use crate::core::time::{DurNs, MonoNs};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use hdrhistogram::Histogram;

/// Residuals are kept to two significant digits, up to this many nanoseconds (an hour): 30 KiB a point.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// The points of a runtime.
#[derive(Default)]
pub(super) struct Points(BTreeMap<&'static str, Point>);

struct Point {
    estimate: PointEstimate,
    residuals: Histogram<u64>,
    waits: u64,
    errors: u64,
    timeouts: u64,
    late: u64,
    backstops: u64,
    queries: u64,
    parks: u64,
    slept_ns: u64,
    elapsed_ns: u64,
}

impl Point {
    fn new() -> Self {
        let residuals = Histogram::new_with_bounds(1, LONGEST_NS, 2).expect("bounds as documented");
        Point {
            estimate: PointEstimate::new(),
            residuals,
            waits: 0,
            errors: 0,
            timeouts: 0,
            late: 0,
            backstops: 0,
            queries: 0,
            parks: 0,
            slept_ns: 0,
            elapsed_ns: 0,
        }
    }
}

impl Points {
    /// A wait begins at `point`: its predicted sleep, if the plan predicts and a wait has ended
    /// there. The first wait at a point allocates, and is part of the statistics from now on.
    pub(super) fn begin(&mut self, point: &'static str, plan: &WaitPlan) -> Option<DurNs> {
        let point = self.0.entry(point).or_insert_with(Point::new);
        point.estimate.sleep_ns(plan.predict.as_ref()?)
    }

    /// Records the end of a wait; `None` is an error.
    pub(super) fn record(&mut self, point: &'static str, plan: &WaitPlan, waited: Option<&Waited>) {
        let point = self.0.entry(point).or_insert_with(Point::new);
        point.waits += 1;
        let Some(waited) = waited else {
            point.errors += 1;
            return;
        };
        point.timeouts += u64::from(waited.end == End::TimedOut);
        point.late += u64::from(waited.end == End::Late);
        point.backstops += u64::from(waited.end == End::Backstop);
        point.queries += waited.queries;
        point.parks += waited.parks;
        point.slept_ns = point.slept_ns.saturating_add(waited.slept.0);
        point.elapsed_ns = point.elapsed_ns.saturating_add(waited.elapsed.0);
        let Some(outcome) = waited.outcome else { return };
        let (Outcome::Exact { residual_ns } | Outcome::Late { woke_ns: residual_ns }) = outcome;
        point.residuals.saturating_record(residual_ns.max(1));
        if let Some(deadline) = &plan.predict {
            point.estimate.observe(deadline, outcome);
        }
    }

    /// The points as they are at `now`, with the waits that are pending there.
    pub(super) fn snapshot(
        &self,
        pending: &BTreeMap<&'static str, PendingAt>,
        now: MonoNs,
    ) -> Vec<PointStats> {
        let of = |(name, point): (&&'static str, _)| {
            PointStats::of(name, point, pending.get(name).copied(), now)
        };
        self.0.iter().map(of).collect()
    }
}

/// What was measured at one point since the runtime was built.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct PointStats {
    /// The caller's name of the point.
    pub point: &'static str,
    /// Waits that have begun and not ended.
    pub pending: u64,
    /// The age of the oldest of them.
    pub oldest_pending: Option<DurNs>,
    /// Waits that ended, with an error or without.
    pub waits: u64,
    /// Waits that ended with an error.
    pub errors: u64,
    /// Waits whose deadline passed first.
    pub timeouts: u64,
    /// The median residual; a late wake counts as its bound. Two significant digits.
    pub residual_p50: DurNs,
    /// The 99th percentile of the residual.
    pub residual_p99: DurNs,
    /// The share of waits whose predicted sleep ended too late, 0 to 1.
    pub late_share: f64,
    /// Waits that only a backstop's query saw end: lost or late stores.
    pub backstops: u64,
    /// Status queries of the waits themselves.
    pub queries: u64,
    /// Parks.
    pub parks: u64,
    /// Spent in predicted sleeps, altogether.
    pub slept: DurNs,
    /// Spent parked, polling and spinning, altogether.
    pub looked: DurNs,
    /// What the estimator predicts now.
    pub predicted: Option<DurNs>,
}

impl PointStats {
    fn of(name: &'static str, point: &Point, pending: Option<PendingAt>, now: MonoNs) -> Self {
        let residual = |quantile| DurNs(point.residuals.value_at_quantile(quantile));
        PointStats {
            point: name,
            pending: pending.map_or(0, |pending| pending.count),
            oldest_pending: pending.map(|pending| now.since(pending.since)),
            waits: point.waits,
            errors: point.errors,
            timeouts: point.timeouts,
            residual_p50: residual(0.5),
            residual_p99: residual(0.99),
            late_share: point.late as f64 / point.waits.max(1) as f64,
            backstops: point.backstops,
            queries: point.queries,
            parks: point.parks,
            slept: DurNs(point.slept_ns),
            looked: DurNs(point.elapsed_ns - point.slept_ns.min(point.elapsed_ns)),
            predicted: point.estimate.predicted_ns(),
        }
    }
}

impl fmt::Display for PointStats {
    /// One line for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PointStats { point, waits, residual_p50, residual_p99, late_share, .. } = self;
        let late = late_share * 100.0;
        write!(f, "{point}: {waits} waits, residual p50 {residual_p50}, p99 {residual_p99}, ")?;
        write!(f, "{late:.1} % late, {} backstops, {} errors", self.backstops, self.errors)
    }
}

/// A snapshot of a runtime's settings and measurements. With the feature `serde` it serialises, each
/// duration as nanoseconds under a name that ends in `_ns`.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct RuntimeStats {
    /// The label of the running plans.
    pub plan: String,
    /// The label of the running executor.
    pub executor: String,
    /// The warnings of what fell back.
    pub warnings: Vec<String>,
    /// Waits that have begun and not ended, at all points.
    pub pending: u64,
    /// The age of the oldest of them. It grows without limit while a wait hangs.
    pub oldest_pending: Option<DurNs>,
    /// What all runs did so far, the present one included.
    pub run: RunStats,
    /// The points, by name.
    pub points: Vec<PointStats>,
}

impl fmt::Display for RuntimeStats {
    /// A line for the settings and one for each point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.plan, self.executor)?;
        for point in &self.points {
            f.write_str("\n")?;
            f.write_str(&point.to_string())?;
        }
        Ok(())
    }
}

#[cfg(feature = "serde")]
mod serialise {
    use super::{PointStats, RuntimeStats};
    use crate::core::executor::RunStats;
    use serde_core::ser::{Serialize, SerializeStruct, Serializer};

    impl Serialize for PointStats {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut fields = serializer.serialize_struct("PointStats", 15)?;
            fields.serialize_field("point", self.point)?;
            fields.serialize_field("pending", &self.pending)?;
            let oldest = self.oldest_pending.map(|age| age.0);
            fields.serialize_field("oldest_pending_ns", &oldest)?;
            fields.serialize_field("waits", &self.waits)?;
            fields.serialize_field("errors", &self.errors)?;
            fields.serialize_field("timeouts", &self.timeouts)?;
            fields.serialize_field("residual_p50_ns", &self.residual_p50.0)?;
            fields.serialize_field("residual_p99_ns", &self.residual_p99.0)?;
            fields.serialize_field("late_share", &self.late_share)?;
            fields.serialize_field("backstops", &self.backstops)?;
            fields.serialize_field("queries", &self.queries)?;
            fields.serialize_field("parks", &self.parks)?;
            fields.serialize_field("slept_ns", &self.slept.0)?;
            fields.serialize_field("looked_ns", &self.looked.0)?;
            fields.serialize_field("predicted_ns", &self.predicted.map(|time| time.0))?;
            fields.end()
        }
    }

    /// The part of a snapshot that is the executor's, as a map of its own.
    struct Run<'r>(&'r RunStats);

    impl Serialize for Run<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut fields = serializer.serialize_struct("RunStats", 6)?;
            fields.serialize_field("polls", &self.0.polls)?;
            fields.serialize_field("woke", &self.0.woke)?;
            fields.serialize_field("slept", &self.0.slept)?;
            fields.serialize_field("parked", &self.0.parked)?;
            fields.serialize_field("idle_ns", &self.0.idle_ns)?;
            fields.serialize_field("panics", &self.0.panics)?;
            fields.end()
        }
    }

    impl Serialize for RuntimeStats {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut fields = serializer.serialize_struct("RuntimeStats", 7)?;
            fields.serialize_field("plan", &self.plan)?;
            fields.serialize_field("executor", &self.executor)?;
            fields.serialize_field("warnings", &self.warnings)?;
            fields.serialize_field("pending", &self.pending)?;
            let oldest = self.oldest_pending.map(|age| age.0);
            fields.serialize_field("oldest_pending_ns", &oldest)?;
            fields.serialize_field("run", &Run(&self.run))?;
            fields.serialize_field("points", &self.points)?;
            fields.end()
        }
    }
}
