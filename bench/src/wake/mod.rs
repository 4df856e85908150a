//! The suite `wake`: from a store, or a wake, on another thread to the task that resumes.

mod watcher;

use crate::measure::Effort;
use crate::report::Section;

pub fn run(effort: Effort) -> Vec<Section> {
    vec![watcher::run(effort)]
}
