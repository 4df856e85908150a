//! (b) One completion among n: one `fire` that finds it, against a plain scan of the words.

use super::{Counter, SIZE_COLUMNS, SIZES, Wait, descriptors, lines, register, register_all};
use crate::measure::{Effort, Samples, interleave, ns_each};
use crate::report::{Cell, Section, Verdict};
use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{CompletionLine, LINE_WORDS, MemoryDescriptor, Reactor};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

const TARGET: f64 = 1.2;

/// The rows, in the order of the subjects.
const NAMES: [&str; 4] = [
    "fire",
    "plain scan: is_complete of descriptors",
    "plain scan: (word, target)",
    "scan of (word, target, waker) that wakes",
];
/// Which of them are the plain scans that `fire` is compared with.
const PLAIN: [usize; 2] = [1, 2];

pub fn run(effort: Effort) -> Section {
    let repetitions = effort.pick(15, 41);
    let mut columns = vec!["ns a look at all"];
    columns.extend(SIZE_COLUMNS);
    let mut section = Section::new("reactor (b): one completion among n", &columns);
    section.note(
        "each look finds one; `fire` takes the wait out and wakes it, a plain scan only finds its \
         index; what the measuring itself costs is taken off",
    );
    let mut rows = NAMES.map(|_| Vec::new());
    for (&count, size) in SIZES.iter().zip(SIZE_COLUMNS) {
        let samples = measure(count, repetitions, effort.pick(200_000, 500_000) / count + 3);
        for (row, samples) in rows.iter_mut().zip(&samples) {
            row.push(Cell::Measured(samples.spread()));
        }
        let faster = |&a: &usize, &b: &usize| samples[a].median().total_cmp(&samples[b].median());
        let best = PLAIN.into_iter().min_by(faster).expect("there are two");
        let what = format!("{size} descriptors, fire / {}", NAMES[best]);
        let ratios = samples[0].ratios_to(&samples[best]);
        section.verdicts.push(Verdict::at_most(what, &ratios, " x", TARGET));
    }
    for (name, cells) in NAMES.into_iter().zip(rows) {
        section.row(name, cells);
    }
    section
}

/// Nanoseconds a look, of each of the subjects that `NAMES` names.
fn measure(count: usize, repetitions: usize, looks: usize) -> Vec<Samples> {
    // Leaked: as long as the program.
    let lines: &'static [CompletionLine] = lines(count).leak();
    let mut subjects: Vec<Box<dyn Look>> = vec![
        Box::new(Fire::new(lines, count)),
        Box::new(Descriptors(descriptors(lines, count, 1))),
        Box::new(words(lines, count).map(|word| (word, 1)).collect::<Vec<_>>()),
        Box::new(Waking::new(lines, count)),
        Box::new(Nothing),
    ];
    let mut random = 1usize;
    let mut samples = interleave(repetitions, &mut subjects, |look| {
        let mut elapsed = Duration::ZERO;
        for _ in 0..looks {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let hit = (random >> 33) % count;
            let word = &lines[hit / LINE_WORDS].words[hit % LINE_WORDS];
            word.store(1, Ordering::Release);
            let start = Instant::now();
            let found = look.find();
            elapsed += start.elapsed();
            word.store(0, Ordering::Release);
            look.put_back(found, hit);
        }
        ns_each(elapsed, looks)
    });
    let measuring = samples.pop().expect("the last subject does nothing").median();
    for samples in &mut samples {
        samples.0.iter_mut().for_each(|ns| *ns -= measuring);
    }
    samples
}

fn words(lines: &'static [CompletionLine], count: usize) -> impl Iterator<Item = Word> {
    lines.iter().flat_map(|line| &line.words).take(count)
}

type Word = &'static AtomicU64;

trait Look {
    /// Looks at all; says which was complete, where it knows.
    fn find(&mut self) -> Option<usize>;
    /// Checks that it found `hit`, and puts things back.
    fn put_back(&mut self, found: Option<usize>, hit: usize) {
        assert_eq!(found, Some(hit));
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

    fn put_back(&mut self, _found: Option<usize>, hit: usize) {
        assert_eq!(self.counter.take(), 1);
        register(&mut self.waits[hit], &self.waker);
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

impl Look for Vec<(Word, u64)> {
    fn find(&mut self) -> Option<usize> {
        let mut found = None;
        for (at, (word, target)) in self.iter().enumerate() {
            if word.load(Ordering::Acquire) >= *target {
                found = Some(at);
            }
        }
        found
    }
}

/// What a program without a reactor would do by hand.
struct Waking {
    waits: Vec<(Word, u64, Option<Waker>)>,
    counter: Arc<Counter>,
    waker: Waker,
}

impl Waking {
    fn new(lines: &'static [CompletionLine], count: usize) -> Self {
        let (counter, waker) = Counter::new();
        let waits = words(lines, count).map(|word| (word, 1, Some(waker.clone()))).collect();
        Waking { waits, counter, waker }
    }
}

impl Look for Waking {
    fn find(&mut self) -> Option<usize> {
        for (word, target, waker) in &mut self.waits {
            if word.load(Ordering::Acquire) >= *target
                && let Some(waker) = waker.take()
            {
                waker.wake();
            }
        }
        None
    }

    fn put_back(&mut self, _found: Option<usize>, hit: usize) {
        assert_eq!(self.counter.take(), 1);
        self.waits[hit].2 = Some(self.waker.clone());
    }
}

/// The measuring itself.
struct Nothing;

impl Look for Nothing {
    fn find(&mut self) -> Option<usize> {
        None
    }

    fn put_back(&mut self, _found: Option<usize>, _hit: usize) {}
}
