//! Measured times, and how waits on any stream are measured.

use crate::cases::{Outcome, Ran, seen, why};
use gpu_async_reactor::host::{StdClock, StdIdle};
use gpu_async_reactor::{
    Clock, DeviceStream, DurNs, Resolved, ThreadPort, WaitPlan, reached, run_inline, wait,
};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Every plan of the tables, without a prediction.
pub const PLANS: [&str; 4] =
    ["block", "poll", "flag:park_us=50,backstop_us=1000", "spin:backstop_us=1000"];

/// Times in ns.
#[derive(Default)]
pub struct Samples(Vec<u64>);

impl Samples {
    /// One more.
    pub fn add(&mut self, time: DurNs) {
        self.0.push(time.0);
    }
}

impl fmt::Display for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = |share: usize| match sorted.len() {
            0 => 0.0,
            len => sorted[(len - 1) * share / 100] as f64 / 1000.0,
        };
        write!(f, "p50 {:.2} us, p99 {:.2} us, of {}", at(50), at(99), sorted.len())
    }
}

/// Whether the word of `number` is there.
pub fn is_seen<S: DeviceStream>(stream: &S, number: u64) -> bool {
    reached((**stream.line()).as_ref(), stream.slot(), number)
}

/// How `text` runs here; hosts without a monitor instruction get another plan for `flag`.
pub fn resolved(text: &str) -> Resolved {
    let (_, host) = StdIdle::probe(StdClock::new());
    WaitPlan::parse(text).expect("a plan").resolve(&host)
}

/// A port that keeps the thread.
pub fn port<S: DeviceStream>(stream: S) -> ThreadPort<S, StdIdle> {
    ThreadPort::new(stream, StdIdle::probe(StdClock::new()).0)
}

/// Waits for `work` under every plan, and checks what it did.
pub fn every_plan<S: DeviceStream>(
    stream: &S,
    mut work: impl FnMut(&S, u8) -> Result<(), String>,
    mut check: impl FnMut(&S, u8) -> Result<(), String>,
) -> Outcome {
    let clock = StdClock::new();
    let mut told = Vec::new();
    for text in PLANS {
        let plan = resolved(text);
        let mut port = port(stream);
        let mut times = Samples::default();
        for value in 1..=20 {
            work(stream, value)?;
            let started = clock.monotonic_ns();
            run_inline(wait(&plan.plan, None, &mut port, &clock)).map_err(why)?.map_err(why)?;
            times.add(clock.monotonic_ns().since(started));
            check(stream, value)?;
        }
        told.push(format!("{}: {times}", plan.label()));
    }
    seen(told.join("; "))
}

/// What a mark costs and how soon each way of knowing knows, on a stream without other work.
pub fn latency<S: DeviceStream>(stream: &S) -> Outcome {
    let clock = StdClock::new();
    let [mut queued, mut word, mut status, mut blocked] = [0; 4].map(|_| Samples::default());
    for round in 0..2_000 {
        let started = clock.monotonic_ns();
        let number = stream.mark().map_err(why)?;
        queued.add(clock.monotonic_ns().since(started));
        match round % 3 {
            0 => {
                let until = started.after(DurNs::from_ms(100));
                while !is_seen(stream, number) {
                    if clock.monotonic_ns() > until {
                        return Err("the word did not come within 100 ms".to_string());
                    }
                    std::hint::spin_loop();
                }
                word.add(clock.monotonic_ns().since(started));
                while !stream.query_mark(number).map_err(why)? {}
            }
            1 => {
                while !stream.query_mark(number).map_err(why)? {}
                status.add(clock.monotonic_ns().since(started));
            }
            _ => {
                stream.synchronize_mark(number).map_err(why)?;
                blocked.add(clock.monotonic_ns().since(started));
            }
        }
    }
    seen(format!(
        "from before the mark: queued {queued}; word seen {word}; status polled {status}; blocking wait {blocked}"
    ))
}

