//! The process's monotonic clock, and sleeping by it.

use super::kernel;
use crate::core::time::{Clock, DurNs, MonoNs, Timer};
use crate::monotonic::{self, LowSlack};

/// The monotonic clock of the process. All of them tell the same time.
///
/// On Linux it is `CLOCK_MONOTONIC` in nanoseconds; a look costs 20 to 30 ns and no system call.
/// Elsewhere it is [`std::time::Instant`] since the process first asked.
///
/// # As a timer
///
/// [`sleep_until`](Timer::sleep_until) blocks the thread within its first poll and is never
/// pending: it is for hosts that run one wait at a time on a thread
/// ([`run_inline`](crate::run_inline)).
///
/// # Timer slack
///
/// Linux ends a thread's sleeps up to 50 us late on purpose, to wake for several at once. This
/// clock and a [`StdIdle`](super::StdIdle) over it lower that slack to 1 ns for each of their
/// sleeps that has an end, and set it back afterwards to what it was: the thread's other sleeps
/// keep theirs, and so do the threads and the programs that it starts. A slack that is set between
/// two sleeps stays. It costs three short calls of the kernel a sleep, 0.6 us in all on a virtual
/// machine; [`keeping_timer_slack`](Self::keeping_timer_slack) leaves the slack alone.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StdClock {
    keeps_slack: bool,
}

impl StdClock {
    /// The clock. It lowers the timer slack of a thread for as long as it sleeps by it.
    #[must_use]
    pub const fn new() -> Self {
        StdClock { keeps_slack: false }
    }

    /// The clock, which leaves the timer slack of threads that sleep by it as it is.
    #[must_use]
    pub const fn keeping_timer_slack() -> Self {
        StdClock { keeps_slack: true }
    }

    /// What is held during a sleep until `at`. One without an end has no use for it.
    pub(super) fn low_slack(self, at: MonoNs) -> Option<LowSlack> {
        (!self.keeps_slack && at != MonoNs::MAX).then(LowSlack::begin)
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
        let _slack = self.low_slack(at);
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
