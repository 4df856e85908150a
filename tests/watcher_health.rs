//! What a program can read of a watcher, and what a watcher leaves alone: park tokens, timer slack,
//! wakers.

mod common;

use common::watching::*;
use common::{Watchdog, device, wait_for};
use gpu_async_reactor::backend::software::{Hang, QueryFault, Work};
use gpu_async_reactor::host::{ParkPolicy, StdClock, StdIdle, WatchPolicy};
use gpu_async_reactor::{CompletionLine, DeviceStream, DurNs, ErrorCode, Idle};
use std::sync::mpsc;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn f36_the_age_of_the_oldest_pending_watch_can_be_read_at_any_time() {
    let _watchdog = Watchdog::new("f36");
    for policy in POLICIES {
        let watcher = watcher(policy);
        assert_eq!(watcher.oldest_pending(), None);
        let (stream, hang) = (shared_stream(&device()), Hang::new());
        stream.queue(Work::new().hang(&hang)).unwrap();
        let number = stream.mark().unwrap();
        let began = now();
        let mut oldest = watcher.watch_stream(stream, number, OPTIONS);
        assert!(poll(&mut oldest).is_pending());
        wait_for(|| watcher.oldest_pending().is_some());
        thread::sleep(Duration::from_millis(20));
        // Others come and go.
        for _ in 0..200 {
            let there = word(1);
            store(&there, 1);
            block_on(watcher.watch(there.clone(), NEVER, agreeing(&there))).unwrap();
        }
        let mut younger = watcher.watch(word(1), NEVER, || Ok(false));
        assert!(poll(&mut younger).is_pending());
        let age = watcher.oldest_pending().unwrap();
        assert!(age >= DurNs::from_ms(20) && age <= now().since(began), "{age}");
        // Its end leaves the younger one the oldest.
        hang.release();
        block_on(oldest).unwrap();
        wait_for(|| watcher.oldest_pending().is_some_and(|younger| younger < age));
        drop(younger);
        wait_for(|| watcher.oldest_pending().is_none());
    }
}

#[test]
fn f36_the_age_grows_while_every_status_call_hangs() {
    let _watchdog = Watchdog::new("f36 stuck");
    let watcher = watcher(WatchPolicy { stuck_max: 1, ..WatchPolicy::SPIN });
    let (stream, hang) = (shared_stream(&device()), Hang::new());
    stream.inject_query(QueryFault::Hang(hang.clone()));
    let number = stream.mark().unwrap();
    let mut watch = watcher.watch_stream(stream, number, OPTIONS);
    assert!(poll(&mut watch).is_pending());
    wait_for(|| watcher.stats().abandoned == 1);
    let before = watcher.oldest_pending().unwrap();
    thread::sleep(Duration::from_millis(10));
    let after = watcher.oldest_pending().unwrap();
    assert!(after.0 >= before.0 + 10_000_000, "{before}, then {after}");
    hang.release();
    block_on(watch).unwrap();
}

/// Whether the calling thread's park token is there; it is used up.
fn has_park_token() -> bool {
    let began = Instant::now();
    thread::park_timeout(Duration::from_millis(200));
    began.elapsed() < Duration::from_millis(100)
}

#[test]
fn f30_park_tokens_are_neither_used_nor_left_by_idles_and_by_the_watchers_threads() {
    let _watchdog = Watchdog::new("f30");
    let line = CompletionLine::default();
    let mut idle = StdIdle::with(StdClock::new(), ParkPolicy::SAVING);
    let unparker = idle.unparker().unwrap();
    let mut idle_in_every_way = || {
        idle.sleep_until(now().after(DurNs::from_us(200)));
        assert!(!idle.park_line(&line, |_| false, DurNs::from_ms(1)));
        unparker.wake_by_ref();
        idle.sleep_until(now().after(DurNs::from_ms(10_000)));
    };
    thread::current().unpark();
    idle_in_every_way();
    assert!(has_park_token(), "the program's token is still there");
    idle_in_every_way();
    assert!(!has_park_token(), "and none is left by idling");

    // The same on the watcher's thread, between two calls of a status.
    let watcher = watcher(WatchPolicy::SAVING);
    let (sender, tokens) = mpsc::channel();
    let mut calls = 0;
    let status = move || {
        calls += 1;
        match calls {
            1 => thread::current().unpark(),
            2 => _ = sender.send(has_park_token()),
            _ => {}
        }
        Ok(calls == 2)
    };
    block_on(watcher.watch(word(1), OPTIONS, status)).unwrap();
    // A thread that was taken over in between has a token of its own.
    if watcher.stats().abandoned == 0 {
        assert!(tokens.recv().unwrap());
    }
}

