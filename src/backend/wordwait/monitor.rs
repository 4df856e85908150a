//! The logic around the instructions: the same for each of them, and tested with a scripted one.
//!
//! ```text
//!            .------------------ the bound has not passed -----------------.
//!            v                                                             |
//!  park -> arm -> look -> [not ready] -> wait -> look -> [not ready] -> clock
//!                  |                              |                        |
//!                ready                          ready               the bound has passed
//!                  v                              v                        v
//!                true                           true                     false
//! ```
//!
//! # The interleaving that must not lose a store (F3)
//!
//! ```text
//! waiter:   look -> no | arm | look -> ? | wait
//! device:   ....(a)....|.(b).|....(c)....|.(d)...
//! ```
//!
//! A store in (a) or (b) is seen by the look behind the arm. One in (c), after the look has read,
//! or in (d), falls into an armed monitor, and the wait returns at once, or is not entered. Without
//! the look behind the arm, (a) would be slept over until the wait's deadline. `model.rs` shows both to
//! the model checker.

use super::scale::Scale;
use crate::core::line::CompletionLine;
use crate::core::time::{DurNs, MonoNs};

/// The longest single wait. Whatever makes a monitor miss a store (a thread that was moved to
/// another CPU between its arm and its wait, and found that one's monitor armed by somebody else)
/// costs no more than this. At a thousand returns a second the re-arms cost less than 0.1 % of a core.
pub(super) const LONGEST_WAIT: DurNs = DurNs::from_ms(1);

/// The instructions of one family. `&self` is the proof that the CPU has them.
pub(super) trait Monitor {
    /// The counter that the deadlines of waits are on.
    fn ticks(&self) -> u64;

    /// Arms the calling CPU's monitor on `line`. Later loads of this thread are not done before.
    fn arm(&self, line: &CompletionLine);

    /// Waits until the armed line is stored to, or until the counter reads `until`, or for any time
    /// shorter than that. A store since the arm makes it return at once. It may end later than
    /// `until` where the family's waits have a granularity.
    fn wait(&self, until: u64) -> Ended;
}

/// What an instruction says about the end of its wait.
#[allow(dead_code, reason = "only umwait tells them apart, and some machines have no instruction")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// The kernel's cap on the length of waits ended it.
    Capped,
    /// Anything else, or it does not say.
    Unknown,
}

/// How a park went.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Parked {
    /// What `ready` said last.
    pub ready: bool,
    /// How many times the CPU was told to wait. More than one where waits ended early, by an
    /// interrupt, a store that made nothing ready, or the kernel's cap, and in a long park.
    pub waits: u64,
    /// How many of them the CPU said were ended by the kernel's cap (`umwait` only).
    pub capped: u64,
}

/// Parks until `ready(line)` or until `bound` has passed on `clock`.
pub(super) fn park<M: Monitor>(
    monitor: &M,
    scale: &Scale,
    clock: impl Fn() -> MonoNs,
    line: &CompletionLine,
    ready: impl Fn(&CompletionLine) -> bool,
    bound: DurNs,
) -> Parked {
    let mut parked = Parked::default();
    if bound == DurNs::ZERO {
        parked.ready = ready(line);
        return parked;
    }
    let end = clock().after(bound);
    let mut left = bound;
    loop {
        monitor.arm(line);
        // This look stands between the arm and the wait: see above.
        if ready(line) {
            break;
        }
        let length = scale.ticks(left.min(LONGEST_WAIT));
        parked.waits += 1;
        if monitor.wait(monitor.ticks().saturating_add(length)) == Ended::Capped {
            parked.capped += 1;
        }
        if ready(line) {
            break;
        }
        left = end.since(clock());
        if left == DurNs::ZERO {
            return parked;
        }
    }
    parked.ready = true;
    parked
}
