//! (a) Register all, complete all, one `fire`.

use super::{Counter, SIZE_COLUMNS, SIZES, Wait, descriptors, lines, owned_descriptors, register};
use crate::allocations;
use crate::measure::{Effort, Samples, Stopwatch, interleave, ns_each};
use crate::report::{Cell, Section, Verdict};
use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{CompletionLine, Doorbell, DurNs, MonoNs, OwnedDescriptor, Reactor, Slot};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

const TARGET_NS: f64 = 150.0;
const TARGET_GROWTH: f64 = 1.6;

/// The row that the targets are set for.
const OWN: &str = "borrowed lines";
const NAMES: [&str; 4] =
    [OWN, "borrowed lines, doorbell", "borrowed lines, each with a deadline", "owned lines"];

pub fn run(effort: Effort) -> Section {
    let repetitions = effort.pick(11, 31);
    let mut columns = vec!["ns a descriptor"];
    columns.extend(SIZE_COLUMNS);
    let mut section = Section::new("reactor (a): register all, complete all, one fire", &columns);
    section.note(
        "from the making of the future to its wake; tables and lines have been used before; \
         the stores into the words are part of it",
    );
    // The rows of a size follow each other; all sizes take turns, so that growth compares like
    // with like.
    let mut storms: Vec<Box<dyn Storm>> = SIZES.into_iter().flat_map(storms_of).collect();
    let samples = interleave(repetitions, &mut storms, |storm| storm.sample());
    let at = |row: usize, size: usize| size * NAMES.len() + row;
    for (row, name) in NAMES.into_iter().enumerate() {
        let cells = (0..SIZES.len()).map(|size| Cell::Measured(samples[at(row, size)].spread()));
        section.row(name, cells.collect());
    }
    for (size, column) in SIZE_COLUMNS.iter().enumerate() {
        let what = format!("{OWN}, {column} descriptors");
        section.verdicts.push(Verdict::at_most(what, &samples[at(0, size)], " ns", TARGET_NS));
    }
    let growth = samples[at(0, SIZES.len() - 1)].ratios_to(&samples[at(0, 0)]);
    let what = format!("{OWN}, growth from 64 to 100,000");
    section.verdicts.push(Verdict::at_most(what, &growth, " x", TARGET_GROWTH));
    let again = allocations::count(|| _ = storms[at(0, 1)].once());
    // One is the list of descriptors, which is the benchmark's.
    let allocated = Samples(vec![(again.calls + again.growths - 1) as f64]);
    let what = format!("{OWN}, allocations of {} waits", SIZE_COLUMNS[1]);
    section.verdicts.push(Verdict::at_most(what, &allocated, "", 0.0));
    section
}

/// One storm a row, of `count` descriptors each, in the order of `NAMES`.
fn storms_of(count: usize) -> [Box<dyn Storm>; NAMES.len()] {
    [
        Box::new(Borrowed::new(count, None, false)),
        Box::new(Borrowed::new(count, Some(Doorbell::new()), false)),
        Box::new(Borrowed::new(count, None, true)),
        Box::new(Owned::new(count)),
    ]
}

/// Repeats the storm until enough time has passed to be told apart from the clock's own.
trait Storm {
    fn count(&self) -> usize;
    /// One storm: the time that counts, without what puts things back.
    fn once(&mut self) -> Duration;

    /// Nanoseconds a descriptor.
    fn sample(&mut self) -> f64 {
        const DESCRIPTORS: usize = 10_000;
        let storms = DESCRIPTORS.div_ceil(self.count());
        let elapsed = (0..storms).map(|_| self.once()).sum();
        ns_each(elapsed, storms * self.count())
    }
}

/// When a storm began: by the CPU time of the thread where it is long beside a look at that.
enum Start {
    Short(Instant),
    Long(Stopwatch),
}

impl Start {
    fn now(count: usize) -> Start {
        match count < 1_000 {
            true => Start::Short(Instant::now()),
            false => Start::Long(Stopwatch::start()),
        }
    }

    fn elapsed(&self) -> Duration {
        match self {
            Start::Short(start) => start.elapsed(),
            Start::Long(start) => start.elapsed(),
        }
    }
}

struct Borrowed {
    count: usize,
    lines: &'static [CompletionLine],
    reactor: &'static Reactor<'static, StdClock>,
    doorbell: Option<Doorbell>,
    deadline: Option<MonoNs>,
    counter: Arc<Counter>,
    waker: Waker,
    waits: Vec<Wait<'static, 'static>>,
    number: u64,
}

impl Borrowed {
    /// Its lines and its reactor live as long as the program: futures borrow them.
    fn new(count: usize, doorbell: Option<Doorbell>, deadline: bool) -> Self {
        let (counter, waker) = Counter::new();
        let clock = StdClock::new();
        let reactor = Box::leak(Box::new(match &doorbell {
            Some(doorbell) => Reactor::with_doorbell(clock, doorbell),
            None => Reactor::new(clock),
        }));
        let deadline = deadline.then(|| {
            gpu_async_reactor::Clock::monotonic_ns(&clock).after(DurNs::from_ms(3_600_000))
        });
        let (lines, waits) = (lines(count).leak(), Vec::with_capacity(count));
        Borrowed { count, lines, reactor, doorbell, deadline, counter, waker, waits, number: 0 }
    }
}

impl Storm for Borrowed {
    fn count(&self) -> usize {
        self.count
    }

    fn once(&mut self) -> Duration {
        self.number += 1;
        let descriptors = descriptors(self.lines, self.count, self.number);
        let start = Start::now(self.count());
        for &descriptor in &descriptors {
            self.waits.push(self.reactor.ready(descriptor, self.deadline));
            register(self.waits.last_mut().expect("just pushed"), &self.waker);
        }
        for line in self.lines {
            Slot::ALL.iter().for_each(|&slot| line.store(slot, self.number));
        }
        if let Some(doorbell) = &self.doorbell {
            doorbell.ring();
        }
        self.reactor.fire();
        let elapsed = start.elapsed();
        assert_eq!(self.counter.take(), self.count as u64);
        self.waits.clear();
        elapsed
    }
}

struct Owned {
    descriptors: Vec<OwnedDescriptor>,
    reactor: &'static Reactor<'static, StdClock>,
    counter: Arc<Counter>,
    waker: Waker,
    waits: Vec<Wait<'static, 'static>>,
}

impl Owned {
    fn new(count: usize) -> Self {
        let (counter, waker) = Counter::new();
        let reactor = Box::leak(Box::new(Reactor::new(StdClock::new())));
        let waits = Vec::with_capacity(count);
        Owned { descriptors: owned_descriptors(count), reactor, counter, waker, waits }
    }
}

impl Storm for Owned {
    fn count(&self) -> usize {
        self.descriptors.len()
    }

    fn once(&mut self) -> Duration {
        self.descriptors.iter_mut().for_each(|descriptor| descriptor.target += 1);
        let start = Start::now(self.count());
        for descriptor in &self.descriptors {
            self.waits.push(self.reactor.ready_owned(descriptor.clone(), None));
            register(self.waits.last_mut().expect("just pushed"), &self.waker);
        }
        for OwnedDescriptor { line, slot, target } in &self.descriptors {
            (**line).as_ref().store(*slot, *target);
        }
        self.reactor.fire();
        let elapsed = start.elapsed();
        assert_eq!(self.counter.take(), self.descriptors.len() as u64);
        self.waits.clear();
        elapsed
    }
}
