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

/// The same numbers in every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn shuffle(&mut self, order: &mut [usize]) {
        for at in (1..order.len()).rev() {
            order.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

/// `rounds` rounds of `turns` turns. In a turn each subject gives some samples, in an order drawn anew, so
/// that what happens to the machine happens to all of them, and nobody always comes behind the same
/// other: after a long sleep a core is colder than after a spin. Before that each has a turn unmeasured. Samples that are NaN are left out, and rounds in which a subject has no other.
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
    let (mut order, mut random) = ((0..subjects.len()).collect::<Vec<_>>(), Random(1));
    for _ in 0..rounds {
        let mut samples = vec![Vec::new(); subjects.len()];
        for _ in 0..turns {
            random.shuffle(&mut order);
            for &at in &order {
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
