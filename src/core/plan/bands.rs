//! Bands: a wait plan for each range of row counts, since the work of a large batch lasts longer
//! and is worth another wait than that of a small one.

use super::WaitPlan;
use super::fault::{Fault, Piece};
use super::parse;
use super::resolve::{DeviceCaps, HostCaps, Resolved};
use crate::core::error::{Error, Result};
use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;
use core::str::FromStr;

/// How many bands there are at the most.
pub const BANDS_MAX: usize = 4;

/// What begins the edge of a band.
const ROWS: &str = "rows>=";

/// One to [`BANDS_MAX`] wait plans, each from a row count on; the first from 0.
///
/// Spelled `<plan>;rows>=<n>:<plan>;...`, with edges above 0 that strictly increase. A single plan
/// is the text of one band.
///
/// ```
/// # use gpu_async_reactor::{WaitBands, WaitPlan};
/// let bands = WaitBands::parse("poll;rows>=8:spin:backstop_us=500;rows>=256:block")?;
/// assert_eq!(bands.select(7).label(), "poll");
/// assert_eq!(bands.select(8).label(), "spin:backstop_us=500");
/// assert_eq!(bands.select(u64::MAX).label(), "block");
/// # Ok::<(), gpu_async_reactor::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WaitBands {
    /// Ascending from 0. What lies behind `len` repeats the first, so that equal bands are equal
    /// values.
    bands: [(u64, WaitPlan); BANDS_MAX],
    /// `1..=BANDS_MAX`.
    len: u8,
}

impl WaitBands {
    /// These bands: each the row count it begins at and its plan. `None` unless there are one to
    /// [`BANDS_MAX`] of them, the first from 0 rows and each later one from more than the one
    /// before. The plans are not checked.
    #[must_use]
    pub fn new(bands: &[(u64, WaitPlan)]) -> Option<WaitBands> {
        let (&first, more) = bands.split_first()?;
        let mut built = WaitBands::from(first.1);
        for &(from_rows, plan) in more {
            if from_rows <= built.last_edge() || !built.push(from_rows, plan) {
                return None;
            }
        }
        (first.0 == 0).then_some(built)
    }

    /// The bands that `text` spells. Linear in the text; allocates only for an error.
    ///
    /// # Errors
    ///
    /// [`InvalidPlan`](crate::ErrorCode::InvalidPlan) as of [`WaitPlan::parse`], with the whole
    /// text and a span within it.
    pub fn parse(text: &str) -> Result<WaitBands> {
        bands(Piece::whole(text)).map_err(|fault| fault.into_error(text))
    }

    /// The canonical text of these bands, which [`parse`](Self::parse) reads back where it reads
    /// back that of each plan. `Display` writes the same.
    #[must_use]
    pub fn label(&self) -> String {
        self.to_string()
    }

    /// The plan for a step of `rows` rows: that of the last band that begins at `rows` or fewer.
    /// Looks at no more than [`BANDS_MAX`] edges.
    #[must_use]
    pub fn select(&self, rows: u64) -> &WaitPlan {
        let mut selected = &self.bands[0].1;
        for (from_rows, plan) in self.as_slice() {
            if *from_rows <= rows {
                selected = plan;
            }
        }
        selected
    }

    /// The row count each band begins at, and its plan, ascending from 0 rows. Never empty.
    #[must_use]
    pub fn as_slice(&self) -> &[(u64, WaitPlan)] {
        &self.bands[..usize::from(self.len)]
    }

    /// What of each band can run on this host; see [`WaitPlan::resolve`].
    #[must_use]
    pub fn resolve(&self, host: &HostCaps) -> ResolvedBands {
        self.resolve_each(|plan| plan.resolve(host))
    }

    /// What of each band can run on this host with this device; see [`WaitPlan::resolve_on`].
    #[must_use]
    pub fn resolve_on(&self, host: &HostCaps, device: &DeviceCaps) -> ResolvedBands {
        self.resolve_each(|plan| plan.resolve_on(host, device))
    }

    fn resolve_each(&self, resolve: impl Fn(&WaitPlan) -> Resolved) -> ResolvedBands {
        let mut resolved = ResolvedBands { requested: *self, bands: *self, warnings: Vec::new() };
        for at in 0..BANDS_MAX {
            let one = resolve(&self.bands[at].1);
            resolved.bands.bands[at].1 = one.plan;
            if at < usize::from(self.len) {
                resolved.warnings.extend(one.warning);
            }
        }
        resolved
    }

    fn last_edge(&self) -> u64 {
        self.as_slice().last().map_or(0, |band| band.0)
    }

    /// Whether there was room for one more.
    fn push(&mut self, from_rows: u64, plan: WaitPlan) -> bool {
        let room = self.bands.get_mut(usize::from(self.len));
        let had_room = room.is_some();
        if let Some(band) = room {
            *band = (from_rows, plan);
            self.len += 1;
        }
        had_room
    }
}

impl From<WaitPlan> for WaitBands {
    /// One band: this plan for every row count.
    fn from(plan: WaitPlan) -> Self {
        WaitBands { bands: [(0, plan); BANDS_MAX], len: 1 }
    }
}

impl FromStr for WaitBands {
    type Err = Error;

    /// [`WaitBands::parse`].
    fn from_str(text: &str) -> Result<Self> {
        WaitBands::parse(text)
    }
}

