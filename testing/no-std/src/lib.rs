//! A consumer without the standard library: the one thread of a bare machine waits for device work.
//!
//! It names every public core item, and `scripts/build-no-std` builds it for targets that have no
//! standard library. A test of the main crate compares the names used here with what that exports.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::{boxed::Box, string::String, vec::Vec};
use core::pin::Pin;
use gpu_async_reactor::{
    Alarmed, BANDS_MAX, Capability, Clock, CompletionLine, CompletionPort, DRAIN_LOOKS,
    DeadlinePlan, Declared, DeviceCaps, DeviceStream, Doorbell, DoorbellSnapshot, DurNs, End,
    Error, ErrorCode, Executor, ExecutorCaps, ExecutorKind, ExecutorNeed, FALLBACKS, Fallback,
    HostCaps, Idle, JoinHandle, LINE_WORDS, Link, ManualClock, MemoryDescriptor, MonoNs, Outcome,
    OwnedDescriptor, Park, ParkKind, PointEstimate, PointTable, Reactor, ReactorPort, Ready,
    Resolved, ResolvedBands, Result, RunStats, Setting, SharedLine, Slot, SlotLease, SlotPool,
    SlotStats, Spawner, SpinEnd, Spun, StepRows, Strictness, ThreadPort, Ticket, Timer, Turn,
    WINDOW_MAX, WaitBands, WaitError, WaitPlan, Waited, YieldNow, reached, resolve, run_inline,
    wait, wait_until, yield_now,
};

/// A task of the machine's executor.
pub type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The cycle counter of a machine without an operating system.
pub struct CycleIdle<'c>(pub &'c ManualClock);

impl Idle for CycleIdle<'_> {
    fn sleep_until(&mut self, at: MonoNs) {
        self.0.set(at);
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        let until = self.0.monotonic_ns().after(bound);
        while !ready(line) && self.0.monotonic_ns() < until {
            self.0.advance(DurNs(100));
        }
        ready(line)
    }
}

/// What is measured of one point.
#[derive(Default)]
pub struct Points {
    /// The estimates by the name of the point.
    pub table: PointTable<&'static str>,
    /// The estimate of the point that has no name.
    pub single: PointEstimate,
    /// The rows of the present step.
    pub rows: StepRows,
}

/// Waits once by `bands`, after the sleep that was predicted, and records the outcome.
///
/// # Errors
///
/// The stream's error, or a wait that is refused or timed out, as text.
pub fn wait_once<S: DeviceStream>(
    stream: S,
    bands: &WaitBands,
    points: &mut Points,
    clock: &ManualClock,
    deadline: Option<MonoNs>,
) -> core::result::Result<Waited, String> {
    let plan: WaitPlan = *bands.select(points.rows.get());
    let predicted: Option<DurNs> = plan.predict.and_then(|deadline: DeadlinePlan| {
        points.table.sleep_ns(&"step", &deadline).or_else(|| points.single.sleep_ns(&deadline))
    });
    let mut port = ThreadPort::new(stream, CycleIdle(clock));
    let ticket: Ticket = port.mark().map_err(text)?;
    let mut port = port.at(ticket);
    let waited = match deadline {
        None => run_inline(wait(&plan, predicted, &mut port, &clock)).map_err(text)?.map_err(text),
        Some(at) => {
            let ended = run_inline(wait_until(&plan, predicted, &mut port, &clock, at));
            ended.map_err(text)?.map_err(|error: WaitError<Error>| text(error))
        }
    }?;
    if let (Some(deadline), Some(outcome)) = (plan.predict, waited.outcome) {
        points.table.observe("step", &deadline, outcome);
        points.single.observe(&deadline, outcome);
    }
    Ok(waited)
}

fn text(error: impl core::fmt::Display) -> String {
    alloc::format!("{error}")
}

