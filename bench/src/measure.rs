//! Samples, their medians and quartiles, and the interleaving that keeps comparisons fair.

use gpu_async_reactor::DurNs;
use gpu_async_reactor::host::thread_cpu_time;
use serde::Serialize;
use std::time::{Duration, Instant};

/// How much time to spend.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Fewer and shorter samples.
    pub quick: bool,
}

impl Effort {
    /// `full` of something, or `quick` of it.
    pub fn pick<T>(self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// What was measured for one subject, a sample a repetition, in the order of the repetitions.
#[derive(Clone, Default)]
pub struct Samples(pub Vec<f64>);

/// A median and the quartiles around it.
#[derive(Clone, Copy, Serialize)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub samples: usize,
}

impl Samples {
    pub fn spread(&self) -> Spread {
        assert!(!self.0.is_empty(), "a subject was never measured");
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let position = share * (sorted.len() - 1) as f64;
            let below = sorted[position.floor() as usize];
            let above = sorted[position.ceil() as usize];
            below + (above - below) * position.fract()
        };
        Spread { median: at(0.5), low: at(0.25), high: at(0.75), samples: sorted.len() }
    }

    pub fn median(&self) -> f64 {
        self.spread().median
    }

    /// The ratios to `other`, repetition by repetition: a slow moment of the machine is in both
    /// halves of a pair, and so in neither ratio.
    pub fn ratios_to(&self, other: &Samples) -> Samples {
        Samples(self.0.iter().zip(&other.0).map(|(own, other)| own / other).collect())
    }
}

/// Takes `repetitions` samples of each subject, all of them once a repetition, each time starting
/// with another. Before that each runs once unmeasured.
pub fn interleave<S: ?Sized>(
    repetitions: usize,
    subjects: &mut [Box<S>],
    mut sample: impl FnMut(&mut S) -> f64,
) -> Vec<Samples> {
    for subject in subjects.iter_mut() {
        sample(subject);
    }
    let mut all = vec![Samples::default(); subjects.len()];
    for repetition in 0..repetitions {
        for turn in 0..subjects.len() {
            let at = (repetition + turn) % subjects.len();
            all[at].0.push(sample(&mut subjects[at]));
        }
    }
    all
}

/// Tells the CPU time that this thread has used, so that it does not matter who else wants the core:
/// for work that never waits, and that is long beside the system call that a look costs. Where the
/// system does not tell CPU time, it is the time that has passed.
pub struct Stopwatch {
    start: Instant,
    cpu: Option<DurNs>,
}

impl Stopwatch {
    pub fn start() -> Self {
        let start = Instant::now();
        Stopwatch { start, cpu: thread_cpu_time() }
    }

    pub fn elapsed(&self) -> Duration {
        match (self.cpu, thread_cpu_time()) {
            (Some(start), Some(now)) => Duration::from_nanos(now.0 - start.0),
            _ => self.start.elapsed(),
        }
    }
}

/// The CPU time that `work` takes: see [`Stopwatch`].
pub fn cpu_time(work: impl FnOnce()) -> Duration {
    let start = Stopwatch::start();
    work();
    start.elapsed()
}

/// The time that `work` takes, which is short.
pub fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Nanoseconds a time, of `times` times in `elapsed`.
pub fn ns_each(elapsed: Duration, times: usize) -> f64 {
    elapsed.as_nanos() as f64 / times as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_samples() {
        let spread = Samples(vec![4.0, 1.0, 3.0, 2.0]).spread();
        assert_eq!((spread.low, spread.median, spread.high), (1.75, 2.5, 3.25));
    }

    #[test]
    fn each_repetition_starts_with_another_subject() {
        let mut order = Vec::new();
        let mut subjects: Vec<Box<usize>> = vec![Box::new(0), Box::new(1)];
        interleave(2, &mut subjects, |subject| {
            order.push(*subject);
            0.0
        });
        assert_eq!(order, [0, 1, 0, 1, 1, 0]);
    }
}
