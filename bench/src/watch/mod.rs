//! The suite `watch`: how many watches a second a `Watcher` takes and ends, and what it costs while
//! nothing happens.

mod idle;
mod rate;

use crate::measure::Effort;
use crate::report::Section;

pub fn run(effort: Effort) -> Vec<Section> {
    let mut sections = rate::run(effort);
    sections.extend(idle::run(effort));
    sections
}
