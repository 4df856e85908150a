//! The two status queries of a stream, of a mark and of everything, agree with each other and with
//! waits that ended well.

mod common;

use common::{Watchdog, device, seen};
use gpu_async_reactor::host::Runtime;
use gpu_async_reactor::{DeviceStream, DurNs, End, ErrorCode};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long each test tries to hit the moment between two stores of a worker.
const TRYING: Duration = Duration::from_millis(1_500);
const PLANS: [&str; 4] =
    ["poll", "spin:backstop_us=1000", "flag:park_us=100,backstop_us=1000", "block"];

/// Runs `test` while other threads take the cores, so that a worker is often preempted anywhere.
fn on_busy_cores(test: impl FnOnce()) {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let _stop = Stop(&stop);
        test();
    });
}

#[test]
fn once_a_query_of_the_last_mark_says_done_the_query_of_everything_does() {
    let _watchdog = Watchdog::new("query after query_mark");
    let device = device();
    let stream = device.stream().unwrap();
    let began = Instant::now();
    while began.elapsed() < TRYING {
        let number = stream.mark().unwrap();
        while !stream.query_mark(number).unwrap() {}
        assert!(stream.query().unwrap(), "mark {number} is done, and nothing else is queued");
    }
}

#[test]
fn once_the_query_of_everything_says_done_so_does_that_of_each_mark() {
    let _watchdog = Watchdog::new("query_mark after query");
    let device = device();
    let stream = device.stream().unwrap();
    let began = Instant::now();
    while began.elapsed() < TRYING {
        let number = stream.mark().unwrap();
        while !stream.query().unwrap() {}
        assert!(stream.query_mark(number).unwrap(), "everything is done, mark {number} too");
    }
}

#[test]
fn a_mark_reads_as_done_to_no_thread_before_its_word_is_there() {
    let _watchdog = Watchdog::new("a mark that was just issued");
    let device = device();
    let stream = device.stream().unwrap();
    let asked = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let stream = &stream;
        // Asks for each number from before it is issued: it is refused, then pending, then done.
        let reader = scope.spawn(|| {
            for number in 1.. {
                asked.store(number, Ordering::Release);
                while !stream.query_mark(number).unwrap_or_else(|error| {
                    assert_eq!(error.code(), ErrorCode::NeverIssued);
                    over.load(Ordering::Relaxed)
                }) {}
                if over.load(Ordering::Relaxed) {
                    return;
                }
                assert!(seen(stream, number), "the status of {number} came before its word");
            }
        });
        let began = Instant::now();
        for number in 1.. {
            while asked.load(Ordering::Acquire) < number && !reader.is_finished() {}
            if began.elapsed() > TRYING || reader.is_finished() {
                break;
            }
            assert_eq!(stream.mark().unwrap(), number);
        }
        over.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
}

#[test]
fn a_wait_that_ended_well_agrees_with_the_query_of_everything_on_busy_cores() {
    let _watchdog = Watchdog::new("waits agree with queries");
    let device = device();
    on_busy_cores(|| {
        let mut ends: BTreeMap<String, u64> = BTreeMap::new();
        for plan in PLANS {
            let runtime = Runtime::new(plan, "gpu-reactor").unwrap();
            let (handle, began) = (runtime.handle(), Instant::now());
            runtime
                .block_on(async {
                    let stream = device.stream_on(handle.doorbell()).unwrap();
                    let mut port = handle.port(&stream);
                    while began.elapsed() < TRYING / 3 {
                        stream.delay(DurNs::from_us(20)).unwrap();
                        let of_everything = handle.wait("everything", &mut port).await.unwrap().end;
                        assert!(stream.query().unwrap(), "{plan}: {of_everything:?}");
                        stream.delay(DurNs::from_us(20)).unwrap();
                        let ticket = port.mark().unwrap();
                        let at = &mut port.at(ticket);
                        let of_mark = handle.wait("mark", at).await.unwrap().end;
                        assert!(stream.query().unwrap(), "{plan}: {of_mark:?} at a mark");
                        for end in [of_everything, of_mark] {
                            *ends.entry(format!("{end:?}")).or_default() += 1;
                        }
                    }
                })
                .unwrap();
        }
        for end in [End::Polled, End::Blocked] {
            assert!(ends.contains_key(&format!("{end:?}")), "{end:?} is among {ends:?}");
        }
    });
}
