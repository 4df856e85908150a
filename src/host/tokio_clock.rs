//! The clock of a tokio runtime, and sleeping by its time driver.

use crate::core::time::{Clock, DurNs, MonoNs, Timer};
use crate::monotonic;
use core::time::Duration;
use std::sync::OnceLock;
use std::time::Instant as StdInstant;
use tokio::time::{Instant, Sleep};

/// tokio's clock: [`tokio::time::Instant`] in nanoseconds of the process's monotonic clock.
///
/// # Which time it tells
///
/// That of [`StdClock`](super::StdClock), behind it by the time between two clock reads (some tens of
/// nanoseconds, the same for all clocks of the process) and never ahead. So instants of the two can be
/// mixed, and a sleep by either never ends early by the other.
///
/// Where a test has paused the runtime's time (`tokio::time::pause`, tokio's feature `test-util`), it
/// tells the paused time to who asks from within that runtime: it stands still, and goes on by
/// `tokio::time::advance`, or to the next timer where the runtime has nothing else to do. An instant of
/// `StdClock` has no meaning there.
///
/// # As a timer
///
/// [`sleep_until`](Timer::sleep_until) is tokio's own sleep, which rounds up to a whole millisecond: a
/// sleep of 200 us ends 0.8 to 2 ms late. It serves time-outs, and tests that pause time. For the
/// predicted sleep of a wait take [`PreciseTimer`](super::PreciseTimer).
///
/// # Panics
///
/// A sleep panics where tokio's does: outside a runtime, or on one without its time driver.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TokioClock(());

/// One instant by both clocks.
struct Anchor {
    instant: StdInstant,
    /// Read right before.
    ns: MonoNs,
}

/// The longest sleep asked of tokio at a time, which cannot add any duration to an instant.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

impl TokioClock {
    /// The clock.
    #[must_use]
    pub const fn new() -> Self {
        TokioClock(())
    }

    /// tokio's sleep until `at`, as a future that has a name and is `Send`. It ends a year from now at
    /// the latest; [`sleep_until`](Timer::sleep_until) has no such end.
    #[must_use = "a future does nothing until it is awaited"]
    pub fn sleep(&self, at: MonoNs) -> Sleep {
        let now = Instant::now();
        let left = Duration::from(at.since(mono_ns(now)));
        tokio::time::sleep_until(now + left.min(LONGEST))
    }

    /// The instant of tokio's that is `at` on this clock; None where tokio has no such instant.
    #[must_use]
    pub fn instant(&self, at: MonoNs) -> Option<Instant> {
        let Anchor { instant, ns } = anchor();
        let before = Duration::from(ns.since(at));
        let after = Duration::from(at.since(*ns));
        Some(Instant::from_std(instant.checked_sub(before)?.checked_add(after)?))
    }
}

impl Clock for TokioClock {
    fn monotonic_ns(&self) -> MonoNs {
        mono_ns(Instant::now())
    }
}

impl Timer for TokioClock {
    async fn sleep_until(&self, at: MonoNs) {
        while self.monotonic_ns() < at {
            self.sleep(at).await;
        }
    }
}

/// `instant` in nanoseconds of the process's monotonic clock.
fn mono_ns(instant: Instant) -> MonoNs {
    let instant = instant.into_std();
    let anchor = anchor();
    match instant.checked_duration_since(anchor.instant) {
        Some(after) => anchor.ns.after(DurNs::from(after)),
        // Of a time that was paused before the first clock of the process was asked.
        None => MonoNs(anchor.ns.0.saturating_sub(DurNs::from(anchor.instant - instant).0)),
    }
}

/// The closest of a few pairs of reads: one between whose halves the thread was interrupted would put
/// the two clocks apart for the life of the process.
fn anchor() -> &'static Anchor {
    static ANCHOR: OnceLock<Anchor> = OnceLock::new();
    ANCHOR.get_or_init(|| {
        let pairs = (0..64).map(|_| {
            let ns = monotonic::now();
            let instant = StdInstant::now();
            (monotonic::now().since(ns), Anchor { instant, ns })
        });
        pairs.min_by_key(|(apart, _)| *apart).expect("there are pairs").1
    })
}
