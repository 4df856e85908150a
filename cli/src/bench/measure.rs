//! Measuring waits, one after the other.
//!
//! # Why every plan is measured alike
//!
//! Each piece of work ends with a mark: the device notes the time and then stores the word and the
//! status. That note is the completion, whatever the plan, and a wait is for that point. `block` and
//! `poll`, which read no word, would not have queued a mark in a program of their own: it is not
//! counted among their driver calls. What the device does is the same for all.
//!
//! Nothing else happens between the wait's last look and the first clock read behind it: counters
//! and the device's note are read after that, and the work of the next wait is queued later still.

use super::lane::Lane;
use super::work::Workload;
use gpu_async_reactor::host::{StdClock, thread_cpu_time};
use gpu_async_reactor::{Clock, DurNs, End, Park, PointTable, Result, WaitPlan};
use std::cell::Cell;

/// The one place of this program where it waits.
const POINT: &str = "bench";

/// What one wait was like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// From the device's completion until the caller ran again.
    pub lateness: DurNs,
    /// From the call of the wait until the caller ran again.
    pub wall: DurNs,
    /// CPU time that the thread used meanwhile; none where the system does not tell.
    pub cpu: Option<DurNs>,
    /// Driver calls.
    pub calls: u64,
    /// Parks on the word.
    pub parks: u64,
    /// How it ended.
    pub end: End,
    /// Polls of the tasks beside it.
    pub filler_polls: u64,
}

/// How many waits to make.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Waits before the measured ones, which fill the estimate and are left out.
    pub warm_up: u32,
    /// Waits that are measured.
    pub waits: u32,
}

/// Waits by `plan` on `lane`, for work of `workload`. `filler_polls` counts the polls of the tasks
/// beside; `after_each` is called between two waits.
///
/// # Errors
///
/// The device's.
pub async fn measure(
    lane: &mut impl Lane,
    plan: &WaitPlan,
    mut workload: Workload,
    counts: Counts,
    filler_polls: &Cell<u64>,
    after_each: impl Fn(),
) -> Result<Vec<Sample>> {
    let mut points = PointTable::new();
    let mut samples = Vec::with_capacity(counts.waits as usize);
    for number in 0..counts.warm_up + counts.waits {
        let work = workload.next().expect("a workload has no end");
        let sample = wait_once(lane, plan, work, &mut points, filler_polls).await?;
        if number >= counts.warm_up {
            samples.push(sample);
        }
        after_each();
    }
    Ok(samples)
}

async fn wait_once(
    lane: &mut impl Lane,
    plan: &WaitPlan,
    work: DurNs,
    points: &mut PointTable<&str>,
    filler_polls: &Cell<u64>,
) -> Result<Sample> {
    let clock = StdClock::new();
    lane.stream().delay(work)?;
    let ticket = lane.mark()?;
    let sleep = plan.predict.and_then(|deadline| points.sleep_ns(POINT, &deadline));

    let calls_before = lane.stream().calls().total();
    let polls_before = filler_polls.get();
    let cpu_before = thread_cpu_time();
    let called = clock.monotonic_ns();
    let waited = lane.wait_at(ticket, plan, sleep).await?;
    let resumed = clock.monotonic_ns();
    let cpu_after = thread_cpu_time();

    if let (Some(deadline), Some(outcome)) = (plan.predict, waited.outcome) {
        points.observe(POINT, &deadline, outcome);
    }
    let completed = lane.stream().stamp_of(ticket.number());
    let completed = completed.expect("the status said done, which comes after the note");
    let calls = lane.stream().calls().total() - calls_before;
    Ok(Sample {
        lateness: resumed.since(completed),
        wall: resumed.since(called),
        cpu: cpu_before.zip(cpu_after).map(|(before, after)| DurNs(after.0 - before.0)),
        calls: calls + u64::from(reads_the_word(plan)),
        parks: waited.parks,
        end: waited.end,
        filler_polls: filler_polls.get() - polls_before,
    })
}

/// Whether the plan would have queued the mark itself.
fn reads_the_word(plan: &WaitPlan) -> bool {
    matches!(plan.park, Park::FlagWait { .. } | Park::Spin { .. })
}
