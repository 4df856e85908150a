//! (c) A `fire` that finds nothing, with and without a doorbell.

use super::{Counter, SIZE_COLUMNS, SIZES, Wait, descriptors, lines, register_all};
use crate::host;
use crate::measure::{Effort, interleave, ns_each, time};
use crate::report::{Cell, Section, Verdict};
use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{Doorbell, DurNs, Reactor, Turn};

const TARGET_NS: f64 = 50.0;
/// With a doorbell all slots are still looked at this often.
const PARK_BOUND: DurNs = DurNs::from_ms(1);

pub fn run(effort: Effort) -> Section {
    let repetitions = effort.pick(31, 101);
    let mut columns = vec!["ns a fire"];
    columns.extend(SIZE_COLUMNS);
    let mut section = Section::new("reactor (c): idle fire", &columns);
    section.note(format!(
        "with a doorbell one clock read is part of each, and all slots are still looked at once a \
         park bound, here {} ms: in the mean, not in the median",
        PARK_BOUND.0 / 1_000_000
    ));
    let mut rows: [Vec<Cell>; 3] = Default::default();
    for (at, &count) in SIZES.iter().enumerate() {
        let mut subjects = [false, true].map(|doorbell| Box::new(Subject::new(count, doorbell)));
        let samples =
            interleave(repetitions, &mut subjects, |subject| subject.sample(effort.pick(1, 2)));
        rows[0].push(Cell::Measured(samples[0].spread()));
        rows[1].push(Cell::Measured(samples[1].spread()));
        let mean = samples[1].0.iter().sum::<f64>() / samples[1].0.len() as f64;
        rows[2].push(Cell::Counted(mean));
        if at == SIZES.len() - 1 {
            let what = format!("doorbell, {} descriptors", SIZE_COLUMNS[at]);
            section.verdicts.push(Verdict::at_most(what, &samples[1], " ns", TARGET_NS));
        }
    }
    let names = ["without a doorbell", "with a doorbell", "with a doorbell, mean"];
    for (name, cells) in names.into_iter().zip(rows) {
        section.row(name, cells);
    }
    section
}

struct Subject {
    reactor: &'static Reactor<'static, StdClock>,
    _waits: Vec<Wait<'static, 'static>>,
    fires: usize,
}

impl Subject {
    fn new(count: usize, with_doorbell: bool) -> Self {
        let clock = StdClock::new();
        let reactor: &'static Reactor<'static, _> = Box::leak(Box::new(match with_doorbell {
            true => Reactor::with_doorbell(clock, &Doorbell::new()),
            false => Reactor::new(clock),
        }));
        let lines: &'static [_] = lines(count).leak();
        let (_, waker) = Counter::new();
        let waits = register_all(reactor, &descriptors(lines, count, 1), &waker);
        // A turn tells the reactor the park bound.
        let turn = reactor.turn(&mut host::idle(), PARK_BOUND, 1);
        assert_eq!(turn.ok(), Some(Turn::Parked));
        let fires = if with_doorbell { 500 } else { 40_000 / count + 1 };
        Subject { reactor, _waits: waits, fires }
    }

    fn sample(&self, times: usize) -> f64 {
        let fires = self.fires * times;
        let elapsed = time(|| {
            for _ in 0..fires {
                assert!(!self.reactor.fire(), "nothing was stored");
            }
        });
        ns_each(elapsed, fires)
    }
}