#[cfg(target_os = "linux")]
#[test]
fn f29_a_status_and_a_waker_find_the_slack_that_the_watchers_threads_began_with() {
    let _watchdog = Watchdog::new("f29 watcher");
    let slack = || rustix::thread::current_timer_slack().unwrap();
    let own = slack();
    let watcher = watcher(WatchPolicy::SAVING);
    let (sender, slacks) = mpsc::channel();
    let of_waker = sender.clone();
    let waker = running(move || of_waker.send(slack()).unwrap());
    let mut calls = 0;
    let mut watch = watcher.watch(word(1), OPTIONS, move || {
        calls += 1;
        sender.send(slack()).unwrap();
        // Later ones come after slices of sleep.
        Ok(calls == 3)
    });
    assert!(poll_with(&mut watch, &waker).is_pending());
    for _ in 0..4 {
        assert_eq!(slacks.recv().unwrap(), own);
    }
    block_on(watch).unwrap();
}

#[test]
fn f25_a_watch_that_outlives_its_watcher_ends_once_and_wakes_nobody_after_that() {
    let _watchdog = Watchdog::new("f25");
    let watcher = watcher(WatchPolicy::default());
    let word = word(1);
    let (sender, wakes) = mpsc::channel();
    let waker = running(move || sender.send(()).unwrap());
    let mut watch = watcher.watch(word.clone(), NEVER, agreeing(&word));
    assert!(poll_with(&mut watch, &waker).is_pending());
    drop(watcher);
    assert_eq!(wakes.recv(), Ok(()), "woken by the end of the watcher");
    store(&word, 1);
    assert!(wakes.try_recv().is_err(), "once");
    let std::task::Poll::Ready(result) = poll_with(&mut watch, Waker::noop()) else {
        panic!("it has ended");
    };
    assert_eq!(watcher_error(result), ErrorCode::WatcherClosed);
    drop((watch, waker));
    assert!(wakes.recv().is_err(), "the waker is gone, and was not used again");
}

#[test]
fn policies_of_any_values_are_followed_within_their_limits() {
    let _watchdog = Watchdog::new("extreme policies");
    let none = DurNs::ZERO;
    let park = ParkPolicy {
        spin: none,
        yielding: none,
        min_slice: none,
        max_slice: none,
        share_permille: 0,
    };
    let policy = WatchPolicy { park, linger: none, patience: none, stuck_max: 0 };
    let watcher = watcher(policy);
    assert!(watcher.policy().patience >= DurNs::from_us(100) && watcher.policy().stuck_max == 1);
    for _ in 0..20 {
        let there = word(1);
        let mut watch = watcher.watch(there.clone(), NEVER, agreeing(&there));
        assert!(poll(&mut watch).is_pending());
        store(&there, 1);
        block_on(watch).unwrap();
    }
    let most = DurNs::MAX;
    let park =
        ParkPolicy { min_slice: DurNs::from_ms(1), max_slice: most, share_permille: 9_999, ..park };
    let policy = WatchPolicy { park, linger: most, patience: DurNs::from_ms(1), stuck_max: 4 };
    let watcher = common::watching::watcher(policy);
    block_on(watcher.watch(word(0), NEVER, || Ok(true))).unwrap();
}
