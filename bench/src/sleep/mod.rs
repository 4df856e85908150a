//! The suite `sleep`: how late the sleep of each host ends, and how soon another thread ends it.
//!
//! Every sleep is a deadline `time` from now; the lateness is read by the code that slept. Subjects take
//! turns sleep by sleep. What a program gets depends on its thread's timer slack, so each row names it
//! and it is set before each sleep.

mod interrupt;
mod ours;
mod peers;

use crate::latency::{Latency, rounds};
use crate::measure::{Effort, Samples};
use crate::report::{Cell, Section, Verdict};
use gpu_async_reactor::DurNs;
use std::num::NonZeroU64;

/// What the deadlines of waits look like: below, at and above a millisecond.
const TIMES: [DurNs; 3] = [DurNs::from_us(50), DurNs::from_us(200), DurNs::from_ms(1)];
/// See [`Sleeper::is_coarse`].
const COARSE_TURNS: usize = 4;
const TARGET: f64 = 1.1;
const TARGET_EARLY_NS: f64 = 1_000.0;

pub fn run(effort: Effort) -> Vec<Section> {
    let mut sections: Vec<Section> = TIMES.iter().map(|&time| overshoot(time, effort)).collect();
    sections.push(interrupt::run(effort));
    sections
}

/// How the calling thread sleeps.
trait Sleeper {
    fn name(&self) -> &str;
    fn kind(&self) -> Kind;
    fn slack(&self) -> Slack;
    /// Whether it sleeps in whole milliseconds: it then sleeps in one turn of [`COARSE_TURNS`] only.
    fn is_coarse(&self) -> bool {
        false
    }
    /// Sleeps for `time` and says how many nanoseconds late that ended.
    fn lateness(&mut self, time: DurNs) -> f64;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The sleep of a host, which has a target.
    Host,
    /// Ours without a target.
    Other,
    Peer,
    /// What hosts are compared with.
    Raw,
}

/// The slack of the thread that sleeps.
#[derive(Clone, Copy)]
enum Slack {
    Least,
    /// As the system sets it: 50 us.
    Usual,
}

impl Slack {
    fn set(self) {
        let ns = match self {
            Slack::Least => 1,
            Slack::Usual => 50_000,
        };
        rustix::thread::set_current_timer_slack(NonZeroU64::new(ns)).expect("slack can be set");
    }
}

/// What could not be measured here, and why.
type NotRun = (&'static str, String);

/// The subjects, and why one of ours cannot run here.
fn subjects() -> (Vec<Box<dyn Sleeper>>, Option<NotRun>) {
    let mut subjects = peers::all();
    subjects.extend(ours::all());
    match ours::uring() {
        Ok(uring) => {
            subjects.push(uring);
            (subjects, None)
        }
        Err(refused) => (subjects, Some(refused)),
    }
}

fn overshoot(time: DurNs, effort: Effort) -> Section {
    let (count, sleeps) = (effort.pick(3, 11), effort.pick(100, 250));
    let (mut subjects, not_run) = subjects();
    let mut cpu = vec![Samples::default(); subjects.len()];
    let mut calls = 0;
    let columns = ["us late", "p50", "p99", "least", "CPU us a sleep"];
    let mut section = Section::new(format!("sleep: {time}"), &columns);
    section.note(format!(
        "{count} rounds of {sleeps} sleeps each, sleep by sleep in turn; CPU: of all threads of the \
         process, the setting of the sleep included; slack in brackets"
    ));
    let names: Vec<String> = subjects.iter().map(|subject| subject.name().to_string()).collect();
    let at = |name: &str| names.iter().position(|other| other == name).expect("one of ours");
    let latencies = rounds(count, sleeps, &mut subjects, |subject| {
        let turn = calls / names.len();
        calls += 1;
        if subject.is_coarse() && !turn.is_multiple_of(COARSE_TURNS) {
            return Vec::new();
        }
        subject.slack().set();
        let before = process_cpu_us();
        let late = subject.lateness(time);
        cpu[at(subject.name())].0.push(process_cpu_us() - before);
        vec![late / 1_000.0]
    });
    let raw =
        subjects.iter().position(|subject| subject.kind() == Kind::Raw).expect("the raw sleep");
    let same = names.iter().position(|name| name == peers::SAME_CALL).expect("a peer");
    let [p50, p99] = latencies[same].verdicts("", &latencies[raw], TARGET).map(|v| v.measured);
    section.note(format!(
        "what these ratios can tell: {}, the same system call as the raw sleep, is {p50} x at p50 and \
         {p99} x at p99",
        peers::SAME_CALL
    ));
    for (at, (subject, latency)) in subjects.iter().zip(&latencies).enumerate() {
        let mut cells = latency.cells();
        cells.extend([Cell::Counted(latency.least), Cell::Measured(cpu[at].spread())]);
        let slack = match subject.slack() {
            Slack::Least => "1 ns",
            Slack::Usual => "50 us",
        };
        section.row(format!("{} [{slack}]", subject.name()), cells);
        if subject.kind() == Kind::Host {
            let what = format!("{}, {time}", subject.name());
            section.verdicts.extend(latency.verdicts(&what, &latencies[raw], TARGET));
        }
    }
    if let Some((name, why)) = not_run {
        section.note(format!("{name}: not run: {why}"));
        section.row(name, vec![Cell::Absent("not run".to_string())]);
    }
    let own = subjects.iter().zip(&latencies);
    let own = own.filter(|(subject, _)| matches!(subject.kind(), Kind::Host | Kind::Other));
    section.verdicts.push(never_early(own.map(|(_, latency)| latency)));
    section
}

/// How early the earliest of our sleeps ended.
fn never_early<'l>(own: impl Iterator<Item = &'l Latency>) -> Verdict {
    let least = own.map(|latency| latency.least).fold(f64::INFINITY, f64::min);
    let early = Samples(vec![(-least * 1_000.0).max(0.0)]);
    Verdict::at_most("the earliest of all our sleeps, early by", &early, " ns", TARGET_EARLY_NS)
}

/// The CPU time that the process has used, in microseconds.
fn process_cpu_us() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.tv_sec as f64 * 1e6 + used.tv_nsec as f64 / 1e3
}
