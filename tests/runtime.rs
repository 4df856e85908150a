//! The runtime over the software device: two strings in, waits and statistics out.

mod common;

use common::{Watchdog, descriptor, is_fault};
use gpu_async_reactor::backend::software::{Fault, Hang, SoftwareDevice, StoreFault, Work};
use gpu_async_reactor::host::Runtime;
use gpu_async_reactor::{
    Clock, DeviceCaps, DeviceStream, DurNs, End, ErrorCode, ExecutorKind, WaitError, yield_now,
};
use std::cell::Cell;
use std::rc::Rc;

/// The last falls back where the kernel or the build has no ring.
const EXECUTORS: [&str; 3] = ["naive", "gpu-reactor", "io-uring"];
const SPIN: &str = "spin:backstop_us=2000";

#[test]
fn waits_at_a_point_are_predicted_recorded_and_counted_with_every_executor() {
    let _watchdog = Watchdog::new("waits at a point");
    for executor in EXECUTORS {
        let plan = "spin:backstop_us=2000+predict:margin_us=100,min_sleep_us=50,max_sleep_us=50000,window=2";
        let runtime = Runtime::new(plan, executor).unwrap();
        let device = SoftwareDevice::new().unwrap();
        let stream = device.stream_on(runtime.doorbell()).unwrap();
        let handle = runtime.handle();
        runtime
            .block_on(async move {
                let mut port = handle.port(&stream);
                for _ in 0..20 {
                    port.stream().delay(DurNs::from_us(500)).unwrap();
                    handle.wait("step", &mut port).await.unwrap();
                }
            })
            .unwrap();
        let stats = runtime.stats();
        assert_eq!(stats.points.len(), 1);
        let step = &stats.points[0];
        assert_eq!((step.point, step.waits, step.errors, step.timeouts), ("step", 20, 0, 0));
        assert!(step.residual_p50 >= DurNs::from_us(300), "{step}");
        assert!(step.slept > DurNs::ZERO, "the waits were predicted: {step:?}");
        assert!(step.predicted.is_some() && step.residual_p99 >= step.residual_p50);
        assert!(stats.executor.contains(executor), "as it runs, or what it fell back from");
        assert!(stats.to_string().contains("step: 20 waits"), "{stats}");
    }
}

#[test]
fn a_plan_that_the_host_cannot_run_falls_back_once_with_a_warning() {
    let device = DeviceCaps { store: Err("the store never landed".to_string()) };
    let runtime = Runtime::builder(SPIN, "gpu-reactor").device(device).build().unwrap();
    let warnings: Vec<_> = runtime.warnings().collect();
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].code(), ErrorCode::ParkFallback);
    assert!(warnings[0].to_string().contains("the store never landed"));
    let label = format!("poll (fallback from {SPIN})");
    assert_eq!(runtime.plans().label(), label);
    assert_eq!(runtime.stats().plan, label);
}

#[test]
fn malformed_texts_and_unknown_executors_are_refused_with_the_fault() {
    let plan = Runtime::new("spin:backstop=5", "naive").unwrap_err();
    assert_eq!(plan.code(), ErrorCode::InvalidPlan);
    assert!(plan.span().is_some());
    let executor = Runtime::new("poll", "fast").unwrap_err();
    assert_eq!(executor.code(), ErrorCode::InvalidExecutor);
    assert!(executor.to_string().contains("naive, gpu-reactor, io-uring"));
}

#[test]
fn io_uring_runs_or_falls_back_with_its_reason_and_strict_refuses_instead() {
    let runtime = Runtime::new("poll", "io-uring").unwrap();
    match runtime.executor().running {
        ExecutorKind::IoUring => assert!(runtime.executor().warning.is_none()),
        running => {
            assert_eq!(running, ExecutorKind::GpuReactor);
            let warning = runtime.executor().warning.as_ref().unwrap();
            assert_eq!(warning.code(), ErrorCode::ExecutorFallback);
            let strict = Runtime::builder("poll", "io-uring").strict().build().unwrap_err();
            assert_eq!(strict.code(), ErrorCode::ExecutorRefused);
            assert_eq!(strict.args()[2], warning.args()[2], "both name the reason");
        }
    }
}

