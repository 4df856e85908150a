//! Tasks that always have something to do.

use super::PARK_BOUND;
use crate::machine;
use gpu_async_reactor::{Clock, DurNs, Executor, Reactor, Result, yield_now};
use std::cell::Cell;
use std::hint::black_box;

/// Steps of arithmetic in a poll, each waiting for the one before: about 1 us.
const STEPS: u64 = 700;

/// How often and how long tasks are measured on their own: the fastest time counts, since in the
/// others the thread may have lost its core.
const ALONE: (u32, DurNs) = (8, DurNs::from_ms(5));

/// Computes a little in each poll, for ever, and counts the polls.
pub async fn filler(polls: &Cell<u64>) {
    let mut state = 1_u64;
    loop {
        for step in 0..STEPS {
            state = black_box(state).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ step;
        }
        polls.set(polls.get() + 1);
        yield_now().await;
    }
}

/// How often tasks were polled within a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PollRate {
    /// The polls.
    pub polls: u64,
    /// The time.
    pub within: DurNs,
}

impl PollRate {
    /// Of `load` tasks that have a thread for themselves.
    ///
    /// # Errors
    ///
    /// Those of the executor.
    pub fn alone(load: u32) -> Result<PollRate> {
        let (clock, mut idle, _) = machine::host();
        let reactor = Reactor::new(clock);
        let polls = Cell::new(0);
        let mut executor = Executor::new();
        for _ in 0..load {
            executor.spawn(filler(&polls));
        }
        let (times, pause) = ALONE;
        let mut best = PollRate { polls: 0, within: DurNs(1) };
        for _ in 0..times {
            let (polls_before, began) = (polls.get(), clock.monotonic_ns());
            let end = reactor.alarm(began.after(pause));
            executor.run_until(&reactor, &mut idle, PARK_BOUND, end)?;
            let within = clock.monotonic_ns().since(began);
            let rate = PollRate { polls: polls.get() - polls_before, within };
            if rate.share_of(best) > 1.0 {
                best = rate;
            }
        }
        Ok(best)
    }

    /// This rate as a share of `full`.
    #[must_use]
    pub fn share_of(self, full: PollRate) -> f64 {
        let polls = self.polls as f64 * full.within.0 as f64;
        polls / (full.polls as f64 * self.within.0 as f64).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_share_of_another_whatever_their_times() {
        let full = PollRate { polls: 100, within: DurNs(1_000) };
        assert_eq!(PollRate { polls: 25, within: DurNs(500) }.share_of(full), 0.5);
        assert_eq!(PollRate { polls: 0, within: DurNs(5) }.share_of(full), 0.0);
        let none = PollRate { polls: 0, within: DurNs(1) };
        assert!(full.share_of(none) > 1.0);
    }

    #[test]
    fn tasks_alone_are_polled_all_the_time() {
        assert!(PollRate::alone(2).unwrap().polls > 10);
    }
}
