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

/// Lowers the calling thread's timer slack to 1 ns, so that its sleeps end close to their time.
/// A kernel that refuses leaves it as it is. Nothing where threads have no such setting.
pub(crate) fn lower_timer_slack() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(Some(core::num::NonZeroU64::MIN));
}