#[test]
fn bands_are_selected_by_the_rows_of_the_step() {
    let runtime = Runtime::new("poll;rows>=64:block", "gpu-reactor").unwrap();
    let device = SoftwareDevice::new().unwrap();
    let stream = device.stream().unwrap();
    let handle = runtime.handle();
    let ends = runtime
        .block_on(async move {
            let mut port = handle.port(&stream);
            let mut ends = Vec::new();
            for rows in [1, 64, 63] {
                handle.rows().set(rows);
                stream.delay(DurNs::from_ms(2)).unwrap();
                ends.push(handle.wait("step", &mut port).await.unwrap().end);
            }
            ends
        })
        .unwrap();
    assert_eq!(ends[1], End::Blocked);
    assert!(ends[0] != End::Blocked && ends[2] != End::Blocked);
}

#[test]
fn faults_and_time_outs_are_counted_at_their_point() {
    let _watchdog = Watchdog::new("faults and time-outs");
    for executor in EXECUTORS {
        let runtime = Runtime::new(SPIN, executor).unwrap();
        let device = SoftwareDevice::new().unwrap();
        let (stream, hang) = (device.stream_on(runtime.doorbell()).unwrap(), Hang::new());
        let handle = runtime.handle();
        runtime
            .block_on(async {
                let mut port = handle.port(&stream);
                stream.queue(Work::new().hang(&hang)).unwrap();
                let deadline = handle.clock().monotonic_ns().after(DurNs::from_ms(2));
                let ended = handle.wait_until("decode", &mut port, deadline).await;
                assert!(matches!(ended, Err(WaitError::TimedOut(_))), "{ended:?}");
                hang.release();
                stream.inject_store(StoreFault::Lost);
                stream.delay(DurNs::from_ms(1)).unwrap();
                handle.wait("decode", &mut port).await.unwrap();
                stream.queue(Work::new().fault(Fault::new(700, "ILLEGAL_ADDRESS"))).unwrap();
                let error = handle.wait("decode", &mut port).await.unwrap_err();
                assert!(is_fault(&error, "700 ILLEGAL_ADDRESS"));
            })
            .unwrap();
        let decode = runtime.stats().points[0].clone();
        assert_eq!((decode.waits, decode.errors, decode.timeouts), (3, 1, 1), "{executor}");
    }
}

#[test]
fn tasks_spawned_from_tasks_run_and_their_outputs_arrive() {
    let runtime = Runtime::new("poll", "gpu-reactor").unwrap();
    let handle = runtime.handle();
    let seen = Rc::new(Cell::new(0));
    let of_task = seen.clone();
    let sum = runtime
        .block_on(async move {
            let nested = handle.clone();
            let outer = handle.spawn(async move {
                let inner = nested.spawn(async {
                    yield_now().await;
                    40
                });
                inner.await.unwrap() + 2
            });
            drop(handle.spawn(async move { of_task.set(7) }));
            outer.await.unwrap()
        })
        .unwrap();
    runtime.run().unwrap();
    assert_eq!((sum, seen.get()), (42, 7));
}

#[test]
fn an_aborted_task_says_so_and_a_handle_outlives_its_runtime() {
    let runtime = Runtime::new("poll", "gpu-reactor").unwrap();
    let handle = runtime.handle();
    let waits = handle.spawn(std::future::pending::<()>());
    let aborted = runtime.block_on(async {
        waits.abort();
        waits.await
    });
    assert_eq!(aborted.unwrap().unwrap_err().code(), ErrorCode::Aborted);
    drop(runtime);
    let orphan = handle.spawn(async { 1 });
    let orphaned = gpu_async_reactor::run_inline(orphan).unwrap();
    assert_eq!(orphaned.unwrap_err().code(), ErrorCode::Aborted);
}

#[test]
fn a_task_that_runs_its_own_runtime_gets_an_error() {
    let runtime = Rc::new(Runtime::new("poll", "gpu-reactor").unwrap());
    let again = runtime.clone();
    let error = runtime.block_on(async move { again.block_on(async {}).unwrap_err() }).unwrap();
    assert_eq!(error.code(), ErrorCode::RunningAlready);
}

