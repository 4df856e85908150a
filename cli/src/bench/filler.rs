//! Tasks that always have something to do.

use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{Clock, DurNs, yield_now};
use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;

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
pub async fn filler(done: Rc<Cell<Done>>) {
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
    use gpu_async_reactor::host::Runtime;

    #[test]
    fn tasks_alone_fill_nearly_all_of_the_time() {
        // The best of many: this thread may lose its core.
        let filled = (0..50).any(|_| {
            let runtime = Runtime::new("poll", "gpu-reactor").unwrap();
            let done = Rc::new(Cell::new(Done::default()));
            (0..3).for_each(|_| drop(runtime.spawn(filler(done.clone()))));

            let clock = runtime.clock();
            let began = clock.monotonic_ns();
            runtime.block_on(runtime.sleep_until(began.after(DurNs::from_ms(5)))).unwrap().unwrap();
            let took = clock.monotonic_ns().since(began);
            assert!(done.get().time.0 <= took.0);
            done.get().polls >= 3 && done.get().time.0 * 2 > took.0
        });
        assert!(filled);
    }
}
