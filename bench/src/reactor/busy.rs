//! (d) What waiting descriptors cost a thread that is not waiting for them: a poll of a busy executor,
//! and an alarm.

use super::{Counter, Wait};
use crate::measure::{Effort, Samples, ns_each, time};
use crate::report::{Cell, Section, Verdict};
use gpu_async_reactor::host::{ParkPolicy, StdClock, StdIdle};
use gpu_async_reactor::{
    Clock, CompletionLine, Doorbell, DurNs, Executor, OwnedDescriptor, Reactor, Slot, yield_now,
};
use std::cell::RefCell;
use std::pin::Pin;

const COUNTS: [usize; 3] = [64, 4_096, 100_000];
const PARK_BOUND: DurNs = DurNs::from_ms(1);
/// A poll beside 100,000 descriptors, against one beside 64.
const TARGET_POLL: f64 = 2.0;
/// An alarm beside 100,000 descriptors, later than one beside 64 by at most this.
const TARGET_ALARM_NS: f64 = 2_000.0;

type Task = Pin<Box<dyn Future<Output = ()>>>;

pub fn run(effort: Effort) -> Section {
    let columns = ["ns a poll, one descriptor a line", "64", "4,096", "100,000"];
    let mut section = Section::new("reactor (d): a busy executor, and alarms", &columns);
    section.note("one task that always yields, over tens of milliseconds; scans go on beside it");
    section.note("alarms 1.5 ms away, on a spinning idle: how late the task is resumed, ns");
    let modes = [
        ("no doorbell", Mode { doorbell: false, rung: false }),
        ("doorbell, silent", Mode { doorbell: true, rung: false }),
        ("doorbell, rung at each poll", Mode { doorbell: true, rung: true }),
    ];
    for (name, mode) in modes {
        let mut subjects = COUNTS.map(|count| Subject::new(count, mode));
        let mut samples = vec![Samples::default(); COUNTS.len()];
        for _ in 0..effort.pick(5, 15) {
            for (subject, samples) in subjects.iter_mut().zip(&mut samples) {
                samples.0.push(subject.poll_ns(effort.pick(400_000, 2_000_000)));
            }
        }
        section.row(name, samples.iter().map(|each| Cell::Measured(each.spread())).collect());
        let what = format!("{name}, a poll beside 100,000 against one beside 64");
        let ratios = samples[2].ratios_to(&samples[0]);
        section.verdicts.push(Verdict::at_most(what, &ratios, " x", TARGET_POLL));

        let late: Vec<_> =
            subjects.iter_mut().map(|subject| subject.alarms(effort.pick(60, 300))).collect();
        if !mode.rung {
            let cells = late.iter().map(|each| Cell::Measured(each.spread())).collect();
            section.row(format!("{name}, an alarm's lateness"), cells);
            let later = Samples(vec![late[2].median() - late[0].median()]);
            let what = format!("{name}, an alarm beside 100,000, later than beside 64");
            section.verdicts.push(Verdict::at_most(what, &later, " ns", TARGET_ALARM_NS));
        }
    }
    section
}

#[derive(Clone, Copy)]
struct Mode {
    doorbell: bool,
    rung: bool,
}

struct Subject {
    reactor: &'static Reactor<'static, StdClock>,
    doorbell: Doorbell,
    rung: bool,
    _waits: Vec<Wait<'static, 'static>>,
    executor: Executor<Task>,
    idle: StdIdle,
}

impl Subject {
    fn new(count: usize, mode: Mode) -> Self {
        let (clock, doorbell) = (StdClock::new(), Doorbell::new());
        let reactor: &'static Reactor<'static, _> = Box::leak(Box::new(match mode.doorbell {
            true => Reactor::with_doorbell(clock, &doorbell),
            false => Reactor::new(clock),
        }));
        let (_, waker) = Counter::new();
        let wait = |_| {
            let line = CompletionLine::shared();
            let descriptor = OwnedDescriptor { line, slot: Slot::ALL[0], target: 1 };
            let mut wait = reactor.ready_owned(descriptor, None);
            super::register(&mut wait, &waker);
            wait
        };
        let waits = (0..count).map(wait).collect();
        let idle = StdIdle::with(clock, ParkPolicy::SPIN);
        Subject {
            reactor,
            doorbell,
            rung: mode.rung,
            _waits: waits,
            executor: Executor::new(),
            idle,
        }
    }

    fn run<T>(&mut self, main: impl Future<Output = T>) -> T {
        let ran = self.executor.run_until(self.reactor, &mut self.idle, PARK_BOUND, main);
        ran.expect("a main future that ends").0
    }

    fn poll_ns(&mut self, polls: usize) -> f64 {
        let (rung, doorbell) = (self.rung, self.doorbell.clone());
        let elapsed = time(|| {
            self.run(async {
                for _ in 0..polls {
                    if rung {
                        doorbell.ring();
                    }
                    yield_now().await;
                }
            });
        });
        ns_each(elapsed, polls)
    }

    fn alarms(&mut self, count: usize) -> Samples {
        let (reactor, late) = (self.reactor, RefCell::new(Vec::with_capacity(count)));
        let clock = StdClock::new();
        self.run(async {
            for _ in 0..count {
                let at = clock.monotonic_ns().after(DurNs::from_us(1_500));
                reactor.alarm(at).await;
                late.borrow_mut().push(clock.monotonic_ns().since(at).0 as f64);
            }
        });
        Samples(late.into_inner())
    }
}
