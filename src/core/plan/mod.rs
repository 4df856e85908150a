//! Wait plans: how a wait is spent, as a value and as text. The grammar is on [`WaitPlan`] and
//! [`WaitBands`].
//!
//! text -> `parse` -> [`WaitPlan`] -> `resolve` -> [`Resolved`] -> the plan that every wait runs.
//!
//! A plan is read once at start-up, resolved once against what was probed, and then only copied.
//! Nothing later ever chooses, except a row count between bands, each of which was resolved too.

mod bands;
mod fault;
mod label;
mod parse;
mod resolve;
mod rows;
#[cfg(test)]
mod tests;

pub use bands::{BANDS_MAX, ResolvedBands, WaitBands};
pub use resolve::{Capability, DeviceCaps, FALLBACKS, Fallback, HostCaps, Resolved};
pub use rows::StepRows;

use core::fmt;

/// The largest [`DeadlinePlan::window`], and how many samples an estimate keeps.
pub const WINDOW_MAX: u8 = 16;

/// How a wait is spent: a park, with or without a predicted sleep before it.
///
/// # Text
///
/// ```text
/// plan     = park [ "+predict:" deadline ]
/// park     = "block" | "poll"
///          | "flag:" park_us "," backstop_us                   (fields in any order)
///          | "spin:" backstop_us
/// deadline = margin_us "," min_sleep_us "," max_sleep_us "," window     (in any order)
/// field    = name "=" digits                               (0 to 9; no sign, no space)
/// ```
///
/// | field | range |
/// |---|---|
/// | `park_us` | 1 to 10,000 |
/// | `backstop_us` | 1 to 1,000,000 |
/// | `margin_us`, `min_sleep_us`, `max_sleep_us` | 0 to 18,446,744,073,709,551 (below 2^64 ns); `min_sleep_us <= max_sleep_us` |
/// | `window` | 1 to [`WINDOW_MAX`] |
///
/// There are no default values: a plan that leaves a field out is refused. `block` takes no
/// prediction, since the driver decides when a blocking wait looks.
///
/// [`parse`](Self::parse) reads it and [`label`](Self::label) writes it. A plan built by hand is not
/// checked; whoever runs it takes its numbers as they stand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WaitPlan {
    /// The predicted sleep before the park, if any. `None` with [`Park::Block`].
    pub predict: Option<DeadlinePlan>,
    /// What follows the sleep.
    pub park: Park,
}

/// What a wait does until the work is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Park {
    /// The vendor's blocking wait.
    Block,
    /// The status query in a loop.
    QueryPoll,
    /// Parks in hardware on the word.
    FlagWait {
        /// The longest single park, in nanoseconds.
        park_ns: u64,
        /// The longest time between two status queries, in nanoseconds.
        backstop_ns: u64,
    },
    /// Reads the word in a pause loop: user memory only, no driver call. Needs nothing of the host,
    /// and is what a host without a monitor instruction should choose rather than
    /// [`QueryPoll`](Self::QueryPoll).
    Spin {
        /// The longest time between two status queries, in nanoseconds.
        backstop_ns: u64,
    },
}

/// How the predicted sleep is computed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DeadlinePlan {
    /// How long before the predicted completion the sleep ends, in nanoseconds.
    pub margin_ns: u64,
    /// A shorter sleep is not worth it and is left out, in nanoseconds.
    pub min_sleep_ns: u64,
    /// The longest sleep, in nanoseconds.
    pub max_sleep_ns: u64,
    /// How many of the newest samples the prediction is the minimum of: 1 to [`WINDOW_MAX`]. What
    /// uses it clamps it into that range.
    pub window: u8,
}

/// The kind of a [`Park`], without its numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ParkKind {
    /// [`Park::Block`].
    Block,
    /// [`Park::QueryPoll`].
    QueryPoll,
    /// [`Park::FlagWait`].
    FlagWait,
    /// [`Park::Spin`].
    Spin,
}

impl ParkKind {
    /// Every kind.
    pub const ALL: &'static [ParkKind] =
        &[ParkKind::Block, ParkKind::QueryPoll, ParkKind::FlagWait, ParkKind::Spin];

    /// The word that begins a plan of this kind: `block`, `poll`, `flag` or `spin`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ParkKind::Block => "block",
            ParkKind::QueryPoll => "poll",
            ParkKind::FlagWait => "flag",
            ParkKind::Spin => "spin",
        }
    }
}

impl fmt::Display for ParkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Park {
    /// The kind of this park.
    #[must_use]
    pub const fn kind(&self) -> ParkKind {
        match self {
            Park::Block => ParkKind::Block,
            Park::QueryPoll => ParkKind::QueryPoll,
            Park::FlagWait { .. } => ParkKind::FlagWait,
            Park::Spin { .. } => ParkKind::Spin,
        }
    }
}
