//! A tokio task that another thread resumes: by a store that a `Watcher` sees, or by a `Notify`.

use crate::measure::{Effort, Samples, interleave};
use crate::report::{Cell, Section, Verdict};
use gpu_async_reactor::host::{StdClock, WatchOptions, WatchPolicy, Watcher};
use gpu_async_reactor::{Clock, CompletionLine, DurNs, MonoNs, OwnedDescriptor, Slot};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

const TARGET: f64 = 1.1;
/// From the task's request to the store, so that the task's thread has gone to sleep.
const DELAY: Duration = Duration::from_micros(150);

/// What resumes the task.
enum By {
    Notify(Arc<Notify>),
    Watcher(Watcher, OwnedDescriptor),
}

/// A tokio runtime and a thread that acts for it.
struct Subject {
    by: By,
    runtime: Runtime,
    wakes: usize,
    /// The number to store next.
    requests: Sender<u64>,
    /// When that was done.
    stamps: Receiver<MonoNs>,
    number: u64,
    p99: Vec<f64>,
}

impl Subject {
    fn new(policy: Option<WatchPolicy>, wakes: usize) -> Box<Self> {
        let (requests, requested) = channel::<u64>();
        let (stamp, stamps) = channel();
        let by = match policy {
            None => By::Notify(Arc::default()),
            Some(policy) => {
                let line = CompletionLine::shared();
                let word = OwnedDescriptor { line, slot: Slot::ALL[0], target: 0 };
                By::Watcher(Watcher::new(policy).expect("threads"), word)
            }
        };
        let act: Box<dyn Fn(u64) + Send> = match &by {
            By::Notify(notify) => {
                let notify = notify.clone();
                Box::new(move |_| notify.notify_one())
            }
            By::Watcher(_, word) => {
                let word = word.clone();
                Box::new(move |number| (*word.line).as_ref().store(word.slot, number))
            }
        };
        thread::spawn(move || {
            let clock = StdClock::new();
            for number in requested {
                thread::sleep(DELAY);
                let now = clock.monotonic_ns();
                act(number);
                if stamp.send(now).is_err() {
                    return;
                }
            }
        });
        let runtime = Builder::new_current_thread().build().expect("a runtime without drivers");
        Box::new(Subject { by, runtime, wakes, requests, stamps, number: 0, p99: Vec::new() })
    }

    /// The p50 of some wakes in nanoseconds; their p99 is kept.
    fn sample(&mut self) -> f64 {
        let clock = StdClock::new();
        let mut times: Vec<f64> = (0..self.wakes)
            .map(|_| {
                self.number += 1;
                let number = self.number;
                self.requests.send(number).expect("the other thread is there");
                match &mut self.by {
                    By::Notify(notify) => self.runtime.block_on(notify.notified()),
                    By::Watcher(watcher, word) => {
                        word.target = number;
                        let of_status = word.clone();
                        let options = WatchOptions::new(DurNs::from_ms(10));
                        let status = move || Ok(of_status.is_complete());
                        let watch = watcher.watch(word.clone(), options, status);
                        self.runtime.block_on(watch).expect("a status without errors");
                    }
                }
                let resumed = clock.monotonic_ns();
                let stored = self.stamps.recv().expect("the other thread is there");
                resumed.since(stored).0 as f64
            })
            .collect();
        times.sort_by(f64::total_cmp);
        self.p99.push(times[times.len() * 99 / 100]);
        times[times.len() / 2]
    }
}

pub fn run(effort: Effort) -> Section {
    let names = [
        "tokio Notify",
        "Watcher, SPIN, to a tokio task",
        "Watcher, BALANCED, to a tokio task",
        "Watcher, SAVING, to a tokio task",
    ];
    let policies =
        [None, Some(WatchPolicy::SPIN), Some(WatchPolicy::BALANCED), Some(WatchPolicy::SAVING)];
    let wakes = effort.pick(100, 300);
    let mut subjects = policies.map(|policy| Subject::new(policy, wakes));
    let samples = interleave(effort.pick(11, 31), &mut subjects, |subject| subject.sample());
    let columns = ["ns from store to resumed", "p50", "p99"];
    let mut section = Section::new("wake: a tokio task by another thread", &columns);
    section.note(format!(
        "current-thread runtime, asleep; the store comes some {} us after the task went to wait",
        DELAY.as_micros()
    ));
    let p99: Vec<Samples> =
        subjects.iter().map(|subject| Samples(subject.p99[1..].to_vec())).collect();
    for (at, name) in names.iter().enumerate() {
        let cells = [&samples[at], &p99[at]].map(|samples| Cell::Measured(samples.spread()));
        section.row(*name, cells.into());
    }
    for (what, samples) in [("p50", &samples), ("p99", &p99)] {
        let what = format!("{} / {}, {what}", names[1], names[0]);
        section.verdicts.push(Verdict::at_most(
            what,
            &samples[1].ratios_to(&samples[0]),
            " x",
            TARGET,
        ));
    }
    section
}
