//! The replay behind the figures of the estimate's documentation. The table below must be the one
//! that stands there.

use super::*;
use alloc::{collections::VecDeque, format, string::String};

const WAITS: u64 = 10_000;
const WORK_NS: u64 = 2_000_000;
const PLAN: DeadlinePlan =
    DeadlinePlan { margin_ns: 20_000, min_sleep_ns: 50_000, max_sleep_ns: 20_000_000, window: 8 };

/// A fixed sequence of residuals: the work's time with uniform jitter. Knuth's MMIX generator.
fn residuals(jitter_percent: u64) -> impl Iterator<Item = u64> {
    let spread_ns = WORK_NS * jitter_percent / 100;
    let mut state: u64 = 1;
    core::iter::repeat_with(move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        WORK_NS - spread_ns + (state >> 33) * 2 * spread_ns / (1 << 31)
    })
}

trait Estimate {
    fn sleep_ns(&self) -> u64;
    fn observe(&mut self, sleep_ns: u64, residual_ns: u64);
}

impl Estimate for PointEstimate {
    fn sleep_ns(&self) -> u64 {
        PointEstimate::sleep_ns(self, &PLAN).map_or(0, |sleep| sleep.0)
    }

    fn observe(&mut self, sleep_ns: u64, residual_ns: u64) {
        let outcome = if residual_ns < sleep_ns {
            Outcome::Late { woke_ns: sleep_ns }
        } else {
            Outcome::Exact { residual_ns }
        };
        PointEstimate::observe(self, &PLAN, outcome);
    }
}

/// The mean of the window, told every residual.
struct Mean(VecDeque<u64>);

impl Estimate for Mean {
    fn sleep_ns(&self) -> u64 {
        let count = self.0.len() as u64;
        let mean_ns = self.0.iter().sum::<u64>().checked_div(count).unwrap_or(0);
        mean_ns.saturating_sub(PLAN.margin_ns)
    }

    fn observe(&mut self, _: u64, residual_ns: u64) {
        self.0.push_back(residual_ns);
        if self.0.len() > usize::from(PLAN.window) {
            self.0.pop_front();
        }
    }
}

fn row(jitter_percent: u64, name: &str, mut estimate: impl Estimate) -> String {
    let (mut late, mut lateness_ns, mut worst_ns, mut looking_ns) = (0, 0, 0, 0);
    for residual_ns in residuals(jitter_percent).take(WAITS as usize) {
        let sleep_ns = estimate.sleep_ns();
        let over_ns = sleep_ns.saturating_sub(residual_ns);
        late += u64::from(over_ns > 0);
        lateness_ns += over_ns;
        worst_ns = worst_ns.max(over_ns);
        looking_ns += residual_ns.saturating_sub(sleep_ns);
        estimate.observe(sleep_ns, residual_ns);
    }
    // In tenths: of a percent, of a microsecond.
    let tenths = |tenths: u64| format!("{}.{}", tenths / 10, tenths % 10);
    format!(
        "| {jitter_percent} % | {name} | {} % | {} us | {} us | {} us |",
        tenths(late * 1_000 / WAITS),
        tenths(lateness_ns / WAITS / 100),
        tenths(worst_ns / 100),
        tenths(looking_ns / WAITS / 100),
    )
}

#[test]
fn the_documentation_shows_the_figures_of_the_replay() {
    let documentation = include_str!("mod.rs");
    let mut rows = String::new();
    for jitter_percent in [1, 5, 20] {
        for row in [
            row(jitter_percent, "minimum", PointEstimate::new()),
            row(jitter_percent, "mean", Mean(VecDeque::new())),
        ] {
            rows.push_str(&format!("/// {row}\n"));
        }
    }
    assert!(documentation.contains(&rows), "the documentation should show:\n{rows}");
}