impl fmt::Display for WaitBands {
    /// The [`label`](WaitBands::label).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (from_rows, plan)) in self.as_slice().iter().enumerate() {
            if at > 0 {
                write!(f, ";{ROWS}{from_rows}:")?;
            }
            plan.fmt(f)?;
        }
        Ok(())
    }
}

fn bands(text: Piece<'_>) -> Result<WaitBands, Fault> {
    let (first, mut rest) = text.split_before(";");
    if first.text.starts_with(ROWS) {
        return Err(Fault::new("bands", "first the plan that holds from 0 rows", first));
    }
    let mut bands = WaitBands::from(parse::plan(first)?);
    while let Some(tail) = rest {
        let (band, next) = tail.skip(1).split_before(";");
        rest = next;
        if bands.as_slice().len() == BANDS_MAX {
            return Err(Fault::new("bands", format!("at most {BANDS_MAX}"), tail));
        }
        if !band.text.starts_with(ROWS) {
            return Err(Fault::new("bands", "\"rows>=...:\" and a plan behind \";\"", band));
        }
        let (edge, plan) = band.skip(ROWS.len()).split_before(":");
        let from_rows = parse::edge(edge, bands.last_edge())?;
        let Some(plan) = plan else {
            return Err(Fault::new("bands", "\":\" and a plan behind the row count", band.end()));
        };
        bands.push(from_rows, parse::plan(plan.skip(1))?);
    }
    Ok(bands)
}

/// Bands, and what of them runs here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolvedBands {
    /// The bands that were asked for.
    pub requested: WaitBands,
    /// The bands that run, with the same edges.
    pub bands: WaitBands,
    /// The warning of each band that took a fallback, in the order of the bands.
    pub warnings: Vec<Error>,
}

impl ResolvedBands {
    /// The running plan for a step of `rows` rows; see [`WaitBands::select`].
    #[must_use]
    pub fn select(&self, rows: u64) -> &WaitPlan {
        self.bands.select(rows)
    }

    /// The running bands, and ` (fallback from <requested>)` where a band took a fallback.
    #[must_use]
    pub fn label(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for ResolvedBands {
    /// The [`label`](ResolvedBands::label).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bands.fmt(f)?;
        if self.warnings.is_empty() {
            return Ok(());
        }
        write!(f, " (fallback from {})", self.requested)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Park;

    const POLL: WaitPlan = WaitPlan { predict: None, park: Park::QueryPoll };
    const BLOCK: WaitPlan = WaitPlan { predict: None, park: Park::Block };

    #[test]
    fn a_band_holds_from_its_edge_up_to_the_next() {
        let text = "block;rows>=1:poll;rows>=10:spin:backstop_us=1;rows>=18446744073709551615:poll";
        let bands = WaitBands::parse(text).unwrap();
        assert_eq!(bands.label(), text);
        let selected = [0, 1, 9, 10, u64::MAX - 1, u64::MAX].map(|rows| bands.select(rows).label());
        let spin = "spin:backstop_us=1";
        assert_eq!(selected, ["block", "poll", "poll", spin, spin, "poll"]);
    }

    #[test]
    fn a_plan_alone_is_one_band_for_every_row_count() {
        let bands = WaitBands::parse("poll").unwrap();
        assert_eq!(bands, WaitBands::from(POLL));
        assert_eq!(bands.as_slice(), [(0, POLL)]);
        assert_eq!(bands.select(u64::MAX), &POLL);
    }

    #[test]
    fn bands_built_by_hand_obey_the_rules_of_the_text() {
        let edges = |edges: &[u64]| {
            WaitBands::new(&edges.iter().map(|&from_rows| (from_rows, BLOCK)).collect::<Vec<_>>())
        };
        assert!(edges(&[]).is_none());
        assert!(edges(&[1]).is_none());
        assert!(edges(&[0, 0]).is_none());
        assert!(edges(&[0, 5, 5]).is_none());
        assert!(edges(&[0, 1, 2, 3, 4]).is_none());
        assert_eq!(edges(&[0, 1, 2, 3]).unwrap().as_slice().len(), BANDS_MAX);
        assert_eq!(edges(&[0, 7]), WaitBands::parse("block;rows>=7:block").ok());
    }

    #[test]
    fn every_band_that_falls_back_keeps_its_warning() {
        let text = "flag:park_us=1,backstop_us=2;rows>=4:block;rows>=8:spin:backstop_us=3";
        let bands = WaitBands::parse(text).unwrap();
        let host = HostCaps { device_word_wait: Err("no such bit".into()) };
        let device = DeviceCaps { store: Err("it did not land".into()) };

        let resolved = bands.resolve(&host);
        assert_eq!(resolved.warnings.len(), 1);
        assert_eq!(resolved.select(0), &POLL);
        assert_eq!(resolved.select(8), bands.select(8));

        let resolved = bands.resolve_on(&host, &device);
        let named = |at: usize| resolved.warnings[at].args()[0].as_str();
        assert_eq!(named(0), "flag:park_us=1,backstop_us=2");
        assert_eq!(named(1), "spin:backstop_us=3");
        let running = "poll;rows>=4:block;rows>=8:poll";
        assert_eq!(resolved.bands, WaitBands::parse(running).unwrap());
        assert_eq!(resolved.label(), format!("{running} (fallback from {text})"));

        let all = HostCaps { device_word_wait: Ok(()) };
        assert_eq!(bands.resolve(&all).label(), text);
    }
}
