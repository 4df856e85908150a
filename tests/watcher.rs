//! The watcher: what ends a watch, and with what.

mod common;

use common::watching::*;
use common::{Watchdog, device, is_fault, wait_for};
use gpu_async_reactor::backend::software::{Fault, Hang, StoreFault, Work};
use gpu_async_reactor::host::{ParkPolicy, WatchError, WatchOptions, WatchPolicy};
use gpu_async_reactor::{
    CompletionLine, DeviceStream, DurNs, End, MonoNs, OwnedDescriptor, SharedLine, Slot, reached,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

#[test]
fn a_word_wakes_a_task_of_a_plain_thread_and_says_when_it_came() {
    let _watchdog = Watchdog::new("plain thread");
    for policy in POLICIES {
        let watcher = watcher(policy);
        let stream = shared_stream(&device());
        stream.delay(DurNs::from_us(500)).unwrap();
        let number = stream.mark().unwrap();
        let waited = block_on(watcher.watch_stream(stream.clone(), number, OPTIONS)).unwrap();
        assert_eq!(waited.end, End::Parked, "{policy:?}");
        assert!(waited.outcome.is_some() && waited.queries >= 1 && waited.parks == 0);
        assert!(stream.query_mark(number).unwrap());
        assert_eq!(watcher.stats().completed, 1);
    }
}

#[test]
fn tasks_of_tokio_await_streams_on_both_of_its_schedulers() {
    let _watchdog = Watchdog::new("tokio");
    let single = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let multi = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    for runtime in [single, multi] {
        let watcher = watcher(WatchPolicy::default());
        let device = device();
        runtime.block_on(async {
            let mut tasks = Vec::new();
            for at in 0..50 {
                let (watcher, stream) = (watcher.clone(), shared_stream(&device));
                tasks.push(tokio::spawn(async move {
                    for _ in 0..5 {
                        stream.delay(DurNs::from_us(10 * at)).unwrap();
                        let number = stream.mark().unwrap();
                        watcher.watch_stream(stream.clone(), number, OPTIONS).await.unwrap();
                        assert!(stream.query_mark(number).unwrap());
                    }
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!(watcher.stats().completed, 250);
    }
}

#[test]
fn f1_after_a_sticky_fault_a_watch_ends_with_it_whether_or_not_its_word_was_stored() {
    let _watchdog = Watchdog::new("f1");
    let watcher = watcher(WatchPolicy::default());
    for storing in [false, true] {
        let stream = shared_stream(&device());
        let fault = Fault::new(700, "ILLEGAL_ADDRESS");
        let fault = if storing { fault.storing_words() } else { fault };
        // Behind a fault nothing is marked, so that it comes after the mark.
        let hang = Hang::new();
        stream.queue(Work::new().hang(&hang).fault(fault)).unwrap();
        let number = stream.mark().unwrap();
        hang.release();
        for _ in 0..2 {
            let result = block_on(watcher.watch_stream(stream.clone(), number, OPTIONS));
            assert!(is_fault(&status_error(result), "700 ILLEGAL_ADDRESS"), "{storing}");
        }
        let seen = reached((**stream.line()).as_ref(), stream.slot(), number);
        assert_eq!(seen, storing, "the word says nothing of it");
    }
    assert_eq!(watcher.stats().errors, 4);
}

#[test]
fn f2_a_silent_word_and_a_failing_status_end_the_watch_within_one_backstop() {
    let _watchdog = Watchdog::new("f2");
    for policy in POLICIES {
        let watcher = watcher(policy);
        let best = (0..10)
            .map(|_| {
                let device = device();
                let stream = shared_stream(&device);
                let hang = Hang::new();
                stream.queue(Work::new().hang(&hang)).unwrap();
                let number = stream.mark().unwrap();
                let losing = thread::spawn(move || {
                    wait_for(|| hang.holding() == 1);
                    thread::sleep(Duration::from_micros(300));
                    device.lose(Fault::new(4, "DEVICE_LOST"));
                    now()
                });
                let result = block_on(watcher.watch_stream(stream, number, OPTIONS));
                let ended = now();
                assert!(is_fault(&status_error(result), "4 DEVICE_LOST"));
                ended.since(losing.join().unwrap())
            })
            .min()
            .unwrap();
        println!("{policy:?}: {best} after the loss at best");
        assert!(best <= DurNs(BACKSTOP.0 + 500_000), "{policy:?}: {best} at best");
    }
}

#[test]
fn a_lost_store_is_seen_by_the_backstop_and_counted() {
    let _watchdog = Watchdog::new("lost store");
    let watcher = watcher(WatchPolicy::default());
    let stream = shared_stream(&device());
    stream.inject_store(StoreFault::Lost);
    stream.delay(DurNs::from_us(300)).unwrap();
    let number = stream.mark().unwrap();
    let waited = block_on(watcher.watch_stream(stream, number, OPTIONS)).unwrap();
    assert_eq!((waited.end, waited.outcome), (End::Backstop, None));
    assert!(waited.elapsed >= BACKSTOP);
    assert_eq!(watcher.stats().backstop_completions, 1);
}

#[test]
fn a_word_that_comes_before_the_status_is_held_until_the_status_agrees() {
    let _watchdog = Watchdog::new("early word");
    for policy in POLICIES {
        let watcher = watcher(policy);
        let word = word(1);
        store(&word, 1);
        // The device's status catches up with its word at the third question.
        let mut asked = 0;
        let status = move || {
            asked += 1;
            Ok(asked == 3)
        };
        let waited = block_on(watcher.watch(word, NEVER, status)).unwrap();
        assert_eq!((waited.end, waited.queries), (End::Parked, 3));
    }
}

#[test]
fn f13_a_deadline_ends_the_watch_and_the_work_can_be_watched_again() {
    let _watchdog = Watchdog::new("f13");
    for policy in POLICIES {
        let watcher = watcher(policy);
        let (stream, hang) = (shared_stream(&device()), Hang::new());
        stream.queue(Work::new().hang(&hang)).unwrap();
        let number = stream.mark().unwrap();
        let deadline = now().after(DurNs::from_ms(3));
        let watch = watcher.watch_stream(stream.clone(), number, OPTIONS.deadline(deadline));
        let Err(WatchError::TimedOut(waited)) = block_on(watch) else { panic!("no time-out") };
        assert!(now() >= deadline && waited.end == End::TimedOut && waited.outcome.is_none());
        hang.release();
        let waited = block_on(watcher.watch_stream(stream, number, OPTIONS)).unwrap();
        assert_ne!(waited.end, End::TimedOut);
        let stats = watcher.stats();
        assert_eq!((stats.timed_out, stats.completed, stats.errors), (1, 1, 0));
    }
}

#[test]
fn a_backstop_that_never_comes_leaves_the_word_watched() {
    let _watchdog = Watchdog::new("no backstop");
    for policy in POLICIES {
        let watcher = watcher(policy);
        for options in [WatchOptions::new(DurNs::MAX), NEVER.deadline(MonoNs::MAX)] {
            // The thread sleeps for good, and is woken by this watch.
            thread::sleep(Duration::from_millis(10));
            let word = word(1);
            let mut watch = watcher.watch(word.clone(), options, agreeing(&word));
            assert!(poll(&mut watch).is_pending());
            thread::sleep(Duration::from_millis(5));
            store(&word, 1);
            assert_eq!(block_on(watch).unwrap().end, End::Parked);
        }
    }
}

#[test]
fn what_is_done_at_its_deadline_is_done() {
    let _watchdog = Watchdog::new("deadline tie");
    let watcher = watcher(WatchPolicy::default());
    // The word is silent; only the look after the deadline can tell.
    let watch = watcher.watch(word(1), NEVER.deadline(now()), || Ok(true));
    assert_eq!(block_on(watch).unwrap().end, End::Backstop);
}

#[test]
fn ten_thousand_watches_from_eight_threads_all_end() {
    let _watchdog = Watchdog::new("ten thousand");
    const THREADS: usize = 8;
    const EACH: usize = 1_250;
    let watcher = watcher(WatchPolicy::default());
    let lines: Arc<Vec<SharedLine>> =
        Arc::new((0..EACH).map(|_| CompletionLine::shared()).collect());
    let storing = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (watcher, lines, storing) = (watcher.clone(), lines.clone(), storing.clone());
            thread::spawn(move || {
                let slot = Slot::ALL[thread];
                let watches: Vec<_> = lines
                    .iter()
                    .map(|line| {
                        let word = OwnedDescriptor { line: line.clone(), slot, target: 1 };
                        let mut watch = watcher.watch(word.clone(), NEVER, agreeing(&word));
                        assert!(poll(&mut watch).is_pending());
                        watch
                    })
                    .collect();
                storing.store(true, Ordering::Relaxed);
                for line in lines.iter() {
                    (**line).as_ref().store(slot, 1);
                }
                for watch in watches {
                    assert_eq!(block_on(watch).unwrap().end, End::Parked);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let stats = watcher.stats();
    assert_eq!((stats.registered, stats.completed), (10_000, 10_000), "{stats:?}");
}

#[test]
fn f22_registering_wakes_the_thread_only_from_empty_or_for_an_earlier_event() {
    let _watchdog = Watchdog::new("f22");
    // Slices so long that only a wake can end one within this test.
    let asleep = DurNs::from_ms(600_000);
    let park = ParkPolicy {
        spin: DurNs::ZERO,
        yielding: DurNs::ZERO,
        min_slice: asleep,
        max_slice: asleep,
        share_permille: 1_000,
    };
    let watcher = watcher(WatchPolicy { park, linger: DurNs::ZERO, ..WatchPolicy::SAVING });
    let mut watches = Vec::new();
    let mut register = |options: WatchOptions| {
        // Until the thread has gone to sleep again.
        thread::sleep(Duration::from_millis(20));
        let mut watch = watcher.watch(word(1), options, || Ok(false));
        assert!(poll(&mut watch).is_pending());
        watches.push(watch);
        thread::sleep(Duration::from_millis(20));
        watcher.stats().wakes
    };
    let seconds = |seconds: u64| WatchOptions::new(DurNs::from_ms(1_000 * seconds));
    assert_eq!(register(seconds(100)), 1, "from empty");
    for _ in 0..5 {
        assert_eq!(register(seconds(100)), 1, "its backstop is the later one");
    }
    assert_eq!(register(seconds(50)), 2, "its backstop is the earliest");
    assert_eq!(register(seconds(70)), 2);
    let deadline = now().after(DurNs::from_ms(30_000));
    assert_eq!(register(seconds(70).deadline(deadline)), 3, "its deadline is the earliest");
    assert_eq!(register(seconds(100)), 3);
    drop(watches);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(watcher.stats().wakes, 3, "drops wake nobody");
}
