//! What was measured, as an object for programs.

use super::measure::Counts;
use super::summary::Summary;
use crate::args::{BenchArgs, Device};
use crate::failure::Warning;
use gpu_async_reactor::{ExecutorKind, Resolved, Setting};
use serde::Serialize;

/// The whole measurement.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Report {
    /// The device that was asked for.
    pub device: Device,
    /// The name that its driver gives it; null for the software device.
    pub device_name: Option<String>,
    /// The running executor, and what it is a fallback from.
    pub executor: String,
    /// The asked length of a piece of work.
    pub work_ns: u64,
    /// How far from that a length may lie, as a share.
    pub jitter: f64,
    /// Measured waits a plan.
    pub waits: u32,
    /// Waits before those, which were left out.
    pub warm_up: u32,
    /// Ready tasks beside the waits.
    pub load: u32,
    /// Of the lengths.
    pub seed: u64,
    /// A row for each plan, in the order asked for.
    pub rows: Vec<Row>,
    /// The fallbacks that were taken, each once.
    pub warnings: Vec<Warning>,
}

/// One plan.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Row {
    /// The running plan, and what it is a fallback from.
    pub plan: String,
    /// The plan that was asked for.
    pub requested: String,
    /// Whether another plan runs.
    pub fallback: bool,
    /// Its figures.
    #[serde(flatten)]
    pub summary: Summary,
}

impl Row {
    /// Of the waits under `plan`.
    #[must_use]
    pub fn new(plan: &Resolved, summary: Summary) -> Self {
        let fallback = plan.warning.is_some();
        Row { plan: plan.label(), requested: plan.requested.label(), fallback, summary }
    }
}

impl Report {
    /// Without rows yet.
    #[must_use]
    pub fn new(
        args: &BenchArgs,
        device_name: Option<&str>,
        executor: &Setting<ExecutorKind>,
        counts: Counts,
    ) -> Self {
        Report {
            device: args.device,
            device_name: device_name.map(String::from),
            executor: executor.label(),
            work_ns: args.work.0,
            jitter: args.jitter.share(),
            waits: counts.waits,
            warm_up: counts.warm_up,
            load: args.load,
            seed: args.seed,
            rows: Vec::new(),
            warnings: executor.warning.iter().map(Warning::from).collect(),
        }
    }

    /// Adds a row, and its warning if that was not said yet.
    pub fn add(&mut self, row: Row, warning: Option<Warning>) {
        self.rows.push(row);
        self.warnings.extend(warning.filter(|warning| !self.warnings.contains(warning)));
    }
}
