//! Watches and watchers that are dropped or forgotten.

mod common;

use common::watching::*;
use common::{Watchdog, descriptor, device, wait_for};
use gpu_async_reactor::backend::software::{Hang, QueryFault, Work};
use gpu_async_reactor::host::{WatchPolicy, WatchResult};
use gpu_async_reactor::{
    CompletionLine, DeviceStream, ErrorCode, OwnedDescriptor, SharedLine, Slot,
};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A line that says when it is dropped.
struct Told(CompletionLine, Arc<AtomicU64>);

impl AsRef<CompletionLine> for Told {
    fn as_ref(&self) -> &CompletionLine {
        &self.0
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_watch_dropped_before_during_or_after_its_end_leaves_nothing_behind() {
    let _watchdog = Watchdog::new("drops");
    for policy in POLICIES {
        let watcher = watcher(policy);
        let dropped = Arc::new(AtomicU64::new(0));
        let line = || -> SharedLine { Arc::new(Told(CompletionLine::default(), dropped.clone())) };
        let word = |line| OwnedDescriptor { line, slot: Slot::ALL[0], target: 1 };
        // Never polled.
        drop(watcher.watch(word(line()), NEVER, || Ok(false)));
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        // While it waits; and while one keeps the thread from sleeping for good.
        let mut other = watcher.watch(word(line()), NEVER, || Ok(false));
        assert!(poll(&mut other).is_pending());
        let mut watch = watcher.watch(word(line()), NEVER, || Ok(false));
        assert!(poll(&mut watch).is_pending());
        wait_for(|| watcher.stats().registered == 2);
        let wakes = watcher.stats().wakes;
        drop(watch);
        assert_eq!(watcher.stats().wakes, wakes, "a drop wakes nobody");
        wait_for(|| dropped.load(Ordering::Relaxed) == 2);
        // At once after its registration.
        let mut watch = watcher.watch(word(line()), NEVER, || Ok(false));
        assert!(poll(&mut watch).is_pending());
        drop(watch);
        wait_for(|| dropped.load(Ordering::Relaxed) == 3);
        // After its end, with the result never taken.
        let shared = line();
        let mut watch = watcher.watch(word(shared.clone()), NEVER, || Ok(true));
        assert!(poll(&mut watch).is_pending());
        (*shared).as_ref().store(Slot::ALL[0], 1);
        drop(shared);
        wait_for(|| watcher.stats().completed == 1);
        drop(watch);
        wait_for(|| dropped.load(Ordering::Relaxed) == 4);
        drop(other);
        wait_for(|| dropped.load(Ordering::Relaxed) == 5);
        wait_for(|| watcher.stats().dropped == 3);
    }
}

#[test]
fn a_watch_dropped_while_its_status_is_asked_is_let_go_once_it_was_answered() {
    let _watchdog = Watchdog::new("drop in call");
    let watcher = watcher(WatchPolicy::SPIN);
    let (stream, hang) = (shared_stream(&device()), Hang::new());
    stream.inject_query(QueryFault::Hang(hang.clone()));
    let number = stream.mark().unwrap();
    let mut watch = watcher.watch_stream(stream.clone(), number, OPTIONS);
    assert!(poll(&mut watch).is_pending());
    wait_for(|| hang.holding() == 1);
    drop(watch);
    hang.release();
    wait_for(|| Arc::strong_count(&stream) == 1);
    assert_eq!(watcher.stats().completed, 0);
}

#[test]
fn a_forgotten_watch_keeps_its_line_until_its_number_is_reached() {
    let _watchdog = Watchdog::new("forgotten");
    let watcher = watcher(WatchPolicy::default());
    let device = device();
    let (stream, hang) = (shared_stream(&device), Hang::new());
    stream.queue(Work::new().hang(&hang)).unwrap();
    let number = stream.mark().unwrap();
    let word = descriptor(&stream, number);
    let mut watch = watcher.watch(word.clone(), OPTIONS, agreeing(&word));
    assert!(poll(&mut watch).is_pending());
    std::mem::forget(watch);
    drop((stream, word));
    thread::sleep(Duration::from_millis(5));
    hang.release();
    wait_for(|| watcher.stats().completed == 1);
}

#[test]
fn a_forgotten_watch_of_a_line_that_nobody_stores_into_keeps_it_until_the_watcher_ends() {
    let _watchdog = Watchdog::new("forgotten, silent");
    let watcher = watcher(WatchPolicy::default());
    let dropped = Arc::new(AtomicU64::new(0));
    let line: SharedLine = Arc::new(Told(CompletionLine::default(), dropped.clone()));
    let word = OwnedDescriptor { line, slot: Slot::ALL[0], target: 1 };
    let mut watch = watcher.watch(word, OPTIONS, || Ok(false));
    assert!(poll(&mut watch).is_pending());
    std::mem::forget(watch);
    wait_for(|| watcher.stats().queries >= 2);
    assert_eq!(dropped.load(Ordering::Relaxed), 0, "a device may still store into it");
    drop(watcher);
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}

#[test]
fn dropping_the_watcher_ends_what_is_left_with_an_error_also_behind_a_hanging_status() {
    let _watchdog = Watchdog::new("watcher dropped");
    for policy in POLICIES {
        let watcher = watcher(policy);
        let (stream, hang) = (shared_stream(&device()), Hang::new());
        stream.inject_query(QueryFault::Hang(hang.clone()));
        let number = stream.mark().unwrap();
        let start = |watch: Pin<Box<dyn Future<Output = WatchResult> + Send>>| {
            thread::spawn(move || block_on(watch))
        };
        let waiting = [
            start(Box::pin(watcher.watch(word(1), NEVER, || Ok(false)))),
            start(Box::pin(watcher.watch_stream(stream, number, NEVER))),
        ];
        wait_for(|| hang.holding() == 1 && watcher.stats().registered == 2);
        let unpolled = watcher.watch(word(1), NEVER, || Ok(true));
        let began = now();
        drop(watcher);
        let took = now().since(began);
        println!("{policy:?}: dropped in {took}");
        for waiting in waiting {
            assert_eq!(watcher_error(waiting.join().unwrap()), ErrorCode::WatcherClosed);
        }
        assert_eq!(watcher_error(block_on(unpolled)), ErrorCode::WatcherClosed);
        assert!(hang.holding() == 1, "the call hangs still, and nobody waits for it");
        hang.release();
    }
}
