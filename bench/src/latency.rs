//! Latencies: the median and the 99th percentile of each round, and their spread over the rounds.

use crate::measure::Samples;
use crate::report::{Cell, Verdict};

/// What was measured for one subject, a value a round.
#[derive(Clone, Default)]
pub struct Latency {
    pub p50: Samples,
    pub p99: Samples,
    /// The least of all samples.
    pub least: f64,
}

/// The sample at `share` of a sorted round: a real one, not between two.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

impl Latency {
    fn new() -> Self {
        Latency { least: f64::INFINITY, ..Latency::default() }
    }

    fn add_round(&mut self, mut samples: Vec<f64>) {
        samples.sort_by(f64::total_cmp);
        self.p50.0.push(percentile(&samples, 0.5));
        self.p99.0.push(percentile(&samples, 0.99));
        self.least = self.least.min(samples[0]);
    }

    pub fn cells(&self) -> Vec<Cell> {
        vec![Cell::Measured(self.p50.spread()), Cell::Measured(self.p99.spread())]
    }

    /// Whether p50 and p99 are at most `at_most` times those of `other`, round by round.
    pub fn verdicts(&self, what: &str, other: &Latency, at_most: f64) -> [Verdict; 2] {
        let verdict = |name: &str, own: &Samples, other: &Samples| {
            Verdict::at_most(format!("{what}, {name}"), &own.ratios_to(other), " x", at_most)
        };
        [verdict("p50", &self.p50, &other.p50), verdict("p99", &self.p99, &other.p99)]
    }
}

/// `rounds` rounds of `turns` turns. In a turn each subject gives some samples, each time starting with
/// another subject, so that what happens to the machine happens to all of them. Before that each has
/// a turn unmeasured. Samples that are NaN are left out, and rounds in which a subject has no other.
///
/// # Panics
///
/// Where no round is left: the machine is too busy for figures.
pub fn rounds<S: ?Sized>(
    rounds: usize,
    turns: usize,
    subjects: &mut [Box<S>],
    mut turn: impl FnMut(&mut S) -> Vec<f64>,
) -> Vec<Latency> {
    for subject in subjects.iter_mut() {
        turn(subject);
    }
    let mut all = vec![Latency::new(); subjects.len()];
    for round in 0..rounds {
        let mut samples = vec![Vec::new(); subjects.len()];
        for first in 0..turns {
            for turn_of in 0..subjects.len() {
                let at = (round + first + turn_of) % subjects.len();
                samples[at]
                    .extend(turn(&mut subjects[at]).iter().filter(|sample| !sample.is_nan()));
            }
        }
        if samples.iter().any(Vec::is_empty) {
            continue;
        }
        for (latency, samples) in all.iter_mut().zip(samples) {
            latency.add_round(samples);
        }
    }
    assert!(!all[0].p50.0.is_empty(), "others use the cores: no round could be measured");
    all
}