#[test]
fn a_port_of_a_ticket_waits_for_its_own_point_with_every_executor() {
    let _watchdog = Watchdog::new("a port of a ticket");
    for executor in EXECUTORS {
        let runtime = Runtime::new(SPIN, executor).unwrap();
        let device = SoftwareDevice::new().unwrap();
        let (stream, hang) = (device.stream_on(runtime.doorbell()).unwrap(), Hang::new());
        let handle = runtime.handle();
        runtime
            .block_on(async {
                let port = handle.port(&stream);
                let step = port.mark().unwrap();
                stream.queue(Work::new().hang(&hang)).unwrap();
                handle.wait("step", &mut port.at(step)).await.unwrap();
            })
            .unwrap();
        hang.release();
    }
}

#[test]
fn ports_of_two_tickets_are_awaited_at_once_with_every_executor() {
    use futures_util::future::join;
    let _watchdog = Watchdog::new("ports of two tickets");
    for executor in EXECUTORS {
        let runtime = Runtime::new(SPIN, executor).unwrap();
        let device = SoftwareDevice::new().unwrap();
        let stream = device.stream_on(runtime.doorbell()).unwrap();
        let port = runtime.port(&stream);
        stream.delay(DurNs::from_us(300)).unwrap();
        let first = port.mark().unwrap();
        stream.delay(DurNs::from_us(300)).unwrap();
        let second = port.mark().unwrap();
        let (mut at_first, mut at_second) = (port.at(first), port.at(second));
        // The later one first: neither keeps the other from being awaited.
        let both =
            join(runtime.wait("second", &mut at_second), runtime.wait("first", &mut at_first));
        let (second_ended, first_ended) = runtime.block_on(both).unwrap();
        assert_ne!(second_ended.unwrap().end, End::TimedOut, "{executor}");
        assert_ne!(first_ended.unwrap().end, End::TimedOut, "{executor}");
        assert!(stream.query_mark(second.number()).unwrap());
        let waits: Vec<_> = runtime.stats().points.iter().map(|at| (at.point, at.waits)).collect();
        assert_eq!(waits, [("first", 1), ("second", 1)], "{executor}");
    }
}

#[test]
fn a_park_bound_of_zero_is_raised_so_that_a_waiting_runtime_does_not_spin() {
    let _watchdog = Watchdog::new("a park bound of zero");
    for executor in ["gpu-reactor", "io-uring"] {
        let builder = Runtime::builder("poll", executor);
        let runtime = builder.park_bound(DurNs::ZERO).build().unwrap();
        let device = SoftwareDevice::new().unwrap();
        let (stream, hang) = (device.stream_on(runtime.doorbell()).unwrap(), Hang::new());
        stream.queue(Work::new().hang(&hang)).unwrap();
        let hung = descriptor(&stream, stream.mark().unwrap());
        let began = runtime.clock().monotonic_ns();
        let deadline = began.after(DurNs::from_ms(50));
        let reached =
            runtime.block_on(runtime.reactor().ready_owned(hung, Some(deadline))).unwrap();
        let elapsed = runtime.clock().monotonic_ns().since(began);
        let parked = runtime.stats().run.parked;
        hang.release();
        assert!(!reached && parked > 0);
        // Each park but the last, which the deadline cuts short, lasts 20 us at least.
        assert!(parked <= elapsed.0 / 20_000 + 1, "{executor}: {parked} parks in {elapsed}");
    }
}

#[cfg(feature = "serde")]
#[test]
fn a_snapshot_serialises_with_its_units_in_the_names() {
    let runtime = Runtime::new("poll", "gpu-reactor").unwrap();
    let device = SoftwareDevice::new().unwrap();
    let stream = device.stream().unwrap();
    runtime
        .block_on(async { runtime.wait("step", &mut runtime.port(&stream)).await.unwrap() })
        .unwrap();
    let json = serde_json::to_value(runtime.stats()).unwrap();
    assert_eq!(json["plan"], "poll");
    assert_eq!(json["points"][0]["point"], "step");
    assert_eq!(json["points"][0]["waits"], 1);
    assert!(json["points"][0]["residual_p50_ns"].is_u64());
    assert!(json["run"]["polls"].as_u64().unwrap() >= 1);
    assert_eq!((&json["pending"], &json["points"][0]["pending"]), (&0.into(), &0.into()));
    assert!(
        json["oldest_pending_ns"].is_null() && json["points"][0]["oldest_pending_ns"].is_null()
    );
}
