//! The suite `wake`: from a store on another thread to the code that waited for it.
//!
//! The thread that stores takes the time, stores, and where a peer needs it makes the peer's call. The
//! code that waited takes the time as the first thing it does. Every figure so contains one clock read
//! and the way of one cache line between two cores. Subjects take turns, a few waits each.

mod blocking;
mod ours;
mod runtimes;
mod spin;
mod watcher;

use crate::host::clock_read_ns;
use crate::latency::rounds;
use crate::measure::Effort;
use crate::report::{Cell, Section};
use crate::trigger::{Action, Trigger};
use gpu_async_reactor::CompletionLine;

const TARGET: f64 = 1.3;
/// Waits of one subject before the next has its turn.
const WAITS: usize = 10;

/// Who waits, in its own way.
pub trait Subject {
    fn name(&self) -> &str;
    fn kind(&self) -> Kind;
    /// What the other thread does right after it took the time.
    fn action(&self) -> Action;
    /// Waits `waits` times, each time firing the trigger before it waits, and says how many
    /// nanoseconds after the action it went on.
    fn wait(&mut self, trigger: &mut Trigger, waits: usize) -> Vec<f64>;
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// What ours is compared with.
    RawSpin,
    /// Ours by a plan that has a target.
    Spinning,
    /// Ours otherwise.
    Ours,
    Peer,
}

/// A subject, or why it cannot run here.
type Entry = Result<Box<dyn Subject>, NotRun>;

pub struct NotRun {
    name: String,
    why: String,
}

fn entries() -> Vec<Entry> {
    // One line for all who look at a word: how far a line is from a core depends on its address, and
    // made more of a difference than anything else between them.
    let line = CompletionLine::shared();
    let mut entries: Vec<Entry> = spin::all(&line).into_iter().map(Ok).collect();
    entries.extend(ours::all(&line));
    entries.extend(blocking::all().into_iter().map(Ok));
    entries.extend(runtimes::all().into_iter().map(Ok));
    entries
}

pub fn run(effort: Effort) -> Vec<Section> {
    vec![ours_and_peers(effort), watcher::run(effort)]
}

fn ours_and_peers(effort: Effort) -> Section {
    let (count, turns) = (effort.pick(5, 15), effort.pick(20, 60));
    let mut section = Section::new("wake", &["ns from the store", "p50", "p99", "least"]);
    section.note(format!(
        "{count} rounds of {} waits each, {WAITS} at a time in turn; the store comes 100 to 164 us after \
         the wait began",
        turns * WAITS
    ));
    section.note(format!("one clock read, in every figure: {:.1} ns", clock_read_ns()));
    let (mut subjects, mut not_run) = (Vec::new(), Vec::new());
    for entry in entries() {
        match entry {
            Ok(subject) => subjects.push(subject),
            Err(reason) => not_run.push(reason),
        }
    }
    let mut trigger = Trigger::new();
    let latencies = rounds(count, turns, &mut subjects, |subject| {
        trigger.set_action(subject.action());
        subject.wait(&mut trigger, WAITS)
    });
    section.note(trigger.left_out());
    let raw = subjects.iter().position(|subject| subject.kind() == Kind::RawSpin);
    let raw = raw.expect("the raw spin is a subject");
    for (subject, latency) in subjects.iter().zip(&latencies) {
        let mut cells = latency.cells();
        cells.push(Cell::Counted(latency.least));
        section.row(subject.name(), cells);
        if subject.kind() == Kind::Spinning {
            let what = format!("{} / {}", subject.name(), subjects[raw].name());
            section.verdicts.extend(latency.verdicts(&what, &latencies[raw], TARGET));
        }
    }
    for NotRun { name, why } in not_run {
        section.note(format!("{name}: not run: {why}"));
        section.row(name, vec![Cell::Absent("not run".to_string())]);
    }
    section
}
