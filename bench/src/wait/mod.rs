//! The suite `wait`: work of the software device under each plan, its lateness and its CPU.
//!
//! The measuring is that of `gpu-wait bench`: one task of a runtime that waits for one piece of work
//! after the other. Lengths of work are uniform within the jitter. Each repetition measures every
//! plan once, each with the same lengths.

mod tune;

use crate::measure::{Effort, Samples};
use crate::report::{Cell as TableCell, Section, Verdict};
use gpu_async_reactor::backend::software::SoftwareDevice;
use gpu_async_reactor::host::Runtime;
use gpu_async_reactor::{DurNs, Result};
use gpu_wait::bench::measure::{Counts, measure};
use gpu_wait::bench::summary::Summary;
use gpu_wait::bench::work::Workload;
use gpu_wait::units::parse_jitter;
use std::cell::Cell;
use std::rc::Rc;

/// Work in microseconds, how many waits for it a repetition, and how many quickly.
const WORKS: [(u64, u32, u32); 3] = [(200, 200, 40), (2_000, 100, 15), (10_000, 20, 3)];
const JITTERS: [&str; 3] = ["0%", "5%", "20%"];
const PLANS: [&str; 4] =
    ["block", "poll", "spin:backstop_us=20000", "flag:park_us=50,backstop_us=20000"];

pub fn run(effort: Effort) -> Vec<Section> {
    let mut sections = Vec::new();
    for (work_us, full, quick) in WORKS {
        for jitter in JITTERS {
            let load = Load { work: DurNs::from_us(work_us), jitter };
            sections.push(section(&load, effort.pick(quick, full), effort));
        }
    }
    sections
}

/// The device's work.
struct Load {
    work: DurNs,
    jitter: &'static str,
}

impl Load {
    /// What `waits` waits by `plan` were like. A new device, stream and runtime each time.
    fn measure(&self, plan: &str, waits: u32, seed: u64) -> Result<(Summary, String)> {
        let device = SoftwareDevice::new()?;
        let runtime = Runtime::builder(plan, "gpu-reactor").device(device.caps()).build()?;
        let stream = device.stream_on(runtime.doorbell())?;
        let jitter = parse_jitter(self.jitter).expect("one of the above");
        let workload = Workload::new(self.work, jitter, seed);
        let counts = Counts { warm_up: 5, waits };
        let alone = Rc::new(Cell::default());
        let samples =
            runtime.block_on(measure(&runtime, &stream, workload, counts, &alone, || {}))??;
        Ok((Summary::of(&samples), runtime.plans().label()))
    }
}

/// What was measured of one plan, a sample a repetition.
#[derive(Default)]
struct Measured {
    label: String,
    p50_us: Samples,
    p99_us: Samples,
    cpu_percent: Samples,
    calls: Samples,
    late_percent: Samples,
}

impl Measured {
    fn add(&mut self, (summary, label): (Summary, String)) {
        self.label = label;
        self.p50_us.0.push(summary.lateness_ns.p50 as f64 / 1_000.0);
        self.p99_us.0.push(summary.lateness_ns.p99 as f64 / 1_000.0);
        self.cpu_percent.0.push(summary.cpu_share.unwrap_or(f64::NAN) * 100.0);
        self.calls.0.push(summary.driver_calls);
        self.late_percent.0.push(summary.late_share * 100.0);
    }
}

fn section(load: &Load, waits: u32, effort: Effort) -> Section {
    let repetitions = effort.pick(2, 7);
    let tuned = tune::tune(load, effort);
    let texts: Vec<&str> = PLANS.into_iter().chain([tuned.as_str()]).collect();
    let mut measured: Vec<Measured> = texts.iter().map(|_| Measured::default()).collect();
    for repetition in 0..repetitions {
        for turn in 0..texts.len() {
            let at = (repetition + turn) % texts.len();
            let seed = 1_000 + repetition as u64;
            let summary = load.measure(texts[at], waits, seed).expect("the software device works");
            measured[at].add(summary);
        }
    }

    let title = format!("wait: work of {} ± {}", load.work, load.jitter);
    let columns =
        ["plan", "lateness p50, us", "p99, us", "CPU, %", "driver calls a wait", "late, %"];
    let mut section = Section::new(title, &columns);
    section.note(format!("{repetitions} repetitions of {waits} waits"));
    for plan in &measured {
        let cells =
            [&plan.p50_us, &plan.p99_us, &plan.cpu_percent, &plan.calls, &plan.late_percent];
        section.row(&plan.label, cells.map(|samples| TableCell::Measured(samples.spread())).into());
    }
    let (poll, tuned) = (&measured[1], &measured[PLANS.len()]);
    let bound = match (load.work.as_us(), load.jitter) {
        (2_000, "5%") => 0.08,
        (10_000, "0%") => 0.02,
        _ => return section,
    };
    let later = tuned.p50_us.0.iter().zip(&poll.p50_us.0).map(|(tuned, poll)| tuned - poll);
    let later = Samples(later.collect());
    section.verdicts.push(Verdict::at_most("tuned spin, p50 behind poll's", &later, " us", 2.0));
    let share = tuned.cpu_percent.ratios_to(&poll.cpu_percent);
    section.verdicts.push(Verdict::at_most("tuned spin, CPU of poll's", &share, " x", bound));
    section
}
