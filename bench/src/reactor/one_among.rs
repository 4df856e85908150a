//! (b) One completion among n: one `fire` that finds it, against a plain scan of the words.

use super::{Counter, SIZE_COLUMNS, SIZES, Wait, descriptors, lines, register, register_all};
use crate::measure::{Effort, interleave, ns_each};
use crate::report::{Cell, Section, Verdict};
use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{CompletionLine, MemoryDescriptor, Reactor};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

const TARGET: f64 = 1.2;

pub fn run(effort: Effort) -> Section {
    let repetitions = effort.pick(15, 41);
    let mut columns = vec!["ns a look at all"];
    columns.extend(SIZE_COLUMNS);
    let mut section = Section::new("reactor (b): one completion among n", &columns);
    section.note(
        "each look finds one; `fire` reads the clock, takes the wait out and wakes it; the scans \
         only find its index",
    );
    let mut rows: [Vec<Cell>; 3] = Default::default();
    for (&count, size) in SIZES.iter().zip(SIZE_COLUMNS) {
        // Leaked: as long as the program.
        let lines = lines(count).leak();
        let mut subjects: Vec<Box<dyn Look>> = vec![
            Box::new(Fire::new(lines, count)),
            Box::new(Descriptors(descriptors(lines, count, 1))),
            Box::new(Words::new(lines, count)),
        ];
        let looks = effort.pick(200_000, 500_000) / count + 3;
        let mut random = 1usize;
        let samples = interleave(repetitions, &mut subjects, |look| {
            let mut elapsed = Duration::ZERO;
            for _ in 0..looks {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let hit = (random >> 33) % count;
                let word = &lines[hit / 8].words[hit % 8];
                word.store(1, Ordering::Release);
                let start = Instant::now();
                let found = look.find();
                elapsed += start.elapsed();
                word.store(0, Ordering::Release);
                assert_eq!(look.check(found, hit), hit);
            }
            ns_each(elapsed, looks)
        });
        for (row, samples) in rows.iter_mut().zip(&samples) {
            row.push(Cell::Measured(samples.spread()));
        }
        let (at, scan) = match samples[1].median() < samples[2].median() {
            true => (1, "scan of descriptors"),
            false => (2, "scan of words"),
        };
        let what = format!("{size} descriptors, fire / {scan}");
        let ratios = samples[0].ratios_to(&samples[at]);
        section.verdicts.push(Verdict::at_most(what, &ratios, " x", TARGET));
    }
    let names = ["fire", "plain scan: is_complete of descriptors", "plain scan: (word, target)"];
    for (name, cells) in names.into_iter().zip(rows) {
        section.row(name, cells);
    }
    section
}

trait Look {
    /// Looks at all; says which was complete, where it knows.
    fn find(&mut self) -> Option<usize>;
    /// Puts things back. Says which it was.
    fn check(&mut self, found: Option<usize>, _hit: usize) -> usize {
        found.expect("one was complete")
    }
}

struct Fire {
    reactor: &'static Reactor<'static, StdClock>,
    waits: Vec<Wait<'static, 'static>>,
    counter: Arc<Counter>,
    waker: Waker,
}

impl Fire {
    fn new(lines: &'static [CompletionLine], count: usize) -> Self {
        let (counter, waker) = Counter::new();
        let reactor: &'static _ = Box::leak(Box::new(Reactor::new(StdClock::new())));
        let waits = register_all(reactor, &descriptors(lines, count, 1), &waker);
        Fire { reactor, waits, counter, waker }
    }
}

impl Look for Fire {
    fn find(&mut self) -> Option<usize> {
        self.reactor.fire();
        None
    }

    fn check(&mut self, _found: Option<usize>, hit: usize) -> usize {
        assert_eq!(self.counter.take(), 1);
        register(&mut self.waits[hit], &self.waker);
        hit
    }
}

struct Descriptors(Vec<MemoryDescriptor<'static>>);

impl Look for Descriptors {
    fn find(&mut self) -> Option<usize> {
        let mut found = None;
        for (at, descriptor) in self.0.iter().enumerate() {
            if descriptor.is_complete() {
                found = Some(at);
            }
        }
        found
    }
}

struct Words(Vec<(&'static AtomicU64, u64)>);

impl Words {
    fn new(lines: &'static [CompletionLine], count: usize) -> Self {
        let words = lines.iter().flat_map(|line| &line.words);
        Words(words.take(count).map(|word| (word, 1)).collect())
    }
}

impl Look for Words {
    fn find(&mut self) -> Option<usize> {
        let mut found = None;
        for (at, (word, target)) in self.0.iter().enumerate() {
            if word.load(Ordering::Acquire) >= *target {
                found = Some(at);
            }
        }
        found
    }
}
