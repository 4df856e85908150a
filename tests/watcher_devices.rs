//! The watcher with many watches of one stream or of one device: how often it asks, and what a
//! device that hangs takes from the others.

mod common;

use common::watching::*;
use common::{Watchdog, device, is_fault, wait_for};
use gpu_async_reactor::backend::software::{Fault, Hang, QueryFault, SoftwareStream, Work};
use gpu_async_reactor::host::{WatchError, WatchOptions, WatchPolicy};
use gpu_async_reactor::{
    CompletionLine, DeviceStream, DurNs, End, ErrorCode, OwnedDescriptor, Slot,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A stream whose work hangs, and `marks` numbers after that.
fn hanging(marks: usize) -> (Arc<SoftwareStream>, Hang, Vec<u64>) {
    let (stream, hang) = (shared_stream(&device()), Hang::new());
    stream.queue(Work::new().hang(&hang)).unwrap();
    let numbers = (0..marks).map(|_| stream.mark().unwrap()).collect();
    (stream, hang, numbers)
}

#[test]
fn f61_a_thousand_pending_watches_of_one_stream_are_one_status_call_a_backstop() {
    let _watchdog = Watchdog::new("f61");
    for policy in POLICIES {
        let watcher = watcher(policy);
        let (stream, hang, numbers) = hanging(1_000);
        let began = Instant::now();
        let mut watches: Vec<_> = numbers
            .into_iter()
            // The last number first: the least is not the first that was registered.
            .rev()
            .map(|number| watcher.watch_stream(stream.clone(), number, OPTIONS))
            .collect();
        for watch in &mut watches {
            assert!(poll(watch).is_pending());
        }
        wait_for(|| watcher.stats().registered == 1_000);
        thread::sleep(Duration::from_millis(100));
        let calls = watcher.stats().queries;
        let backstops = began.elapsed().as_nanos() as u64 / BACKSTOP.0;
        println!("{policy:?}: {calls} status calls in {backstops} backstops");
        assert!(calls <= backstops + 5, "{calls} calls in {backstops} backstops");
        assert!(calls >= 1, "the stream is asked");
        hang.release();
        watches.into_iter().for_each(|watch| _ = block_on(watch).unwrap());
    }
}

#[test]
fn f61_lost_stores_of_one_stream_are_all_seen_by_one_backstop_and_no_later_number_before() {
    let _watchdog = Watchdog::new("f61 lost stores");
    let watcher = watcher(WatchPolicy::SPIN);
    let line = CompletionLine::shared();
    let done = Arc::new(AtomicU64::new(0));
    let asked = Arc::new(AtomicU64::new(0));
    let mut watches: Vec<_> = (1..=50)
        .map(|number| {
            let word = OwnedDescriptor { line: line.clone(), slot: Slot::ALL[3], target: number };
            let (done, asked) = (done.clone(), asked.clone());
            watcher.watch(word, OPTIONS, move || {
                asked.fetch_add(1, Ordering::Relaxed);
                Ok(done.load(Ordering::Acquire) >= number)
            })
        })
        .collect();
    for watch in &mut watches {
        assert!(poll(watch).is_pending());
    }
    wait_for(|| watcher.stats().registered == 50);
    done.store(30, Ordering::Release);
    let later = watches.split_off(30);
    let before = asked.load(Ordering::Relaxed);
    for watch in watches {
        assert_eq!(block_on(watch).unwrap().end, End::Backstop);
    }
    let ended = asked.load(Ordering::Relaxed);
    println!("{} calls for 30 that were done", ended - before);
    assert_eq!(watcher.stats().backstop_completions, 30);
    done.store(50, Ordering::Release);
    later.into_iter().for_each(|watch| assert_eq!(block_on(watch).unwrap().end, End::Backstop));
}

#[test]
fn f37_a_hundred_pending_watches_end_with_a_sticky_error_within_one_backstop() {
    let _watchdog = Watchdog::new("f37");
    for streams in [1, 100] {
        let mut tries = (0..100).map(|_| {
            let (watcher, device) = (watcher(WatchPolicy::SPIN), device());
            let hang = Hang::new();
            let streams: Vec<_> = (0..streams)
                .map(|_| {
                    let stream = shared_stream(&device);
                    stream.queue(Work::new().hang(&hang)).unwrap();
                    stream
                })
                .collect();
            let mut watches: Vec<_> = (0..100)
                .map(|at| {
                    let stream = &streams[at % streams.len()];
                    let number = stream.mark().unwrap();
                    watcher.watch_stream(stream.clone(), number, OPTIONS)
                })
                .collect();
            for watch in &mut watches {
                assert!(poll(watch).is_pending());
            }
            wait_for(|| watcher.stats().registered == 100 && watcher.stats().queries >= 1);
            device.lose(Fault::new(999, "UNKNOWN"));
            let lost = now();
            wait_for(|| watcher.stats().errors == 100);
            let took = now().since(lost);
            for watch in watches {
                assert!(is_fault(&status_error(block_on(watch)), "999 UNKNOWN"));
            }
            hang.release();
            took
        });
        // One of many: the cores may be taken meanwhile. Asked one after the other, once a backstop
        // each, the watches of one stream would take a hundred of them every time.
        let within = tries.find(|took| took.0 <= 2 * BACKSTOP.0);
        assert!(within.is_some(), "{streams} streams: never within two backstops");
    }
}

#[test]
fn f62_a_device_that_hangs_holds_one_thread_and_the_watches_of_others_go_on() {
    let _watchdog = Watchdog::new("f62");
    for policy in POLICIES {
        let watcher = watcher(policy);
        let (hanging_device, other_device) = (device(), device());
        let hang = Hang::new();
        let deadline = now().after(DurNs::from_ms(300));
        let hung: Vec<_> = (0..10)
            .map(|_| {
                let stream = shared_stream(&hanging_device);
                stream.inject_query(QueryFault::Hang(hang.clone()));
                let number = stream.mark().unwrap();
                let watch = watcher.watch_stream(stream, number, OPTIONS.deadline(deadline));
                thread::spawn(move || block_on(watch))
            })
            .collect();
        wait_for(|| hang.holding() == 1 && watcher.stats().registered == 10);
        // None of the others is asked any more, so there is a thread left for each of these.
        let other = shared_stream(&other_device);
        let lateness = (0..30).map(|_| {
            other.delay(DurNs::from_us(500)).unwrap();
            let number = other.mark().unwrap();
            let watch = watcher.watch_stream(other.clone(), number, OPTIONS);
            assert_eq!(block_on(watch).unwrap().end, End::Parked);
            now().since(other.stamp_of(number).unwrap())
        });
        let best = lateness.min().unwrap();
        println!("{policy:?}: beside a device that hangs {best} late at best");
        assert!(best < DurNs::from_ms(1), "{policy:?}: {best} late at best");
        assert_eq!(hang.holding(), 1, "one call of the device");
        for hung in hung {
            let result = hung.join().unwrap();
            assert!(matches!(result, Err(WatchError::TimedOut(_))), "{result:?}");
        }
        assert!(now() >= deadline);
        assert_eq!(hang.holding(), 1, "still");
        hang.release();
        wait_for(|| watcher.stats().abandoned == watcher.stats().returned);
        // It is asked again.
        let stream = shared_stream(&hanging_device);
        let number = stream.mark().unwrap();
        block_on(watcher.watch_stream(stream, number, OPTIONS)).unwrap();
    }
}

#[test]
fn f62_watches_of_a_device_that_hangs_for_long_end_with_an_error_and_the_next_call_may_end_others()
{
    let _watchdog = Watchdog::new("f62 stuck");
    let watcher = watcher(WatchPolicy::SPIN);
    let hang = Hang::new();
    // Plain words, and a device that the program states.
    let options = OPTIONS.device(0x7e57);
    let hanging = {
        let hang = hang.clone();
        let (stream, _, _) = hanging(0);
        stream.inject_query(QueryFault::Hang(hang));
        move || stream.query().map(|_| true)
    };
    let mut first = watcher.watch(word(1), options, hanging);
    assert!(poll(&mut first).is_pending());
    wait_for(|| hang.holding() == 1);
    let began = now();
    let stuck = block_on(watcher.watch(word(1), options, || Ok(true)));
    assert_eq!(watcher_error(stuck), ErrorCode::StatusStuck);
    let took = now().since(began);
    assert!(took >= DurNs::from_ms(400), "{took}: it may only have waited for its turn");
    // A line of another device, and of one whose key is not stated.
    let elsewhere = [OPTIONS.device(0x7e58), OPTIONS, OPTIONS.device(0)];
    for options in elsewhere {
        assert_eq!(
            block_on(watcher.watch(word(1), options, || Ok(true))).unwrap().end,
            End::Backstop
        );
    }
    // One that is held when the call returns is asked then.
    let mut held =
        watcher.watch(word(1), WatchOptions::new(DurNs::from_ms(20)).device(0x7e57), || Ok(true));
    assert!(poll(&mut held).is_pending());
    thread::sleep(Duration::from_millis(5));
    hang.release();
    block_on(first).unwrap();
    match block_on(held) {
        Ok(waited) => assert_eq!(waited.end, End::Backstop),
        // The machine was busy for longer than a backstop.
        refused => assert_eq!(watcher_error(refused), ErrorCode::StatusStuck),
    }
}

#[test]
fn f62_streams_of_one_device_have_one_key_and_those_of_two_have_two() {
    let (first, second) = (device(), device());
    let streams = [&first, &first, &second].map(shared_stream);
    let keys = streams.each_ref().map(|stream| stream.device_key());
    assert!(keys[0] == keys[1] && keys[0] != keys[2], "{keys:?}");
    // Through whatever holds the stream.
    let boxed: Box<dyn DeviceStream> = Box::new(streams[0].clone());
    assert_eq!(boxed.device_key(), keys[0]);
}

#[test]
fn f27_a_status_that_stays_pending_after_its_word_is_asked_less_and_less_often() {
    let _watchdog = Watchdog::new("f27");
    let watcher = watcher(WatchPolicy::SPIN);
    let word = word(1);
    store(&word, 1);
    let began = now();
    let late = DurNs::from_ms(60);
    let status = move || Ok(now().since(began) >= late);
    let options = WatchOptions::new(DurNs::from_ms(1_000));
    let waited = block_on(watcher.watch(word, options, status)).unwrap();
    println!("{} calls in {}", waited.queries, waited.elapsed);
    // An eighth more each time: some 100 from 1 us to 60 ms.
    assert!(waited.queries <= 160, "{} calls", waited.queries);
    assert!(now().since(began) >= late);
}
