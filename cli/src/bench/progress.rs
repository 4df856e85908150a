//! A progress bar on standard error, for long runs and on a terminal only.

use super::measure::Counts;
use crate::args::BenchArgs;
use indicatif::{ProgressBar, ProgressStyle};

/// Runs shorter than this are over before a bar is read.
const LONG_NS: u64 = 1_500_000_000;

/// Says how far a run is. It draws between two waits, by the waiting thread itself: a second thread
/// would take a core from what is measured.
pub struct Progress(Option<ProgressBar>);

impl Progress {
    /// Of a run of `plans` times `counts` waits.
    pub fn start(args: &BenchArgs, plans: usize, counts: Counts) -> Self {
        let steps = u64::from(counts.warm_up + counts.waits) * plans as u64;
        if args.quiet || steps.saturating_mul(args.work.0) < LONG_NS {
            return Progress(None);
        }
        let style = ProgressStyle::with_template("{bar:40} {percent:>3} %, {eta} left")
            .expect("the template is well formed");
        Progress(Some(ProgressBar::new(steps).with_style(style)))
    }

    /// One more wait is over.
    pub fn step(&self) {
        if let Some(bar) = &self.0 {
            bar.inc(1);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
