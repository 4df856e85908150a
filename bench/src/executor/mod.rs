//! The suite `executor`: what a task switch and a task cost, against other executors.

mod compio;
mod embassy;
mod floor;
mod futures;
mod ours;
mod smol;
mod tokio;
mod workload;

use crate::allocations::{self, Allocated};
use crate::measure::{Effort, Samples, interleave, ns_each};
use crate::report::{Cell, Section, Verdict};
use workload::{Kind, Subject};

/// How many tasks take turns.
const SIZES: [usize; 4] = [1, 8, 64, 1000];
/// The size that the target is set for.
const HEADLINE: usize = 64;
/// Our row that the target is set for.
const OWN: &str = "ours, thread token";
const TARGET: f64 = 0.75;

pub fn run(effort: Effort) -> Vec<Section> {
    vec![switches(effort), memory()]
}

fn subjects() -> Vec<Box<dyn Subject>> {
    let mut subjects: Vec<Box<dyn Subject>> = vec![
        ours::typed(OWN),
        ours::dynamic("ours, thread token, dyn tasks"),
        ours::waiting("ours, thread token, a wait pending"),
        ours::untold("ours, no thread token"),
        tokio::Tokio::boxed(false),
        tokio::Tokio::boxed(true),
        embassy::boxed(),
        Box::new(smol::Smol::default()),
        Box::new(futures::Pool::default()),
        Box::new(futures::Unordered),
        Box::new(compio::Bare::default()),
    ];
    subjects.extend(compio::Runtime::boxed());
    subjects.push(Box::new(floor::Floor::default()));
    subjects
}

/// Nanoseconds from one poll of a task to the next poll of the next.
fn switches(effort: Effort) -> Section {
    let switches = effort.pick(32_000, 128_000);
    let repetitions = effort.pick(21, 61);
    let mut subjects = subjects();
    let mut columns = vec!["ns a task switch".to_string()];
    columns.extend(SIZES.map(|size| format!("{size} tasks")));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut section = Section::new("executor: task switches", &columns);
    section.note(format!(
        "{repetitions} samples of {switches} switches; every task yields through the same future; \
         headline: {HEADLINE} tasks; CPU time"
    ));
    let by_size: Vec<Vec<Samples>> = SIZES
        .iter()
        .map(|&tasks| {
            let yields = switches / tasks;
            interleave(repetitions, &mut subjects, |subject| {
                ns_each(subject.run(tasks, yields), tasks * yields)
            })
        })
        .collect();
    for (at, subject) in subjects.iter().enumerate() {
        let cells = by_size.iter().map(|samples| Cell::Measured(samples[at].spread())).collect();
        section.row(subject.name(), cells);
    }
    let own = subjects.iter().position(|subject| subject.name() == OWN).expect("our row is there");
    for (tasks, samples) in SIZES.iter().zip(&by_size) {
        let peers = (0..subjects.len()).filter(|&at| subjects[at].kind() == Kind::Peer);
        let best = peers
            .min_by(|&a, &b| samples[a].median().total_cmp(&samples[b].median()))
            .expect("there are peers");
        let what = format!("{tasks} tasks, {OWN} / {}", subjects[best].name());
        let ratios = samples[own].ratios_to(&samples[best]);
        section.verdicts.push(Verdict::at_most(what, &ratios, " x", TARGET));
    }
    section
}

/// What a task asks of the allocator when it is new, when it takes the place of one that has
/// finished, and while it runs.
fn memory() -> Section {
    const TASKS: usize = 1000;
    /// Two, and the first allocation of each of the executor's tables.
    const TARGET_NEW: f64 = 2.01;
    let mut section = Section::new(
        "executor: memory",
        &[
            "a task",
            "bytes, new",
            "allocations, new",
            "growths of tables",
            "allocations, reused",
            "allocations a switch",
        ],
    );
    section.note(format!(
        "{TASKS} tasks at once, as in the switches; bytes: the most in use, tables included; \
         reused: the same again on the same executor"
    ));
    for subject in &mut subjects() {
        let mut allocated = |yields| {
            allocations::count(|| {
                subject.run(TASKS, yields);
            })
        };
        let new = allocated(1);
        let reused = allocated(1);
        let longer = allocated(101);
        // One allocation of each run is the workload's own countdown.
        let all = |run: Allocated| (run.calls + run.growths).saturating_sub(1) as f64;
        let new_each = new.calls.saturating_sub(1) as f64 / TASKS as f64;
        let switching = (all(longer) - all(reused)).max(0.0) / (100 * TASKS) as f64;
        let cells = [
            new.peak_bytes as f64 / TASKS as f64,
            new_each,
            new.growths as f64 / TASKS as f64,
            all(reused) / TASKS as f64,
            switching,
        ];
        if subject.name() == OWN {
            for (what, counted, target) in [
                ("allocations a new task", new_each, TARGET_NEW),
                ("allocations in a finished one's place", all(reused), 0.0),
                ("allocations a switch", switching, 0.0),
            ] {
                let counted = Samples(vec![counted]);
                section.verdicts.push(Verdict::at_most(what, &counted, "", target));
            }
        }
        section.row(subject.name(), cells.map(Cell::Counted).into());
    }
    section
}
