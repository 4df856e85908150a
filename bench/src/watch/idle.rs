//! CPU time of the watcher's threads: with nothing registered, and during one wait of 50 ms.

use crate::measure::{Effort, Samples};
use crate::report::{Cell, Section, Verdict};
use gpu_async_reactor::backend::software::SoftwareDevice;
use gpu_async_reactor::host::{WatchOptions, WatchPolicy, Watcher};
use gpu_async_reactor::{DeviceStream, DurNs};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const TARGET_SHARE: f64 = 0.1;
const POLICIES: [(&str, WatchPolicy); 3] = [
    ("SPIN", WatchPolicy::SPIN),
    ("BALANCED", WatchPolicy::BALANCED),
    ("SAVING", WatchPolicy::SAVING),
];

pub fn run(effort: Effort) -> Option<Section> {
    watchers_cpu()?;
    let columns =
        ["% of a core, all threads of the watcher", "nothing registered", "a wait of 50 ms"];
    let mut section = Section::new("watch: CPU", &columns);
    section.note("backstop 10 ms; the software device and the awaiting thread are not counted");
    let runtime = tokio::runtime::Builder::new_current_thread().build().ok()?;
    for (name, policy) in POLICIES {
        let watcher = Watcher::new(policy).ok()?;
        let stream = Arc::new(SoftwareDevice::new().ok()?.stream().ok()?);
        let wait = |ms| {
            stream.delay(DurNs::from_ms(ms)).expect("a stream without faults");
            let number = stream.mark().expect("a stream without faults");
            let options = WatchOptions::new(DurNs::from_ms(10));
            let watch = watcher.watch_stream(stream.clone(), number, options);
            runtime.block_on(watch).expect("work that ends");
        };
        let (mut nothing, mut waiting) = (Samples::default(), Samples::default());
        for _ in 0..effort.pick(3, 11) {
            wait(1);
            thread::sleep(Duration::from_millis(100));
            let quiet = Duration::from_millis(effort.pick(300, 1_000));
            nothing.0.push(share(quiet, || thread::sleep(quiet))?);
            waiting.0.push(share(Duration::from_millis(50), || wait(50))?);
        }
        section.row(name, vec![Cell::Measured(nothing.spread()), Cell::Measured(waiting.spread())]);
        let what = format!("{name}, nothing registered");
        section.verdicts.push(Verdict::at_most(what, &nothing, " %", TARGET_SHARE));
    }
    Some(section)
}

/// The share of `of` that the watcher's threads use during `work`, in percent.
fn share(of: Duration, work: impl FnOnce()) -> Option<f64> {
    let before = watchers_cpu()?;
    work();
    let used = watchers_cpu()?.saturating_sub(before);
    Some(100.0 * used.as_secs_f64() / of.as_secs_f64())
}

/// The CPU time of all threads of watchers, by their name. None where the system does not tell.
fn watchers_cpu() -> Option<Duration> {
    let mut used = Duration::ZERO;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let path = task.ok()?.path();
        if std::fs::read_to_string(path.join("comm")).ok()?.trim() == "watcher" {
            let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
            used += Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?);
        }
    }
    Some(used)
}
