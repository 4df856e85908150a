//! The statistics of a runtime while it runs, and after a run that did not end well.

mod common;

use common::{Watchdog, descriptor, device};
use gpu_async_reactor::backend::software::{Hang, Work};
use gpu_async_reactor::host::Runtime;
use gpu_async_reactor::{Clock, DeviceStream, DurNs, ErrorCode, RunStats, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind};

const EXECUTORS: [&str; 3] = ["naive", "gpu-reactor", "io-uring"];
/// Runs as `poll` where the host cannot park in hardware.
const FLAG: &str = "flag:park_us=1000,backstop_us=100000";

#[test]
fn a_task_reads_what_its_own_run_has_done_so_far() {
    let _watchdog = Watchdog::new("live statistics");
    for executor in EXECUTORS {
        let runtime = Runtime::new(FLAG, executor).unwrap();
        runtime
            .block_on(async {
                let run = || runtime.stats().run;
                assert_eq!(run().polls, 1, "this is the first poll");
                for polls in 2..100 {
                    yield_now().await;
                    assert_eq!(run().polls, polls, "no poll waits for the thread to idle");
                }
                let other = runtime.spawn(async { yield_now().await });
                other.await.unwrap();
                assert_eq!(run().polls, 99 + 2 + 1, "those of other tasks are among them");
            })
            .unwrap();
        let after = runtime.stats().run;
        assert_eq!(after.polls, 102);
        runtime.block_on(async { assert_eq!(runtime.stats().run.polls, 103) }).unwrap();
    }
}

#[test]
fn a_task_reads_how_its_thread_has_idled_so_far() {
    let _watchdog = Watchdog::new("live idling");
    for executor in &EXECUTORS[1..] {
        let runtime = Runtime::new(FLAG, executor).unwrap();
        let stream = device().stream_on(runtime.doorbell()).unwrap();
        runtime
            .block_on(async {
                let asleep = DurNs::from_ms(2);
                runtime.sleep_until(runtime.clock().monotonic_ns().after(asleep)).await.unwrap();
                let slept: RunStats = runtime.stats().run;
                assert!(slept.slept >= 1 && slept.parked == 0, "{executor}: {slept:?}");
                // Less than all of it: the thread begins to idle only after the sleep was asked for.
                assert!(slept.idle_ns > 0, "{executor}: {slept:?}");
                // Again where others take the cores and the work is over before the thread parks.
                while runtime.stats().run.parked == 0 {
                    stream.delay(DurNs::from_ms(2)).unwrap();
                    let step = descriptor(&stream, stream.mark().unwrap());
                    assert!(runtime.reactor().ready_owned(step, None).await);
                }
                assert!(runtime.stats().run.idle_ns > slept.idle_ns);
            })
            .unwrap();
    }
}

#[test]
fn neither_a_panic_nor_a_stall_loses_what_a_run_had_counted() {
    let _watchdog = Watchdog::new("statistics of a failed run");
    for executor in EXECUTORS {
        let runtime = Runtime::new(FLAG, executor).unwrap();
        let yields = |count| async move {
            for _ in 0..count {
                yield_now().await;
            }
        };
        let panicking = async {
            yields(9).await;
            std::panic::resume_unwind(Box::new("main panics"))
        };
        let panicked = catch_unwind(AssertUnwindSafe(|| runtime.block_on::<_>(panicking)));
        assert!(panicked.is_err());
        assert_eq!(runtime.stats().run.polls, 10, "{executor}, after a panic");
        let stalling = async {
            yields(9).await;
            std::future::pending::<()>().await;
        };
        let stalled = runtime.block_on(stalling).unwrap_err();
        assert_eq!(stalled.code(), ErrorCode::Stalled);
        assert_eq!(runtime.stats().run.polls, 20, "{executor}, after a stall");
    }
}

