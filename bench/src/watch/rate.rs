//! Registering and completing: from the making of the future over its first poll, the store of its
//! word, the status and the wake to the poll that takes the result, and its drop.

use crate::measure::{Effort, Samples, ns_each};
use crate::report::{Cell, Section, Verdict};
use gpu_async_reactor::host::{WatchOptions, WatchPolicy, Watcher};
use gpu_async_reactor::{CompletionLine, DurNs, OwnedDescriptor, Slot};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

const THREADS: [usize; 2] = [1, 8];
/// Twice what a public peer's scanner thread does with 8 threads on two cores, as times.
const SATURATED_NS: f64 = 1_000.0 / 1.5;
const BURST_NS: f64 = 1_000.0 / 8.8;

/// How a thread brings its watches.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    /// Watches of a thread that are registered at one time: registered, then stored, then awaited.
    batch: usize,
    batches: usize,
    /// Threads begin each batch together.
    together: bool,
}

pub fn run(effort: Effort) -> Vec<Section> {
    let loads = [
        Load { name: "saturated, 64 at a time", batch: 64, batches: 400, together: false },
        Load { name: "bursts of 1,000", batch: 1_000, batches: 10, together: true },
        Load { name: "one at a time", batch: 1, batches: 4_000, together: false },
    ];
    let repetitions = effort.pick(7, 21);
    let columns = ["ns a watch", "1 thread", "8 threads", "8 threads: M/s", "M/s registered"];
    let mut section = Section::new("watch: register and complete", &columns);
    section.note(
        "wall time a watch, all threads together; spinning watcher; each watch on a slot of its \
         own, a status that reads the word; a thread registers its batch, stores all of its words \
         and awaits all of it; M/s registered: from the first registration of a burst to the last",
    );
    let watcher = Watcher::new(WatchPolicy::SPIN).expect("threads");
    for load in loads {
        let mut both = THREADS.map(|_| (Samples::default(), Samples::default()));
        for repetition in 0..=repetitions {
            for (threads, (all, registered)) in THREADS.iter().zip(&mut both) {
                let (end, registering) = measure(&watcher, *threads, load);
                // The first one only fills the tables.
                if repetition > 0 {
                    let times = threads * load.batch * load.batches;
                    all.0.push(ns_each(end, times));
                    registered.0.push(ns_each(registering, times));
                }
            }
        }
        let [(single, _), (eight, registered)] = &both;
        let rate = |samples: &Samples| Cell::Counted(1_000.0 / samples.median());
        let registered = match load.together {
            true => rate(registered),
            false => Cell::Absent("at different times".to_string()),
        };
        section.row(
            load.name,
            vec![
                Cell::Measured(single.spread()),
                Cell::Measured(eight.spread()),
                rate(eight),
                registered,
            ],
        );
        let target = match load.batch {
            64 => Some(SATURATED_NS),
            1_000 => Some(BURST_NS),
            _ => None,
        };
        if let Some(target) = target {
            let rate = format!("{} M/s", 10_000.0_f64.mul_add(1.0 / target, 0.5).floor() / 10.0);
            let what = format!("{}, 8 threads (target: {rate})", load.name);
            section.verdicts.push(Verdict::at_most(what, eight, " ns", target));
        }
    }
    vec![section]
}

/// The time of all batches, and that from the first registration of each to the last one.
fn measure(watcher: &Watcher, threads: usize, load: Load) -> (Duration, Duration) {
    let barrier = Arc::new(Barrier::new(threads));
    let started = Arc::new(Barrier::new(threads + 1));
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (watcher, barrier, started) = (watcher.clone(), barrier.clone(), started.clone());
            thread::spawn(move || {
                let mut worker = Worker::new(watcher, load.batch);
                started.wait();
                let batches = (0..load.batches).map(|_| {
                    if load.together {
                        barrier.wait();
                    }
                    worker.batch()
                });
                batches.collect::<Vec<_>>()
            })
        })
        .collect();
    started.wait();
    let start = Instant::now();
    let batches: Vec<_> =
        workers.into_iter().map(|worker| worker.join().expect("a worker")).collect();
    let elapsed = start.elapsed();
    let registering = (0..load.batches).filter_map(|batch| {
        let first = batches.iter().map(|batches| batches[batch].0).min()?;
        let last = batches.iter().map(|batches| batches[batch].1).max()?;
        Some(last - first)
    });
    (elapsed, registering.sum())
}

/// Wakes its thread once the last of a batch has ended.
struct Countdown {
    left: AtomicUsize,
    thread: Thread,
}

impl Wake for Countdown {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.thread.unpark();
        }
    }
}

struct Worker {
    watcher: Watcher,
    words: Vec<OwnedDescriptor>,
    countdown: Arc<Countdown>,
    waker: Waker,
}

impl Worker {
    fn new(watcher: Watcher, batch: usize) -> Self {
        let lines = std::iter::repeat_with(CompletionLine::shared);
        let of_line = |line: gpu_async_reactor::SharedLine| {
            Slot::ALL.map(|slot| OwnedDescriptor { line: line.clone(), slot, target: 0 })
        };
        let words = lines.flat_map(of_line).take(batch).collect();
        let countdown =
            Arc::new(Countdown { left: AtomicUsize::new(0), thread: thread::current() });
        let waker = Waker::from(countdown.clone());
        Worker { watcher, words, countdown, waker }
    }

    /// One batch; when its registering began and when it ended.
    fn batch(&mut self) -> (Instant, Instant) {
        const OPTIONS: WatchOptions = WatchOptions::new(DurNs::from_ms(100));
        let Worker { watcher, words, countdown, waker } = self;
        countdown.left.store(words.len(), Ordering::Relaxed);
        let mut context = Context::from_waker(waker);
        let start = Instant::now();
        let mut watches: Vec<_> = words
            .iter_mut()
            .map(|word| {
                word.target += 1;
                let of_status = word.clone();
                let mut watch =
                    watcher.watch(word.clone(), OPTIONS, move || Ok(of_status.is_complete()));
                assert!(Pin::new(&mut watch).poll(&mut context).is_pending());
                watch
            })
            .collect();
        let registered = Instant::now();
        for OwnedDescriptor { line, slot, target } in &*words {
            (**line).as_ref().store(*slot, *target);
        }
        while countdown.left.load(Ordering::Acquire) != 0 {
            thread::park();
        }
        for watch in &mut watches {
            let Poll::Ready(Ok(_)) = Pin::new(watch).poll(&mut context) else {
                panic!("every watch was woken")
            };
        }
        (start, registered)
    }
}
