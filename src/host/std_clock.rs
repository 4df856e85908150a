//! The process's monotonic clock, and sleeping by it.

use super::kernel;
use crate::core::time::{Clock, DurNs, MonoNs, Timer};
use crate::monotonic;

/// The monotonic clock of the process. All of them tell the same time.
///
/// On Linux it is `CLOCK_MONOTONIC` in nanoseconds; a look costs 20 to 30 ns and no system call.
/// Elsewhere it is [`std::time::Instant`] since the process first asked.
///
/// # As a timer
///
/// [`sleep_until`](Timer::sleep_until) blocks the thread within its first poll and is never pending:
/// it is for hosts that run one wait at a time on a thread ([`run_inline`](crate::run_inline)).
///
/// # Timer slack
///
/// Linux ends a thread's sleeps up to 50 us late on purpose, to wake for several at once. Before the
/// first sleep of a thread, this clock and a [`StdIdle`](super::StdIdle) over it lower that slack to
/// 1 ns. It stays so for the thread, and is inherited by threads that it starts later, as long as
/// nobody sets it anew. [`keeping_timer_slack`](Self::keeping_timer_slack) leaves it alone.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StdClock {
    keeps_slack: bool,
}

impl StdClock {
    /// The clock. It lowers the timer slack of threads that sleep by it.
    #[must_use]
    pub const fn new() -> Self {
        StdClock { keeps_slack: false }
    }

    /// The clock, which leaves the timer slack of threads that sleep by it as it is.
    #[must_use]
    pub const fn keeping_timer_slack() -> Self {
        StdClock { keeps_slack: true }
    }

    /// What comes before a sleep.
    pub(super) fn prepare_sleep(self) {
        if !self.keeps_slack {
            kernel::lower_timer_slack_once();
        }
    }
}

impl Clock for StdClock {
    #[inline]
    fn monotonic_ns(&self) -> MonoNs {
        monotonic::now()
    }
}

impl Timer for StdClock {
    async fn sleep_until(&self, at: MonoNs) {
        self.prepare_sleep();
        kernel::sleep_until(at);
    }
}

/// The CPU time that the calling thread has used since it began, user and system. None where the
/// system does not tell (anything but Linux). A system call, about 200 ns.
#[must_use]
pub fn thread_cpu_time() -> Option<DurNs> {
    #[cfg(target_os = "linux")]
    {
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Some(DurNs(used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64))
    }
    #[cfg(not(target_os = "linux"))]
    None
}