#[test]
fn f36_the_age_of_the_oldest_pending_wait_is_known_although_later_waits_come_and_go() {
    let _watchdog = Watchdog::new("f36");
    for executor in &EXECUTORS[1..] {
        let runtime = Runtime::new(FLAG, executor).unwrap();
        let device = device();
        let hung = device.stream_on(runtime.doorbell()).unwrap();
        let working = device.stream_on(runtime.doorbell()).unwrap();
        let (hang, health, clock) = (Hang::new(), runtime.health(), runtime.clock());
        hung.queue(Work::new().hang(&hang)).unwrap();
        assert_eq!((health.pending(), health.oldest_pending()), (0, None));
        let handle = runtime.handle();
        let before = clock.monotonic_ns();
        let waiting = runtime.spawn(async move {
            handle.wait("hung", &mut handle.port(&hung)).await.unwrap();
        });
        runtime
            .block_on(async {
                let mut port = runtime.port(&working);
                let mut begun = None;
                let mut last = DurNs::ZERO;
                // The hung wait begins; a step may be over before its wait gives way.
                yield_now().await;
                for _ in 0..20 {
                    working.delay(DurNs::from_us(200)).unwrap();
                    runtime.wait("step", &mut port).await.unwrap();
                    let begun = *begun.get_or_insert_with(|| clock.monotonic_ns());
                    let least = clock.monotonic_ns().since(begun);
                    let stats = runtime.stats();
                    let most = clock.monotonic_ns().since(before);
                    let age = stats.oldest_pending.unwrap();
                    assert!(least <= age && age <= most, "{least} <= {age} <= {most}");
                    assert!(age > last, "it grows");
                    last = age;
                    assert_eq!(stats.pending, 1);
                    // The hung point is there before any wait at it has ended.
                    let [hung, step] = &stats.points[..] else { panic!("{stats}") };
                    assert_eq!((hung.point, hung.pending, hung.waits), ("hung", 1, 0));
                    assert_eq!(hung.oldest_pending, Some(age));
                    assert_eq!((step.point, step.pending), ("step", 0));
                    assert_eq!(step.oldest_pending, None);
                }
                hang.release();
                waiting.await.unwrap();
            })
            .unwrap();
        assert_eq!((health.pending(), health.oldest_pending()), (0, None));
        assert_eq!(runtime.stats().oldest_pending, None);
    }
}

#[test]
fn f36_another_thread_reads_it_while_the_thread_of_the_runtime_is_stuck_in_the_driver() {
    let _watchdog = Watchdog::new("f36, stuck in the driver");
    for executor in EXECUTORS {
        let runtime = Runtime::new("block", executor).unwrap();
        let stream = device().stream().unwrap();
        let (hang, health) = (Hang::new(), runtime.health());
        stream.queue(Work::new().hang(&hang)).unwrap();
        let checking = std::thread::spawn(move || {
            // An alarm threshold that only a wait that grows older for ever can reach.
            common::wait_for(|| health.oldest_pending() > Some(DurNs::from_ms(30)));
            let pending = health.pending();
            hang.release();
            (pending, health)
        });
        runtime.block_on(runtime.wait("hung", &mut runtime.port(&stream))).unwrap().unwrap();
        let (pending, health) = checking.join().unwrap();
        assert_eq!(pending, 1, "{executor}");
        assert_eq!(health.oldest_pending(), None, "it has ended");
    }
}

#[test]
fn f36_a_wait_that_is_dropped_is_not_pending_any_more() {
    let _watchdog = Watchdog::new("f36, dropped");
    let runtime = Runtime::new(FLAG, "gpu-reactor").unwrap();
    let stream = device().stream_on(runtime.doorbell()).unwrap();
    let hang = Hang::new();
    stream.queue(Work::new().hang(&hang)).unwrap();
    let (handle, health) = (runtime.handle(), runtime.health());
    let waiting = runtime.spawn(async move {
        handle.wait("hung", &mut handle.port(&stream)).await.unwrap();
    });
    runtime
        .block_on(async {
            yield_now().await;
            assert_eq!(health.pending(), 1);
            waiting.abort();
            assert_eq!(waiting.await.unwrap_err().code(), ErrorCode::Aborted);
            assert_eq!((health.pending(), runtime.stats().pending), (0, 0));
        })
        .unwrap();
    hang.release();
}