/// Marks of many streams, all at once.
pub fn many_streams<S: DeviceStream>(
    streams: usize,
    make: impl Fn() -> Result<S, String>,
) -> Outcome {
    let streams = (0..streams).map(|_| make()).collect::<Result<Vec<S>, String>>()?;
    let mut numbers = Vec::new();
    for stream in &streams {
        numbers.push(stream.mark().map_err(why)?);
    }
    for (stream, number) in streams.iter().zip(numbers) {
        stream.synchronize_mark(number).map_err(why)?;
        if !is_seen(stream, number) {
            return Err("a status says done and its word is not there".to_string());
        }
    }
    seen(format!("{} streams", streams.len()))
}

/// How often a wait may end when all work is done, which shows nothing.
const TRIES: u32 = 10;

/// A wait ends with its own mark while work that is queued behind it is running: another thread queues more
/// until the wait has ended.
pub fn own_point<S: DeviceStream + Sync>(
    stream: &S,
    work: impl Fn(&S) -> Result<(), String> + Sync,
) -> Outcome {
    let clock = StdClock::new();
    let plan = resolved("spin:backstop_us=1000");
    let mut port = port(stream);
    for _ in 0..TRIES {
        work(stream)?;
        let ticket = port.mark().map_err(why)?;
        let (begun, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let (own, was_busy) = thread::scope(|scope| {
            let queueing = scope.spawn(|| {
                // Enough that the stream is busy when the wait has ended, and no more: all of it is run.
                for _ in 0..16 {
                    if ended.load(Ordering::Acquire) {
                        break;
                    }
                    let queued = work(stream);
                    begun.store(true, Ordering::Release);
                    queued?;
                }
                Ok::<_, String>(())
            });
            while !begun.load(Ordering::Acquire) {
                thread::yield_now();
            }
            let mut at = port.at(ticket);
            let started = clock.monotonic_ns();
            let waited = run_inline(wait(&plan.plan, None, &mut at, &clock)).map_err(why);
            let own = clock.monotonic_ns().since(started);
            let is_done = stream.query().map_err(why);
            ended.store(true, Ordering::Release);
            queueing.join().expect("no panic")?;
            waited?.map_err(why)?;
            Ok::<_, String>((own, !is_done?))
        })?;
        stream.synchronize().map_err(why)?;
        if was_busy {
            return seen(format!("its own mark after {own}, while work behind it ran"));
        }
    }
    Ok(Ran::Skipped(format!("all work was done with the first mark, {TRIES} times")))
}

/// Makes `marks` marks while another thread looks at the word: it never goes back, never leads what was
/// issued, and comes to the last. A word that is not there after the status said done is lost or late, and counted.
pub fn order<S: DeviceStream + Sync>(marks: u64, stream: &S) -> Outcome {
    let over = AtomicBool::new(false);
    let word = || (**stream.line()).as_ref().load(stream.slot());
    thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let (mut last, mut looks) = (word(), 0u64);
            while !over.load(Ordering::Acquire) {
                let now = word();
                if now < last {
                    return Err(format!("the word went from {last} back to {now}"));
                }
                (last, looks) = (now, looks + 1);
            }
            Ok(looks)
        });
        let making = (|| {
            let (mut number, mut late) = (0, 0u64);
            for mark in 1..=marks {
                number = stream.mark().map_err(why)?;
                if mark % 256 == 0 || mark == marks {
                    stream.synchronize_mark(number).map_err(why)?;
                    late += u64::from(!is_seen(stream, number));
                }
            }
            let there = word();
            if there > number {
                return Err(format!("the word is {there}, and {number} was the last mark"));
            }
            Ok((number, late))
        })();
        over.store(true, Ordering::Release);
        let looks = looking.join().expect("the thread does not panic")?;
        let (number, late) = making?;
        if !is_seen(stream, number) {
            return Err(format!("the word of {number} is not there, and its status says done"));
        }
        seen(format!("{looks} looks; {late} words lost or late"))
    })
}
