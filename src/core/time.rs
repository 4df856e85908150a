//! Time in whole nanoseconds: an instant of a monotonic clock, a duration, and who tells them.
//!
//! Every operation saturates: a deadline that lies beyond the range is the last instant there is,
//! which no clock reaches, so it never comes.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

/// An instant of a monotonic clock, in nanoseconds since a start that only the clock knows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct MonoNs(pub u64);

/// A duration in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct DurNs(pub u64);

impl MonoNs {
    /// The last instant. A deadline of `MAX` never comes.
    pub const MAX: MonoNs = MonoNs(u64::MAX);

    /// How long after `earlier` this is; zero if `earlier` is the later one.
    #[must_use]
    pub const fn since(self, earlier: MonoNs) -> DurNs {
        DurNs(self.0.saturating_sub(earlier.0))
    }

    /// The instant `duration` after this one, [`MAX`](Self::MAX) at the most.
    #[must_use]
    pub const fn after(self, duration: DurNs) -> MonoNs {
        MonoNs(self.0.saturating_add(duration.0))
    }
}

impl DurNs {
    /// No time at all.
    pub const ZERO: DurNs = DurNs(0);
    /// The longest duration, about 584 years.
    pub const MAX: DurNs = DurNs(u64::MAX);

    /// A duration of `us` microseconds, [`MAX`](Self::MAX) at the most.
    #[must_use]
    pub const fn from_us(us: u64) -> DurNs {
        DurNs(us.saturating_mul(1_000))
    }

    /// A duration of `ms` milliseconds, [`MAX`](Self::MAX) at the most.
    #[must_use]
    pub const fn from_ms(ms: u64) -> DurNs {
        DurNs(ms.saturating_mul(1_000_000))
    }

    /// The whole microseconds of this duration.
    #[must_use]
    pub const fn as_us(self) -> u64 {
        self.0 / 1_000
    }
}

impl fmt::Display for DurNs {
    /// With the unit that keeps it short, rounded towards zero: `950 ns`, `12.3 us`, `2.05 ms`, `3 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            ..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (1_000, "us"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        let whole = self.0 / unit;
        let hundredths = self.0 % unit * 100 / unit;
        match (whole, hundredths) {
            (_, 0) => write!(f, "{whole} {name}"),
            (..10, _) => write!(f, "{whole}.{hundredths:02} {name}"),
            (..100, 10..) => write!(f, "{whole}.{} {name}", hundredths / 10),
            _ => write!(f, "{whole} {name}"),
        }
    }
}

impl From<Duration> for DurNs {
    /// Longer than 584 years becomes [`DurNs::MAX`].
    fn from(duration: Duration) -> Self {
        DurNs(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<DurNs> for Duration {
    fn from(duration: DurNs) -> Self {
        Duration::from_nanos(duration.0)
    }
}

/// A monotonic clock.
pub trait Clock {
    /// The present instant. Never earlier than an instant this clock told before.
    fn monotonic_ns(&self) -> MonoNs;
}

/// Sleeps until an instant of the clock it belongs to.
#[allow(async_fn_in_trait, reason = "waits run on one thread; their futures need not be Send")]
pub trait Timer {
    /// Returns at `at` or later; at once where `at` has passed. A timer that blocks the thread
    /// does so within the first poll, and its future is never pending.
    async fn sleep_until(&self, at: MonoNs);
}

impl<T: Clock + ?Sized> Clock for &T {
    #[inline]
    fn monotonic_ns(&self) -> MonoNs {
        (**self).monotonic_ns()
    }
}

impl<T: Timer + ?Sized> Timer for &T {
    async fn sleep_until(&self, at: MonoNs) {
        (**self).sleep_until(at).await;
    }
}

/// A clock that stands still until it is moved, for tests and simulations.
///
/// As a [`Timer`] its sleep moves the clock to the instant slept for and returns at once. It can
/// be shared between threads; its loads and stores are relaxed.
#[derive(Default, Debug)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that shows zero.
    #[must_use]
    pub const fn new() -> Self {
        ManualClock(AtomicU64::new(0))
    }

    /// Moves the clock on by `duration`, to [`MonoNs::MAX`] at the most.
    pub fn advance(&self, duration: DurNs) {
        self.set(self.monotonic_ns().after(duration));
    }

    /// Moves the clock on to `at`. A clock never goes back: an earlier instant changes nothing.
    pub fn set(&self, at: MonoNs) {
        self.0.fetch_max(at.0, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn monotonic_ns(&self) -> MonoNs {
        MonoNs(self.0.load(Ordering::Relaxed))
    }
}

impl Timer for ManualClock {
    async fn sleep_until(&self, at: MonoNs) {
        self.set(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_saturates_at_both_ends() {
        assert_eq!(MonoNs(5).since(MonoNs(7)), DurNs::ZERO);
        assert_eq!(MonoNs(u64::MAX - 1).after(DurNs(9)), MonoNs::MAX);
        assert_eq!(DurNs::from_us(u64::MAX), DurNs::MAX);
        assert_eq!(DurNs::from(Duration::MAX), DurNs::MAX);
    }

    #[test]
    fn a_duration_is_shown_with_the_unit_that_keeps_it_short() {
        use alloc::string::ToString;
        let shown = [0, 999, 1_000, 2_050, 12_345, 99_050, 345_678, 2_000_000, 3_456_000_000];
        let expected =
            ["0 ns", "999 ns", "1 us", "2.05 us", "12.3 us", "99 us", "345 us", "2 ms", "3.45 s"];
        assert_eq!(shown.map(|ns| DurNs(ns).to_string()), expected);
    }

    #[test]
    fn a_manual_clock_sleeps_by_moving_and_never_goes_back() {
        let clock = ManualClock::new();
        clock.advance(DurNs(10));
        crate::run_inline(clock.sleep_until(MonoNs(25))).unwrap();
        assert_eq!(clock.monotonic_ns(), MonoNs(25));
        crate::run_inline(clock.sleep_until(MonoNs(3))).unwrap();
        clock.set(MonoNs(4));
        assert_eq!(clock.monotonic_ns(), MonoNs(25));
    }
}
