//! The counter that the instructions' deadlines are on, against the clock.
//!
//! A park's bound is kept by the monotonic clock, which is read once a wait. The counter only says
//! how long *one* wait may last, at most [`LONGEST_WAIT`](super::monitor::LONGEST_WAIT): an error of the
//! rate makes a wait longer or shorter by as much, and never adds up over a park. So it need not
//! be known well; it is measured over a millisecond, and the error of that is stated.

use crate::core::time::{DurNs, MonoNs};

/// The time over which the rate is measured.
pub(super) const WINDOW: DurNs = DurNs::from_ms(1);

/// How many times counter and clock are read for one reading of both: the closest pair counts.
const READINGS: u32 = 8;

/// How far apart the rate that the machine states and the measured one may be: the clock may be slewed by
/// 500 ppm, and a crystal is off by some.
const AGREE_PPM: u64 = 1_000;

/// The counter's rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scale {
    /// Ticks a second.
    pub(super) hz: u64,
    /// Against the clock, at most.
    pub(super) error_ppm: u32,
}

/// One reading of counter and clock together.
struct Reading {
    ticks: u64,
    at: MonoNs,
    /// The counter's readings before and after the clock's lie this far apart.
    spread: u64,
}

impl Scale {
    /// Measures the rate of `ticks` against `clock`, over [`WINDOW`], spinning. Where the machine
    /// states a rate (`nominal_hz`) and it agrees, that one is taken. `None` for a counter that
    /// does not run.
    ///
    /// The error is half the spread of both readings over the window: with a clock read of 30 ns,
    /// some 30 ppm. An interruption between the readings of a pair widens it and is seen in it; one
    /// between the two pairs lengthens the window, and does no harm.
    pub(super) fn measure(
        ticks: impl Fn() -> u64,
        clock: impl Fn() -> MonoNs,
        nominal_hz: Option<u64>,
    ) -> Option<Scale> {
        let first = Reading::closest(&ticks, &clock);
        while clock().since(first.at) < WINDOW {
            core::hint::spin_loop();
        }
        let last = Reading::closest(&ticks, &clock);
        let counted = last.ticks.checked_sub(first.ticks).filter(|counted| *counted > 0)?;
        let hz = scaled(counted, 1_000_000_000, last.at.since(first.at).0)?;
        // One tick more, since a reading is a whole number.
        let error_ticks = first.spread.saturating_add(last.spread).div_ceil(2).saturating_add(1);
        let error_ppm = scaled(error_ticks, 1_000_000, counted)?;
        let scale =
            |hz, error: u64| Scale { hz, error_ppm: u32::try_from(error).unwrap_or(u32::MAX) };
        if let Some(stated) = nominal_hz.filter(|hz| *hz > 0) {
            let apart = scaled(stated.abs_diff(hz), 1_000_000, hz).unwrap_or(u64::MAX);
            if apart <= error_ppm.saturating_add(AGREE_PPM) {
                return Some(scale(stated, apart.saturating_add(error_ppm)));
            }
        }
        Some(scale(hz, error_ppm)).filter(|scale| scale.hz > 0)
    }

    /// Ticks in `duration`, rounded up, so that a wait does not end just before its time.
    pub(super) fn ticks(&self, duration: DurNs) -> u64 {
        let ticks = (u128::from(duration.0) * u128::from(self.hz)).div_ceil(1_000_000_000);
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

impl Reading {
    fn closest(ticks: impl Fn() -> u64, clock: impl Fn() -> MonoNs) -> Reading {
        let once = || {
            let before = ticks();
            let at = clock();
            let spread = ticks().saturating_sub(before);
            Reading { ticks: before.saturating_add(spread / 2), at, spread }
        };
        let more = (1..READINGS).map(|_| once());
        more.fold(once(), |best, next| if next.spread < best.spread { next } else { best })
    }
}

/// `value * times / by`, at most `u64::MAX`; `None` where `by` is 0.
fn scaled(value: u64, times: u64, by: u64) -> Option<u64> {
    let scaled = (u128::from(value) * u128::from(times)).checked_div(u128::from(by))?;
    Some(u64::try_from(scaled).unwrap_or(u64::MAX))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::cell::Cell;
    use proptest::prelude::*;

    /// A world whose clock moves by `step` ns at each read of either.
    fn measure(hz: u64, step: u64, nominal: Option<u64>) -> Option<Scale> {
        let now = Cell::new(1_000_000_000_u64);
        let pass = || now.replace(now.get() + step);
        let ticks = || scaled(pass(), hz, 1_000_000_000).unwrap();
        Scale::measure(ticks, || MonoNs(pass()), nominal)
    }

    #[test]
    fn the_rate_is_measured_within_its_stated_error() {
        for hz in [1_000_000, 24_000_000, 100_000_000, 1_000_000_000, 2_100_000_000, 6_000_000_000]
        {
            for step in [1, 25, 700, 60_000] {
                let scale = measure(hz, step, None).unwrap();
                let apart = scaled(scale.hz.abs_diff(hz), 1_000_000, hz).unwrap();
                assert!(apart <= u64::from(scale.error_ppm) + 1, "{hz} Hz, {step} ns: {scale:?}");
            }
        }
        assert!(measure(2_100_000_000, 25, None).unwrap().error_ppm < 60);
    }

    #[test]
    fn a_stated_rate_is_taken_where_the_measured_one_agrees() {
        let stated = |hz| measure(2_100_000_000, 25, Some(hz)).unwrap().hz;
        assert_eq!(stated(2_100_300_000), 2_100_300_000);
        // A hypervisor that scales the counter and passes the statement of the real CPU on.
        assert!(stated(3_000_000_000).abs_diff(2_100_000_000) < 200_000);
        assert!(stated(0).abs_diff(2_100_000_000) < 200_000);
    }

    #[test]
    fn a_counter_that_stands_has_no_rate() {
        let now = Cell::new(0);
        let clock = || MonoNs(now.replace(now.get() + 25));
        assert_eq!(Scale::measure(|| 5, clock, Some(1_000_000)), None);
    }

    proptest! {
        #[test]
        fn a_duration_in_ticks_is_never_short_and_less_than_a_tick_long(
            hz in 1_000_u64..10_000_000_000, ns in 0_u64..=u64::MAX,
        ) {
            let ticks = Scale { hz, error_ppm: 0 }.ticks(DurNs(ns));
            let exact = u128::from(ns) * u128::from(hz);
            if ticks < u64::MAX {
                prop_assert!(u128::from(ticks) * 1_000_000_000 >= exact);
                prop_assert!(u128::from(ticks) * 1_000_000_000 < exact + 1_000_000_000);
            } else {
                prop_assert!(exact > u128::from(u64::MAX - 1) * 1_000_000_000);
            }
        }
    }
}
