//! A clock and an idle as a host of the standard library would bring them, without its choices.

use gpu_async_reactor::{Clock, CompletionLine, DurNs, Idle, MonoNs};
use std::time::{Duration, Instant};

/// The system's monotonic clock.
#[derive(Clone, Copy)]
pub struct SystemClock(Instant);

impl SystemClock {
    pub fn new() -> Self {
        SystemClock(Instant::now())
    }
}

impl Clock for SystemClock {
    #[inline]
    fn monotonic_ns(&self) -> MonoNs {
        MonoNs(self.0.elapsed().as_nanos() as u64)
    }
}

/// What one read of the clock costs, in nanoseconds.
pub fn clock_read_ns() -> f64 {
    const READS: usize = 10_000;
    let clock = SystemClock::new();
    let samples = (0..21).map(|_| {
        let elapsed = crate::measure::time(|| {
            for _ in 0..READS {
                std::hint::black_box(clock.monotonic_ns());
            }
        });
        crate::measure::ns_each(elapsed, READS)
    });
    crate::measure::Samples(samples.collect()).median()
}

/// Sleeps and spins. Never used where every task stays ready.
pub struct SpinIdle {
    clock: SystemClock,
    /// Whether wakes of the executor's own thread are told from foreign ones.
    pub tells_threads_apart: bool,
}

impl SpinIdle {
    pub fn new(clock: SystemClock, tells_threads_apart: bool) -> Self {
        SpinIdle { clock, tells_threads_apart }
    }
}

/// The address of a thread-local: no other live thread has it.
fn thread_token() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

impl Idle for SpinIdle {
    fn sleep_until(&mut self, at: MonoNs) {
        let left = at.since(self.clock.monotonic_ns());
        std::thread::sleep(Duration::from_nanos(left.0));
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        let until = self.clock.monotonic_ns().after(bound);
        while !ready(line) {
            if self.clock.monotonic_ns() >= until {
                return false;
            }
            std::hint::spin_loop();
        }
        true
    }

    fn thread_token(&self) -> Option<fn() -> usize> {
        self.tells_threads_apart.then_some(thread_token as fn() -> usize)
    }
}
