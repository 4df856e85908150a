//! What the threads of watchers and of precise timers cost (F19, F28, F58). On its own: it tells
//! them from others by their names.

mod common;

use common::watching::{NEVER, block_on, poll, word};
use common::{Watchdog, device};
use gpu_async_reactor::host::{PreciseTimer, WatchOptions, WatchPolicy, Watcher};
use gpu_async_reactor::{Clock, DeviceStream, DurNs};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The CPU time that all threads of that name have used. None if the system does not report it.
fn cpu_of(name: &str) -> Option<Duration> {
    let mut used = Duration::ZERO;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let path = task.ok()?.path();
        if std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name) {
            let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
            used += Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?);
        }
    }
    Some(used)
}

/// One test at a time has watchers.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn f19_nothing_registered_costs_next_to_no_cpu_and_a_long_wait_what_its_policy_says() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _watchdog = Watchdog::new("f19 watcher");
    if cpu_of("watcher").is_none() {
        println!("skipped: this system does not report the CPU time of a thread");
        return;
    }
    let watchers_cpu = || cpu_of("watcher").unwrap();
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
        let before = watchers_cpu();
        thread::sleep(Duration::from_secs(1));
        let idle = watchers_cpu() - before;
        stream.delay(DurNs::from_ms(50)).unwrap();
        let number = stream.mark().unwrap();
        let before = watchers_cpu();
        block_on(watcher.watch_stream(stream.clone(), number, options)).unwrap();
        let waiting = watchers_cpu() - before;
        println!("{name}: {idle:?} of CPU time in 1 s of nothing, {waiting:?} in a wait of 50 ms");
        assert!(idle < Duration::from_millis(1), "{name}: {idle:?} in a second of nothing");
        assert!(waiting < Duration::from_millis(wait_ms), "{name}: {waiting:?} in 50 ms");
    }
}

#[test]
fn f58_watchers_and_timers_with_nothing_pending_use_less_than_a_thousandth_of_a_core() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _watchdog = Watchdog::new("f58");
    const NAMES: [&str; 2] = ["watcher", "precise-timer"];
    if cpu_of(NAMES[0]).is_none() {
        println!("skipped: this system does not report the CPU time of a thread");
        return;
    }
    let policies = [WatchPolicy::SPIN, WatchPolicy::BALANCED, WatchPolicy::SAVING];
    let watchers = policies.map(|policy| Watcher::new(policy).unwrap());
    let timer = PreciseTimer::new().unwrap();
    for watcher in &watchers {
        block_on(watcher.watch(word(0), NEVER, || Ok(true))).unwrap();
        // A watch that was given up leaves nothing behind either.
        let mut dropped = watcher.watch(word(1), NEVER, || Ok(false));
        assert!(poll(&mut dropped).is_pending());
    }
    block_on(timer.sleep(timer.monotonic_ns().after(DurNs::from_ms(1))));
    thread::sleep(Duration::from_millis(100));
    let before = NAMES.map(|name| cpu_of(name).unwrap());
    let span = Duration::from_secs(3);
    thread::sleep(span);
    for (name, before) in NAMES.into_iter().zip(before) {
        let used = cpu_of(name).unwrap() - before;
        println!("{name}: {used:?} of CPU time in {span:?} of nothing");
        assert!(used < span / 1_000, "{name}: {used:?} in {span:?}");
    }
}

/// The share of a core that a BALANCED watcher uses in half a second, with one long watch and
/// `every` so often another one. The least of three.
fn share(every: Option<Duration>) -> f64 {
    let once = || {
        let watcher = Watcher::new(WatchPolicy::BALANCED).unwrap();
        let mut held = watcher.watch(word(1), NEVER, || Ok(false));
        assert!(poll(&mut held).is_pending());
        let mut others = Vec::new();
        thread::sleep(Duration::from_millis(50));
        let (began, before) = (Instant::now(), cpu_of("watcher").unwrap());
        while began.elapsed() < Duration::from_millis(500) {
            thread::sleep(every.unwrap_or(Duration::from_millis(5)));
            if every.is_some() {
                let mut other = watcher.watch(word(1), NEVER, || Ok(false));
                assert!(poll(&mut other).is_pending());
                others.push(other);
            }
        }
        let used = cpu_of("watcher").unwrap() - before;
        used.as_secs_f64() / began.elapsed().as_secs_f64() * 100.0
    };
    (0..3).map(|_| once()).fold(f64::MAX, f64::min)
}

#[test]
fn f28_registrations_every_few_milliseconds_leave_the_cost_of_a_long_watch_as_it_was() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _watchdog = Watchdog::new("f28 watcher");
    if cpu_of("watcher").is_none() {
        println!("skipped: this system does not report the CPU time of a thread");
        return;
    }
    let none = share(None);
    println!("a long watch: {none:.1} % of a core");
    for ms in [2, 5, 20] {
        let share = share(Some(Duration::from_millis(ms)));
        println!("and a registration every {ms} ms: {share:.1} %");
        assert!(share < 15.0, "a registration every {ms} ms: {share:.1} % of a core");
    }
}