/// Runs a program of two tasks, one waiting for a word and one for time.
///
/// # Errors
///
/// [`ErrorCode::Stalled`].
pub fn run_two<'l>(
    line: &'l CompletionLine,
    clock: &'l ManualClock,
    doorbell: &Doorbell,
) -> Result<RunStats> {
    let reactor: Reactor<'l, &ManualClock> = Reactor::with_doorbell(clock, doorbell);
    let mut executor: Executor<Task<'_>> = Executor::new();
    let spawner: Spawner<Task<'_>> = executor.spawner();
    let _waiting: JoinHandle<()> = spawner.spawn(Box::pin(async {
        let descriptor = MemoryDescriptor::new(line, Slot::ALL[0], 1);
        let ready: Ready<'_, '_, &ManualClock> = reactor.ready(descriptor, None);
        ready.await;
    }));
    executor.spawn(Box::pin(async {
        let alarm: Alarmed<'_, '_, &ManualClock> = reactor.alarm(MonoNs(5_000));
        alarm.await;
        let pause: YieldNow = yield_now();
        pause.await;
        line.store(Slot::ALL[0], 1);
        doorbell.ring();
    }));
    let mut idle = CycleIdle(clock);
    match reactor.turn(&mut idle, DurNs::from_us(50), executor.len()) {
        Ok(Turn::Woke | Turn::Slept | Turn::Parked) => {}
        Err(error) => debug_assert_eq!(error.code(), ErrorCode::Stalled),
    }
    executor.run(&reactor, &mut idle, DurNs::from_us(50))
}

/// A port on the reactor of a program, as a task of it would make one.
pub fn port_of<'r, 'l, S: DeviceStream, C: Clock + Timer>(
    stream: S,
    reactor: &'r Reactor<'l, C>,
) -> impl CompletionPort<Error = Error> + use<'r, 'l, S, C> {
    ReactorPort::new(stream, reactor)
}

/// A slot for a stream of this machine's device, and the descriptor of its next number.
///
/// # Errors
///
/// Those of the pool.
pub fn next_number(
    pool: &mut SlotPool<fn() -> Result<SharedLine>>,
) -> Result<(SlotLease, OwnedDescriptor, SlotStats)> {
    let mut lease = pool.acquire()?;
    let number = lease.issue();
    let descriptor = lease.descriptor(number)?;
    debug_assert!(!reached((*descriptor.line).as_ref(), descriptor.slot, number));
    Ok((lease, descriptor, pool.stats()))
}

/// What runs on this machine of what was asked for, and the warnings.
///
/// # Errors
///
/// [`ErrorCode::ExecutorRefused`].
pub fn settle(plan: &WaitPlan, bands: &WaitBands) -> Result<(Resolved, ResolvedBands, Vec<Error>)> {
    let host = HostCaps { device_word_wait: Err("no monitor instruction".into()) };
    let device = DeviceCaps { store: Ok(()) };
    let caps = ExecutorCaps { word_wait: Ok(()), io_uring: Err("no operating system".into()) };
    let executor: Setting<ExecutorKind> =
        resolve(ExecutorKind::IoUring, Strictness::Fallback, &caps)?;
    debug_assert_eq!(executor.running, ExecutorKind::GpuReactor);
    let resolved = plan.resolve_on(&host, &device);
    let warnings = resolved.warning.iter().chain(&executor.warning).cloned().collect();
    Ok((resolved, bands.resolve_on(&host, &device), warnings))
}

/// The declared chains, as data: each link says what it needs.
#[must_use]
pub fn declared() -> (usize, usize, Option<Capability>, ParkKind) {
    let chain: &[Link<ExecutorKind, ExecutorNeed>] = ExecutorKind::CHAIN;
    let first: Option<&Fallback> = FALLBACKS.first();
    let spin = Park::Spin { backstop_ns: 1_000 };
    (chain.len(), FALLBACKS.len(), first.map(|link| link.needs), spin.kind())
}

/// Sizes that a machine plans its memory by.
pub const SIZES: [usize; 4] = [LINE_WORDS, BANDS_MAX, DRAIN_LOOKS, WINDOW_MAX as usize];

/// How a wait ended, and what the doorbell showed then.
pub type Ended = (End, Option<Outcome>, DoorbellSnapshot);

/// How a port's spin ended, as a port that overrides it says.
#[must_use]
pub fn spun(queries: u64) -> Spun {
    Spun { end: SpinEnd::Expired, queries }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_tasks_of_a_bare_machine_finish() {
        let (line, clock) = (CompletionLine::default(), ManualClock::new());
        let stats = run_two(&line, &clock, &Doorbell::new()).unwrap();
        assert!(stats.polls >= 4);
        assert!(clock.monotonic_ns() >= MonoNs(5_000));
    }

    #[test]
    fn a_machine_without_a_monitor_polls() {
        let plan = WaitPlan::parse("flag:park_us=50,backstop_us=500").unwrap();
        let (resolved, _, warnings) = settle(&plan, &plan.into()).unwrap();
        assert_eq!(resolved.plan.park, Park::QueryPoll);
        assert_eq!(warnings.len(), 2);
    }
}
