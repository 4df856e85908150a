//! How often the status is asked again after the word was reached.
//!
//! The word may come before the status agrees: by nanoseconds on most devices, for long if a driver
//! is at fault. The first queries follow at once; after that the next one comes after an eighth more
//! of the time since the word, so that a status that lags by 1 ms is asked some sixty times and one
//! that never agrees costs ever less.

use super::CompletionPort;
use crate::core::time::{Clock, DurNs, MonoNs, Timer};

/// The shortest time between two queries.
const SHORTEST: DurNs = DurNs::from_us(1);

/// The longest time between two queries.
const LONGEST: DurNs = DurNs::from_ms(1);

/// A pause of this length or more is slept rather than spent checking the clock.
const SLEEP_FROM: DurNs = DurNs::from_us(100);

/// The longest time between two queries of a port that has no clock, in pause hints.
const MOST_HINTS: u32 = 16_384;

/// The pause before the next query of a port that has no clock, after `hints` pause hints since the
/// word. Returns how many there are then.
pub(super) fn pause_by_hints(hints: u32) -> u32 {
    let next = (hints / 8).clamp(1, MOST_HINTS);
    (0..next).for_each(|_| core::hint::spin_loop());
    hints.saturating_add(next)
}

pub(super) struct Recheck {
    since: MonoNs,
}

impl Recheck {
    /// The word was reached now.
    pub(super) fn new<T: Clock>(time: &T) -> Self {
        Recheck { since: time.monotonic_ns() }
    }

    /// Waits until the next query is due, or until `deadline`; `port` pauses meanwhile.
    pub(super) async fn pause<P: CompletionPort, T: Clock + Timer>(
        &self,
        port: &mut P,
        time: &T,
        deadline: Option<MonoNs>,
    ) {
        let now = time.monotonic_ns();
        let wait = DurNs(now.since(self.since).0 / 8).clamp(SHORTEST, LONGEST);
        let next = now.after(wait);
        let next = deadline.map_or(next, |deadline| next.min(deadline));
        if wait >= SLEEP_FROM {
            time.sleep_until(next).await;
            return;
        }
        loop {
            port.pause().await;
            if time.monotonic_ns() >= next {
                return;
            }
        }
    }
}
