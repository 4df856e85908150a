//! The lengths of the device's work.

use crate::units::Jitter;
use gpu_async_reactor::DurNs;

/// Lengths of work, uniformly within the jitter around the asked one, without end. The same seed
/// gives the same lengths.
#[derive(Clone, Debug)]
pub struct Workload {
    work: DurNs,
    jitter: Jitter,
    random: fastrand::Rng,
}

impl Workload {
    /// Lengths around `work`.
    #[must_use]
    pub fn new(work: DurNs, jitter: Jitter, seed: u64) -> Self {
        Workload { work, jitter, random: fastrand::Rng::with_seed(seed) }
    }
}

impl Iterator for Workload {
    type Item = DurNs;

    fn next(&mut self) -> Option<DurNs> {
        let offset = self.jitter.share() * (2.0 * self.random.f64() - 1.0);
        Some(DurNs((self.work.0 as f64 * (1.0 + offset)) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::parse_jitter;

    #[test]
    fn lengths_stay_within_the_jitter_and_repeat_with_the_seed() {
        let jitter = parse_jitter("5%").unwrap();
        let lengths = |seed| Workload::new(DurNs(1_000), jitter, seed).take(1_000);
        assert!(lengths(1).all(|length| (950..=1_050).contains(&length.0)));
        assert!(lengths(1).eq(lengths(1)));
        assert!(!lengths(1).eq(lengths(2)));
        assert!(lengths(1).min().unwrap().0 < 960 && lengths(1).max().unwrap().0 > 1_040);
    }

    #[test]
    fn without_jitter_every_length_is_the_asked_one() {
        let none = parse_jitter("0%").unwrap();
        assert!(Workload::new(DurNs(777), none, 1).take(100).all(|length| length == DurNs(777)));
    }
}
