//! The watcher beside statuses, wakers and destructors that panic: nobody else loses a watch, a
//! wake or a thread.

mod common;

use common::watching::*;
use common::{Watchdog, wait_for};
use gpu_async_reactor::host::{WatchPolicy, Watcher};
use gpu_async_reactor::{CompletionLine, ErrorCode, OwnedDescriptor, Result, SharedLine, Slot};
use std::panic::panic_any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// Panics in its destructor, on a watcher's thread only.
struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        if thread::current().name() == Some("watcher") {
            panic!("a destructor of the test");
        }
    }
}

/// A line with one.
struct Line(CompletionLine, Panics);

impl AsRef<CompletionLine> for Line {
    fn as_ref(&self) -> &CompletionLine {
        &self.0
    }
}

fn line() -> SharedLine {
    Arc::new(Line(CompletionLine::default(), Panics))
}

/// More than threads may be stuck.
const TIMES: usize = 12;

/// A watch of somebody else ends as it should.
fn assert_others_go_on(watcher: &Watcher) {
    let there = word(1);
    store(&there, 1);
    block_on(watcher.watch(there.clone(), NEVER, agreeing(&there))).unwrap();
    // No thread is lost. One that only waited for its turn on a busy machine comes back.
    wait_for(|| watcher.stats().abandoned == watcher.stats().returned);
}

#[test]
fn f59_a_status_whose_panic_panics_once_more_ends_its_own_watch_and_costs_no_thread() {
    let _watchdog = Watchdog::new("payloads");
    let watcher = watcher(WatchPolicy::default());
    for _ in 0..TIMES {
        let status = || -> Result<bool> { panic_any(Panics) };
        let result = block_on(watcher.watch(word(0), OPTIONS, status));
        assert_eq!(status_error(result).code(), ErrorCode::Backend);
        assert_others_go_on(&watcher);
    }
}

#[test]
fn f59_a_waker_that_panics_with_such_a_payload_costs_no_other_watch_its_wake() {
    let _watchdog = Watchdog::new("wakers");
    let watcher = watcher(WatchPolicy::default());
    for time in 1..=TIMES as u64 {
        let word = word(1);
        let mut watch = watcher.watch(word.clone(), NEVER, agreeing(&word));
        assert!(poll_with(&mut watch, &running(|| panic_any(Panics))).is_pending());
        let other = {
            let (watcher, word) = (watcher.clone(), word.clone());
            thread::spawn(move || {
                let status = agreeing(&word);
                block_on(watcher.watch(word, NEVER, status))
            })
        };
        store(&word, 1);
        other.join().unwrap().unwrap();
        // Before another waker takes the place of this one.
        wait_for(|| watcher.stats().panics == time);
        block_on(watch).unwrap();
        assert_others_go_on(&watcher);
    }
}

#[test]
fn f59_a_line_whose_destructor_panics_still_has_its_watch_resolved_and_woken() {
    let _watchdog = Watchdog::new("lines");
    let watcher = watcher(WatchPolicy::default());
    for stored_before in [true, false].repeat(TIMES / 2) {
        let line = line();
        if stored_before {
            (*line).as_ref().store(Slot::ALL[0], 1);
        }
        let word = OwnedDescriptor { line: line.clone(), slot: Slot::ALL[0], target: 1 };
        let mut watch = watcher.watch(word, NEVER, || Ok(true));
        let woken = Arc::new(AtomicBool::new(false));
        let waker = {
            let woken = woken.clone();
            running(move || woken.store(true, Ordering::Release))
        };
        assert!(poll_with(&mut watch, &waker).is_pending());
        (*line).as_ref().store(Slot::ALL[0], 1);
        // The watcher's reference is the last one, so that its thread runs the destructor.
        drop(line);
        wait_for(|| woken.load(Ordering::Acquire));
        block_on(watch).unwrap();
        assert_others_go_on(&watcher);
    }
    wait_for(|| watcher.stats().panics >= 1);
}

#[test]
fn f59_a_dropped_watch_whose_status_and_buffer_panic_in_their_drops_costs_nobody_anything() {
    let _watchdog = Watchdog::new("statuses dropped");
    let watcher = watcher(WatchPolicy::default());
    let panics = || watcher.stats().panics;
    for _ in 0..TIMES {
        let before = panics();
        let held = Panics;
        let mut watch = watcher.watch(word(1), NEVER, move || {
            let _buffer = &held;
            Ok(false)
        });
        assert!(poll(&mut watch).is_pending());
        wait_for(|| watcher.oldest_pending().is_some());
        drop(watch);
        wait_for(|| panics() > before);
        assert_others_go_on(&watcher);
    }
}

/// A line that panics when a watcher's thread looks at it, once it is told to.
struct Shy(CompletionLine, AtomicBool, AtomicU64);

impl AsRef<CompletionLine> for Shy {
    fn as_ref(&self) -> &CompletionLine {
        let watched = thread::current().name() == Some("watcher");
        if watched && self.1.swap(false, Ordering::Relaxed) {
            self.2.fetch_add(1, Ordering::Relaxed);
            panic!("a line of the test");
        }
        &self.0
    }
}

#[test]
fn f59_a_thread_that_ends_by_a_line_that_panics_when_it_is_read_is_replaced() {
    let _watchdog = Watchdog::new("a thread ends");
    let watcher = watcher(WatchPolicy::SPIN);
    let shy = Arc::new(Shy(CompletionLine::default(), AtomicBool::new(false), AtomicU64::new(0)));
    let word = OwnedDescriptor { line: shy.clone(), slot: Slot::ALL[0], target: 1 };
    // While it is taken up that is its own matter, and the thread's no more than a status that
    // panics.
    shy.1.store(true, Ordering::Relaxed);
    let refused = block_on(watcher.watch(word.clone(), NEVER, || Ok(true)));
    assert_eq!(status_error(refused).args(), ["line", "panicked"]);
    assert_eq!(shy.2.swap(0, Ordering::Relaxed), 1);
    let mut watch = watcher.watch(word, NEVER, || Ok(true));
    assert!(poll(&mut watch).is_pending());
    wait_for(|| watcher.stats().registered == 2);
    // More often than threads may be stuck.
    for time in 1..=6 {
        shy.1.store(true, Ordering::Relaxed);
        wait_for(|| shy.2.load(Ordering::Relaxed) == time);
        assert_others_go_on(&watcher);
    }
    shy.0.store(Slot::ALL[0], 1);
    block_on(watch).unwrap();
}
