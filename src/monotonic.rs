//! The monotonic clock of the process, shared by the software device and the hosts, so that an
//! instant told by one means the same to the other.
//!
//! On Linux it is `CLOCK_MONOTONIC` (through `rustix`, a vDSO read without a system call), which
//! futex deadlines are given on as well. Elsewhere it is [`std::time::Instant`] since the first
//! time that the process asked.

use crate::core::time::MonoNs;

/// The present instant.
#[cfg(target_os = "linux")]
#[inline]
pub(crate) fn now() -> MonoNs {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Since boot: neither part is negative, and 2^64 ns are 584 years.
    MonoNs(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// The present instant.
#[cfg(not(target_os = "linux"))]
pub(crate) fn now() -> MonoNs {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let start = START.get_or_init(std::time::Instant::now);
    MonoNs(crate::core::time::DurNs::from(start.elapsed()).0)
}

/// The calling thread's timer slack, lowered to 1 ns until this is dropped.
///
/// Slack belongs to the thread: its other sleeps, the threads that it starts and the programs that
/// it runs would have it too. So it is lowered around each sleep and set back to what it was found
/// to be, which honours what the program sets in between. That takes three calls of the kernel that
/// do no work, about 0.2 us each on a virtual machine, around a sleep that enters it anyway and
/// ends microseconds late.
#[derive(Debug)]
pub(crate) struct LowSlack {
    /// What to set it back to. None if nothing was changed.
    #[cfg(target_os = "linux")]
    before: Option<core::num::NonZeroU64>,
}

impl LowSlack {
    /// Lowers the slack of the calling thread, which drops this. A kernel that refuses leaves it as
    /// it is.
    pub(crate) fn begin() -> Self {
        LowSlack {
            #[cfg(target_os = "linux")]
            before: lowered(),
        }
    }
}

#[cfg(target_os = "linux")]
fn lowered() -> Option<core::num::NonZeroU64> {
    use core::num::NonZeroU64;
    use rustix::thread::{current_timer_slack, set_current_timer_slack};
    // 0 is that of a real-time thread, which has none.
    let before = NonZeroU64::new(current_timer_slack().ok()?)?;
    let lowered =
        before != NonZeroU64::MIN && set_current_timer_slack(Some(NonZeroU64::MIN)).is_ok();
    lowered.then_some(before)
}

#[cfg(target_os = "linux")]
impl Drop for LowSlack {
    fn drop(&mut self) {
        if self.before.is_some() {
            let _ = rustix::thread::set_current_timer_slack(self.before);
        }
    }
}
