//! The suite `reactor`: registering, firing and idling over many words.
//!
//! Lines have eight slots in use; targets are the next number of each slot; the clock is the
//! system's. Nothing has a deadline, except where a row says so.

mod busy;
mod idle_fire;
mod one_among;
mod spinners;
mod storm;

use crate::host::clock_read_ns;
use crate::measure::Effort;
use crate::report::Section;
use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{CompletionLine, LINE_WORDS, MemoryDescriptor, OwnedDescriptor, Slot};
use gpu_async_reactor::{Reactor, Ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Wake, Waker};

/// How many descriptors wait at a time.
const SIZES: [usize; 3] = [64, 4_096, 100_000];
const SIZE_COLUMNS: [&str; 3] = ["64", "4,096", "100,000"];

pub fn run(effort: Effort) -> Vec<Section> {
    let mut sections = vec![
        storm::run(effort),
        one_among::run(effort),
        idle_fire::run(effort),
        busy::run(effort),
        spinners::run(effort),
    ];
    let clock = format!("one clock read: {:.1} ns", clock_read_ns());
    sections.iter_mut().for_each(|section| section.note(&clock));
    sections
}

type Wait<'r, 'l> = Ready<'r, 'l, StdClock>;

/// A waker that counts what it woke. One for all, as the cost of a task is the executor's.
#[derive(Default)]
struct Counter(AtomicU64);

impl Counter {
    fn new() -> (Arc<Counter>, Waker) {
        let counter = Arc::new(Counter::default());
        (counter.clone(), Waker::from(counter))
    }

    /// How many were woken since this was last asked.
    fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // One thread: a load and a store.
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

fn lines(slots: usize) -> Vec<CompletionLine> {
    (0..slots.div_ceil(LINE_WORDS)).map(|_| CompletionLine::default()).collect()
}

/// The descriptors of the first `count` slots.
fn descriptors(lines: &[CompletionLine], count: usize, target: u64) -> Vec<MemoryDescriptor<'_>> {
    let of_line =
        |line| Slot::ALL.into_iter().map(move |slot| MemoryDescriptor::new(line, slot, target));
    let mut descriptors = Vec::with_capacity(count);
    descriptors.extend(lines.iter().flat_map(of_line).take(count));
    descriptors
}

/// The same of lines that are owned.
fn owned_descriptors(count: usize) -> Vec<OwnedDescriptor> {
    let lines = std::iter::repeat_with(CompletionLine::shared);
    let of_line = |line: gpu_async_reactor::SharedLine| {
        Slot::ALL.into_iter().map(move |slot| OwnedDescriptor {
            line: line.clone(),
            slot,
            target: 0,
        })
    };
    lines.flat_map(of_line).take(count).collect()
}

/// Polls `wait`, which is not complete, so that it registers.
fn register(wait: &mut Wait<'_, '_>, waker: &Waker) {
    let polled = Pin::new(wait).poll(&mut Context::from_waker(waker));
    assert!(polled.is_pending(), "nothing was stored yet");
}

/// Registers a wait for each of `descriptors`.
fn register_all<'r, 'l>(
    reactor: &'r Reactor<'l, StdClock>,
    descriptors: &[MemoryDescriptor<'l>],
    waker: &Waker,
) -> Vec<Wait<'r, 'l>> {
    let mut waits: Vec<_> =
        descriptors.iter().map(|&descriptor| reactor.ready(descriptor, None)).collect();
    waits.iter_mut().for_each(|wait| register(wait, waker));
    waits
}
