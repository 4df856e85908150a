//! What the watcher's threads cost while there is nothing to do (F19). On its own: it tells the
//! watcher's threads from others by their name.

mod common;

use common::watching::block_on;
use common::{Watchdog, device};
use gpu_async_reactor::host::{WatchOptions, WatchPolicy, Watcher};
use gpu_async_reactor::{DeviceStream, DurNs};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The CPU time that all threads of watchers have used. None where the system does not tell.
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

#[test]
fn f19_nothing_registered_costs_next_to_no_cpu_and_a_long_wait_what_its_policy_says() {
    let _watchdog = Watchdog::new("f19 watcher");
    if watchers_cpu().is_none() {
        println!("skipped: this system does not tell the CPU time of a thread");
        return;
    }
    let policies = [
        ("SPIN", WatchPolicy::SPIN, 60),
        ("BALANCED", WatchPolicy::BALANCED, 15),
        ("SAVING", WatchPolicy::SAVING, 10),
    ];
    for (name, policy, wait_ms) in policies {
        let watcher = Watcher::new(policy).unwrap();
        let stream = Arc::new(device().stream().unwrap());
        let options = WatchOptions::new(DurNs::from_ms(10));
        // It has worked before, and has grown quiet.
        let number = stream.mark().unwrap();
        block_on(watcher.watch_stream(stream.clone(), number, options)).unwrap();
        thread::sleep(Duration::from_millis(100));
        let before = watchers_cpu().unwrap();
        thread::sleep(Duration::from_secs(1));
        let idle = watchers_cpu().unwrap() - before;
        stream.delay(DurNs::from_ms(50)).unwrap();
        let number = stream.mark().unwrap();
        let before = watchers_cpu().unwrap();
        block_on(watcher.watch_stream(stream.clone(), number, options)).unwrap();
        let waiting = watchers_cpu().unwrap() - before;
        println!("{name}: {idle:?} of CPU time in 1 s of nothing, {waiting:?} in a wait of 50 ms");
        assert!(idle < Duration::from_millis(1), "{name}: {idle:?} in a second of nothing");
        assert!(waiting < Duration::from_millis(wait_ms), "{name}: {waiting:?} in 50 ms");
    }
}
