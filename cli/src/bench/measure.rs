//! Measuring waits, one after the other.
//!
//! # Why every plan is measured alike
//!
//! Each piece of work ends with a mark. When the device came to it is noted, by the device itself where it
//! can, whatever the plan ([`completed_at`](WorkStream::completed_at)), and a wait is for that point. `block`
//! and `poll`, which read no word, would not have queued a mark in a program of their own: it is not
//! counted among their driver calls. What the device does is the same for all.
//!
//! Between the wait's last look and the first clock read behind it the runtime records the outcome,
//! which is part of what a caller sees. Counters and the noted instant are read after that, and the work of
//! the next wait is queued later still.

use super::filler::Done;
use super::subject::WorkStream;
use super::work::Workload;
use gpu_async_reactor::host::{Handle, RuntimePort, thread_cpu_time};
use gpu_async_reactor::{Clock, DurNs, End, Park, Result};
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
    /// What the tasks beside it got done meanwhile.
    pub filled: Done,
}

/// How many waits to make.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Waits before the measured ones, which fill the estimate and are left out.
    pub warm_up: u32,
    /// Waits that are measured.
    pub waits: u32,
}

/// Waits on `stream` by the plan of the runtime, for work of `workload`. `filled` is what the tasks
/// beside got done; `after_each` is called between two waits.
///
/// # Errors
///
/// The device's.
pub async fn measure<S: WorkStream>(
    runtime: &Handle,
    stream: &S,
    mut workload: Workload,
    counts: Counts,
    filled: &Cell<Done>,
    after_each: impl Fn(),
) -> Result<Vec<Sample>> {
    let mut port = runtime.port(stream);
    let mut samples = Vec::with_capacity(counts.waits as usize);
    for number in 0..counts.warm_up + counts.waits {
        let work = workload.next().expect("a workload has no end");
        let sample = wait_once(runtime, &mut port, work, filled).await?;
        if number >= counts.warm_up {
            samples.push(sample);
        }
        after_each();
    }
    Ok(samples)
}

async fn wait_once<S: WorkStream>(
    runtime: &Handle,
    port: &mut RuntimePort<'_, &S>,
    work: DurNs,
    filled: &Cell<Done>,
) -> Result<Sample> {
    let (clock, stream) = (runtime.clock(), *port.stream());
    stream.work(work)?;
    let ticket = port.mark()?;

    let calls_before = stream.driver_calls();
    let filled_before = filled.get();
    let cpu_before = thread_cpu_time();
    let called = clock.monotonic_ns();
    let waited = runtime.wait(POINT, &mut port.at(ticket)).await?;
    let resumed = clock.monotonic_ns();
    let cpu_after = thread_cpu_time();

    // Before the device is asked for the instant, which may be a call as well.
    let calls = stream.driver_calls() - calls_before;
    let completed = stream.completed_at(ticket.number())?;
    Ok(Sample {
        lateness: resumed.since(completed),
        wall: resumed.since(called),
        cpu: cpu_before.zip(cpu_after).map(|(before, after)| DurNs(after.0 - before.0)),
        calls: calls + u64::from(reads_the_word(runtime)),
        parks: waited.parks,
        end: waited.end,
        filled: filled.get().since(filled_before),
    })
}

/// Whether the plan would have queued the mark itself.
fn reads_the_word(runtime: &Handle) -> bool {
    let plan = runtime.plans().select(runtime.rows().get());
    matches!(plan.park, Park::FlagWait { .. } | Park::Spin { .. })
}
