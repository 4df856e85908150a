//! The clock and the idles that our own rows run with.

use crate::measure::{Samples, ns_each, time};
use gpu_async_reactor::host::{ParkPolicy, StdClock, StdIdle};
use gpu_async_reactor::{Clock, CompletionLine, DurNs, Idle, MonoNs};
use std::task::Waker;

/// What one read of the clock costs, in nanoseconds.
pub fn clock_read_ns() -> f64 {
    const READS: usize = 10_000;
    let clock = StdClock::new();
    let samples = (0..21).map(|_| {
        let elapsed = time(|| {
            for _ in 0..READS {
                std::hint::black_box(clock.monotonic_ns());
            }
        });
        ns_each(elapsed, READS)
    });
    Samples(samples.collect()).median()
}

/// The host's idle, which tells wakes of the executor's own thread from foreign ones.
pub fn idle() -> StdIdle {
    StdIdle::with(StdClock::new(), ParkPolicy::SPIN)
}

/// The same without telling threads apart: every wake is treated as foreign.
pub struct Untold(pub StdIdle);

impl Idle for Untold {
    fn sleep_until(&mut self, at: MonoNs) {
        self.0.sleep_until(at);
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        self.0.park_line(line, ready, bound)
    }

    fn unparker(&self) -> Option<Waker> {
        self.0.unparker()
    }
}
