//! What many waits were like together.

use super::filler::PollRate;
use super::measure::Sample;
use gpu_async_reactor::{DurNs, End};
use serde::Serialize;

/// The waits under one plan. Means are over the measured waits.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Summary {
    /// From the device's completion until the caller ran again.
    pub lateness_ns: Lateness,
    /// CPU time of the waiting thread during the waits, as a share of their time; none where the
    /// system does not tell. With tasks beside the waits it includes theirs.
    pub cpu_share: Option<f64>,
    /// Driver calls, the mean of a wait.
    pub driver_calls: f64,
    /// Parks on the word, the mean of a wait.
    pub parks: f64,
    /// Waits whose predicted sleep ended after the completion, as a share.
    pub late_share: f64,
    /// Waits that a status query ended although the word had not moved.
    pub backstops: usize,
    /// Polls of the tasks beside the waits, the mean of a wait.
    pub filler_polls: f64,
    /// How fast these tasks ran during the waits, as a share of how fast they run without any; none
    /// without such tasks.
    pub filler_share: Option<f64>,
}

/// In nanoseconds.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lateness {
    /// Half of the waits were no later.
    pub p50: u64,
    /// 99 of 100 waits were no later.
    pub p99: u64,
    /// The latest.
    pub max: u64,
}

impl Summary {
    /// Of at least one sample. `alone` is how fast the tasks beside the waits are without them.
    #[must_use]
    pub fn of(samples: &[Sample], alone: Option<PollRate>) -> Self {
        let mut lateness: Vec<u64> = samples.iter().map(|sample| sample.lateness.0).collect();
        lateness.sort_unstable();
        let ended = |end: End| samples.iter().filter(|sample| sample.end == end).count();
        let mean = |of: fn(&Sample) -> u64| {
            samples.iter().map(of).sum::<u64>() as f64 / samples.len() as f64
        };
        let cpu: Option<u64> = samples.iter().map(|sample| sample.cpu.map(|cpu| cpu.0)).sum();
        let wall: DurNs = DurNs(samples.iter().map(|sample| sample.wall.0).sum());
        Summary {
            lateness_ns: Lateness {
                p50: percentile(&lateness, 50),
                p99: percentile(&lateness, 99),
                max: percentile(&lateness, 100),
            },
            cpu_share: cpu.map(|cpu| cpu as f64 / wall.0.max(1) as f64),
            driver_calls: mean(|sample| sample.calls),
            parks: mean(|sample| sample.parks),
            late_share: ended(End::Late) as f64 / samples.len() as f64,
            backstops: ended(End::Backstop),
            filler_polls: mean(|sample| sample.filler_polls),
            filler_share: alone.map(|alone| {
                let polls = samples.iter().map(|sample| sample.filler_polls).sum();
                PollRate { polls, within: wall }.share_of(alone)
            }),
        }
    }
}

/// The smallest value that `percent` of the values do not exceed.
fn percentile(ascending: &[u64], percent: usize) -> u64 {
    let rank = (ascending.len() * percent).div_ceil(100).max(1);
    ascending[rank - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(lateness: u64, end: End) -> Sample {
        Sample {
            lateness: DurNs(lateness),
            wall: DurNs(100),
            cpu: Some(DurNs(25)),
            calls: 3,
            parks: 1,
            end,
            filler_polls: 7,
        }
    }

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let values: Vec<u64> = (1..=200).collect();
        assert_eq!([50, 99, 100].map(|percent| percentile(&values, percent)), [100, 198, 200]);
        assert_eq!([50, 99, 100].map(|percent| percentile(&[5], percent)), [5, 5, 5]);
    }

    #[test]
    fn means_and_shares_are_over_all_waits() {
        let samples = [sample(10, End::Spun), sample(30, End::Late), sample(20, End::Backstop)];
        let mut unknown = samples;
        let summary = Summary::of(&samples, Some(PollRate { polls: 14, within: DurNs(100) }));
        assert_eq!(summary.lateness_ns, Lateness { p50: 20, p99: 30, max: 30 });
        assert_eq!(summary.cpu_share, Some(0.25));
        assert_eq!((summary.driver_calls, summary.parks), (3.0, 1.0));
        assert_eq!((summary.late_share, summary.backstops), (1.0 / 3.0, 1));
        assert_eq!((summary.filler_polls, summary.filler_share), (7.0, Some(0.5)));
        unknown[1].cpu = None;
        assert_eq!(Summary::of(&unknown, None).cpu_share, None);
    }
}
