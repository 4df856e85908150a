//! How soon another thread ends a sleep: from right before its call to the sleeper's next instruction.

use crate::latency::rounds;
use crate::measure::Effort;
use crate::report::Section;
use crate::trigger::{Action, Trigger};
use gpu_async_reactor::host::{ParkPolicy, StdClock, StdIdle};
use gpu_async_reactor::{CompletionLine, DurNs, Idle, MonoNs};
use rustix::thread::futex::{self, Flags};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

const TARGET: f64 = 1.2;

pub fn run(effort: Effort) -> Section {
    let (count, wakes) = (effort.pick(5, 15), effort.pick(200, 500));
    let mut trigger = Trigger::new();
    let mut subjects: Vec<Box<dyn Sleeper>> = vec![
        Box::new(Futex::default()),
        Box::new(Unparked),
        Box::new(Idling::sleeping("StdIdle, sleep_until")),
        Box::new(Idling::parking("StdIdle, park_line that sleeps")),
    ];
    let latencies = rounds(count, wakes, &mut subjects, |subject| {
        trigger.set_action(subject.action());
        trigger.fire();
        subject.sleep();
        vec![trigger.since() / 1_000.0]
    });
    let mut section =
        Section::new("sleep: interrupted by another thread", &["us until awake", "p50", "p99"]);
    section.note(format!(
        "{count} rounds of {wakes} wakes each, in turn; the sleeper sleeps for some 100 us before; \
         one clock read in each figure"
    ));
    section.note(trigger.left_out());
    for (subject, latency) in subjects.iter().zip(&latencies) {
        section.row(subject.name(), latency.cells());
    }
    let what = format!("{} / {}", subjects[2].name(), subjects[0].name());
    section.verdicts.extend(latencies[2].verdicts(&what, &latencies[0], TARGET));
    section
}

trait Sleeper {
    fn name(&self) -> &str;
    /// Ends the sleep, from another thread.
    fn action(&self) -> Action;
    /// Sleeps until the action, or uses it up where it came before.
    fn sleep(&mut self);
}

/// A word, the kernel's wait and the kernel's wake.
#[derive(Default)]
struct Futex(Arc<AtomicU32>);

impl Sleeper for Futex {
    fn name(&self) -> &str {
        "raw futex"
    }

    fn action(&self) -> Action {
        let word = self.0.clone();
        Arc::new(move || {
            word.store(1, Ordering::Release);
            futex::wake(&word, Flags::PRIVATE, 1).expect("a valid word");
        })
    }

    fn sleep(&mut self) {
        while self.0.load(Ordering::Acquire) == 0 {
            // Ends with an error where the word has changed already.
            let _ = futex::wait(&self.0, Flags::PRIVATE, 0, None);
        }
        self.0.store(0, Ordering::Relaxed);
    }
}

struct Unparked;

impl Sleeper for Unparked {
    fn name(&self) -> &str {
        "std::thread::park, unpark"
    }

    fn action(&self) -> Action {
        let sleeper = thread::current();
        Arc::new(move || sleeper.unpark())
    }

    fn sleep(&mut self) {
        thread::park();
    }
}

struct Idling {
    name: &'static str,
    idle: StdIdle,
    line: Option<CompletionLine>,
}

impl Idling {
    fn sleeping(name: &'static str) -> Self {
        let idle = StdIdle::with(StdClock::new(), ParkPolicy::BALANCED);
        Idling { name, idle, line: None }
    }

    fn parking(name: &'static str) -> Self {
        let slice = DurNs::from_ms(10);
        let policy = ParkPolicy {
            spin: DurNs::ZERO,
            yielding: DurNs::ZERO,
            min_slice: slice,
            max_slice: slice,
            share_permille: 1_000,
        };
        let idle = StdIdle::with(StdClock::new(), policy);
        Idling { name, idle, line: Some(CompletionLine::default()) }
    }
}

impl Sleeper for Idling {
    fn name(&self) -> &str {
        self.name
    }

    fn action(&self) -> Action {
        let waker = self.idle.unparker().expect("this idle has one");
        Arc::new(move || waker.wake_by_ref())
    }

    fn sleep(&mut self) {
        match &self.line {
            None => self.idle.sleep_until(MonoNs::MAX),
            Some(line) => _ = self.idle.park_line(line, |_| false, DurNs::MAX),
        }
    }
}
