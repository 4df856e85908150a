//! Tasks that always have something to do.

use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{Clock, DurNs, yield_now};
use std::cell::Cell;
use std::hint::black_box;

/// Steps of arithmetic in a poll, each waiting for the one before: about 1 us.
const STEPS: u64 = 700;

/// What the tasks of a thread got done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Done {
    /// Polls.
    pub polls: u64,
    /// The time within them, by the clock: the speed of a shared core changes too much for a count
    /// of polls to be compared.
    pub time: DurNs,
}

impl Done {
    /// What was done since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Done) -> Done {
        Done { polls: self.polls - earlier.polls, time: DurNs(self.time.0 - earlier.time.0) }
    }
}

/// Computes a little in each poll, for ever, and keeps the sum of what all of them did in `done`.
pub async fn filler(done: &Cell<Done>) {
    let clock = StdClock::new();
    let mut state = 1_u64;
    loop {
        let began = clock.monotonic_ns();
        for step in 0..STEPS {
            state = black_box(state).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ step;
        }
        let Done { polls, time } = done.get();
        let took = clock.monotonic_ns().since(began);
        done.set(Done { polls: polls + 1, time: DurNs(time.0 + took.0) });
        yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine;
    use gpu_async_reactor::{Executor, Reactor};

    #[test]
    fn tasks_alone_fill_nearly_all_of_the_time() {
        let (clock, mut idle, _) = machine::host();
        let reactor = Reactor::new(clock);
        let done = Cell::new(Done::default());
        let mut executor = Executor::new();
        (0..3).for_each(|_| drop(executor.spawn(filler(&done))));

        let began = clock.monotonic_ns();
        let end = reactor.alarm(began.after(DurNs::from_ms(5)));
        executor.run_until(&reactor, &mut idle, DurNs::from_ms(1), end).unwrap();
        let took = clock.monotonic_ns().since(began);
        assert!(done.get().polls >= 3);
        assert!(done.get().time.0 <= took.0 && done.get().time.0 * 2 > took.0);
    }
}
