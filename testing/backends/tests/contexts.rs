//! Contexts, handles, captures, and the end of a device.
#![cfg(target_os = "linux")]

use backend_tests::{
    Bench, Call, OfCuda, OfHip, Vendor, assert_fault, copy_of, for_each_vendor, handle_of, seen,
    thread_port, wait_by, wait_for,
};
use driver_core::{Live, foreign_call, without_symbol};
use gpu_async_reactor::backend::mapped::{Device, Interface, StreamHandle, StreamOwner};
use gpu_async_reactor::{DeviceStream, Doorbell, ErrorCode};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SPIN: &str = "spin:backstop_us=1000";

for_each_vendor! {
    the_owner_of_a_stream_is_gone_before_the_context_is_given_back;
    f5_streams_dropped_with_stores_in_flight_leave_memory_and_slots_in_order;
    a_close_frees_everything_and_gives_the_context_back;
    a_close_frees_nothing_that_is_held_and_can_be_called_again;
    a_context_that_does_not_settle_leaks_its_memory_and_counts_it;
    a_context_that_settles_later_is_released_then;
    what_is_closed_queues_nothing;
    failures_of_the_teardown_are_counted;
    f9_the_default_streams_are_distinct_and_a_threads_own_is_refused_elsewhere;
    a_doorbell_of_other_memory_is_refused;
    a_device_that_does_not_exist_is_refused_by_name;
    devices_of_one_driver_ring_one_doorbell_whose_memory_stays_until_both_are_closed;
    f23_no_wait_disturbs_a_capture_anywhere_and_a_captured_stream_is_pending;
    f23_the_legacy_stream_beside_a_capture_reads_as_captured;
}

fn the_owner_of_a_stream_is_gone_before_the_context_is_given_back<V: Vendor>() {
    struct Owner<A: Interface> {
        handle: StreamHandle,
        device: Device<A>,
        released: Arc<AtomicBool>,
    }
    // SAFETY: the stream of the handle lives as long as its context.
    unsafe impl<A: Interface> StreamOwner for Owner<A> {
        fn handle(&self) -> StreamHandle {
            self.handle
        }
    }
    impl<A: Interface> Drop for Owner<A> {
        fn drop(&mut self) {
            // As if another thread closed the device meanwhile.
            let report = self.device.close().unwrap();
            self.released.store(report.released, Ordering::Relaxed);
        }
    }
    let bench = Bench::<V>::new();
    let device = bench.device();
    let handle = V::blocking_stream(&bench.control);
    let released = Arc::new(AtomicBool::new(true));
    let owner = Owner { handle, device: device.clone(), released: released.clone() };
    let stream = device.stream_of(owner, None).unwrap();
    stream.mark().unwrap();
    drop(stream);
    assert!(!released.load(Ordering::Relaxed), "the owner's stream was still there");
    assert!(device.close().unwrap().released);
    bench.assert_clean();
}

fn f5_streams_dropped_with_stores_in_flight_leave_memory_and_slots_in_order<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let settles = bench.calls(Call::Settle);
    for _ in 0..3 {
        let stream = device.stream().unwrap();
        bench.hold(&stream);
        stream.mark().unwrap();
    }
    assert_eq!(device.stats().slots.draining, 3);
    assert_eq!(bench.calls(Call::Settle), settles, "nothing was waited for");
    bench.control.release();
    // Their stores land in slots that nobody else has.
    let streams: Vec<_> = (0..30).map(|_| device.stream().unwrap()).collect();
    for stream in &streams {
        let number = stream.mark().unwrap();
        stream.synchronize_mark(number).unwrap();
    }
    drop(streams);
    assert!(device.close().unwrap().released);
    bench.assert_clean();
}

fn a_close_frees_everything_and_gives_the_context_back<V: Vendor>() {
    let bench = Bench::<V>::new();
    let references = bench.control.live(Live::PrimaryReferences);
    let device = bench.device();
    let stream = device.stream().unwrap();
    let buffer = device.pinned(10_000).unwrap();
    stream.mark().unwrap();
    drop((stream, buffer));
    let report = device.close().unwrap();
    assert!(report.released && report.unsettled.is_none(), "{report:?}");
    assert_eq!((report.freed, report.held, report.leaked, report.streams), (2, 0, 0, 0));
    for live in [Live::HostAllocations, Live::Streams, Live::Events] {
        assert_eq!(bench.control.live(live), 0, "{live:?}");
    }
    assert_eq!(bench.control.live(Live::PrimaryReferences), references);
    assert_eq!(device.stats().teardown_failures, 0);
    // The next one is a new one.
    assert_eq!(bench.device().caps().store, Ok(()));
    bench.assert_clean();
}

fn a_close_frees_nothing_that_is_held_and_can_be_called_again<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    let number = stream.mark().unwrap();
    let buffer = device.pinned(1).unwrap();
    let report = device.close().unwrap();
    assert_eq!((report.freed, report.held, report.streams), (0, 2, 1), "{report:?}");
    assert!(!report.released && bench.calls(Call::Free) == 0);
    // What is there still answers.
    assert!(stream.query_mark(number).unwrap() && seen(&stream, number));
    drop((stream, buffer));
    let report = device.close().unwrap();
    assert_eq!((report.freed, report.held, report.released), (2, 0, true), "{report:?}");
    bench.assert_clean();
}

fn a_context_that_does_not_settle_leaks_its_memory_and_counts_it<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    bench.hold(&stream);
    stream.mark().unwrap();
    drop(stream);
    bench.fault();
    let report = device.close().unwrap();
    assert_fault::<V>(report.unsettled.as_ref().unwrap());
    assert!(!report.released && report.leaked == 1, "{report:?}");
    assert_eq!((bench.calls(Call::Free), device.stats().leaked), (0, 1));
    bench.control.release();
    bench.assert_clean();
}

fn a_context_that_settles_later_is_released_then<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    bench.hold(&stream);
    stream.mark().unwrap();
    drop((stream, device.pinned(1).unwrap()));
    // A status that does not stay.
    bench.fail(Call::SynchronizeEvent, 46);
    let report = device.close().unwrap();
    assert_eq!(report.unsettled.as_ref().unwrap().status_number(), Some(46));
    assert_eq!((report.leaked, bench.calls(Call::Free)), (2, 0), "{report:?}");
    bench.control.release();
    let report = device.close().unwrap();
    assert_eq!((report.freed, report.leaked, report.released), (2, 0, true), "{report:?}");
    assert_eq!(bench.control.live(Live::HostAllocations), 0);
    bench.assert_clean();
}

fn what_is_closed_queues_nothing<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    device.close().unwrap();
    let stores = bench.calls(Call::Store);
    for refused in [
        device.stream().unwrap_err(),
        device.pinned(1).unwrap_err(),
        device.line().err().unwrap(),
        stream.mark().unwrap_err(),
    ] {
        assert_eq!(refused.code(), ErrorCode::Closed, "{refused}");
    }
    assert_eq!(bench.calls(Call::Store), stores);
    assert!(stream.query().unwrap());
    bench.assert_clean();
}

fn failures_of_the_teardown_are_counted<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let buffer = device.pinned(1).unwrap();
    drop(buffer);
    bench.fail(Call::Free, 1);
    let report = device.close().unwrap();
    assert_eq!((report.freed, report.leaked, report.released), (1, 1, false), "{report:?}");
    assert_eq!((device.stats().teardown_failures, device.stats().leaked), (1, 1));
    bench.assert_clean();
}

fn f9_the_default_streams_are_distinct_and_a_threads_own_is_refused_elsewhere<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    // SAFETY: the reserved handles name streams as long as the context is there.
    let of = |handle| unsafe { device.stream_from_raw(handle, None) }.unwrap();
    let (null, legacy, own) =
        (of(StreamHandle::Null), of(StreamHandle::Legacy), of(StreamHandle::PerThread));
    for stream in [&null, &legacy, &own] {
        let number = stream.mark().unwrap();
        stream.synchronize_mark(number).unwrap();
        assert!(seen(stream, number));
    }
    std::thread::scope(|scope| {
        let elsewhere = scope.spawn(|| {
            let number = own.mark().unwrap_err();
            assert!(null.query().is_ok() && legacy.query().is_ok());
            // A mark that was made is an event, which is the same everywhere.
            assert!(own.query_mark(1).unwrap());
            [number, own.query().unwrap_err(), own.synchronize().unwrap_err()]
        });
        for refused in elsewhere.join().unwrap() {
            assert_eq!(refused.code(), ErrorCode::ForeignThread, "{refused}");
        }
    });
    bench.assert_clean();
}

fn a_doorbell_of_other_memory_is_refused<V: Vendor>() {
    let bench = Bench::<V>::new();
    let other = Bench::<V>::new();
    let device = bench.device();
    for bell in [Doorbell::new(), other.device().doorbell().unwrap()] {
        let refused = device.stream_on(&bell).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::ForeignContext, "{refused}");
    }
    assert_eq!(device.stats().streams, 0);
}

fn devices_of_one_driver_ring_one_doorbell_whose_memory_stays_until_both_are_closed<V: Vendor>() {
    let bench = Bench::<V>::new();
    bench.control.devices(2);
    let (first, second) = (bench.device(), V::device(&bench.driver, 1).unwrap());
    let bell = first.doorbell().unwrap();
    let streams = [first.stream_on(&bell).unwrap(), second.stream_on(&bell).unwrap()];
    for stream in &streams {
        let before = bell.snapshot();
        let number = stream.mark().unwrap();
        wait_for(|| bell.changed_since(&before));
        assert!(seen(stream, number));
    }
    // A store of the second device is on its way when the first is closed, and nobody holds the doorbell.
    let [own, stream] = streams;
    drop(own);
    bench.hold(&stream);
    stream.mark().unwrap();
    drop((stream, bell));
    let report = first.close().unwrap();
    assert_eq!((report.held, report.released), (1, false), "{report:?}");
    bench.control.release();
    assert!(second.close().unwrap().released);
    assert!(first.close().unwrap().released);
    bench.assert_clean();
}

fn a_device_that_does_not_exist_is_refused_by_name<V: Vendor>() {
    let bench = Bench::<V>::new();
    let error = V::device(&bench.driver, 99).unwrap_err();
    assert!([ErrorCode::Backend, ErrorCode::Unsupported].contains(&error.code()), "{error}");
}

/// The CUDA entry point `name` as a test calls it, past the backend.
macro_rules! cu {
    ($bench:expr, $name:ident($($argument:expr => $type:ty),* $(,)?)) => {
        assert_eq!(foreign_call!(
            $bench.control.entry_points(), $name($($argument => $type),*) -> i32), 0)
    };
}

/// A raw stream in the context that is current to this thread.
fn raw_stream(bench: &Bench<OfCuda>, flags: u32) -> u64 {
    let mut stream = 0u64;
    cu!(bench, cuStreamCreate(&raw mut stream => *mut u64, flags => u32));
    stream
}

#[test]
fn a_stream_of_another_context_is_refused_before_anything_is_queued() {
    let bench = Bench::<OfCuda>::new();
    let device = bench.device();
    let mut context = 0u64;
    cu!(bench, cuCtxCreate_v2(&raw mut context => *mut u64, 0 => u32, 0 => i32));
    let foreign = raw_stream(&bench, 1);
    let stores = bench.calls(Call::Store);
    // SAFETY: the stream lives until the end of this test.
    let refused = unsafe { device.stream_from_raw(handle_of(foreign), None) }.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::ForeignContext);
    assert_eq!(bench.calls(Call::Store), stores);
    // The context itself can be opened, and has the stream.
    let context = std::ptr::with_exposed_provenance_mut::<c_void>(context as usize);
    // SAFETY: the context lives until the end of the process.
    let own = unsafe { bench.driver.device_from_context(context) }.unwrap();
    // SAFETY: as above.
    let stream = unsafe { own.stream_from_raw(handle_of(foreign), None) }.unwrap();
    wait_by(SPIN, &mut thread_port(&stream)).unwrap();
    drop(stream);
    assert!(own.close().unwrap().released);
    bench.assert_clean();
}

fn f23_no_wait_disturbs_a_capture_anywhere_and_a_captured_stream_is_pending<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let busy = device.stream().unwrap();
    let captured = device.stream().unwrap();
    let number = captured.mark().unwrap();
    captured.synchronize_mark(number).unwrap();
    // Global: a status call of any thread that is not relaxed breaks it.
    V::begin_capture(&bench.control, captured.handle());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            bench.hold(&busy);
            let mut port = thread_port(&busy);
            let ticket = port.mark().unwrap();
            assert!(!busy.query().unwrap());
            bench.control.release();
            for text in ["poll", SPIN, "block"] {
                wait_by(text, &mut port.at(ticket)).unwrap();
            }
            // Memory and streams can be made meanwhile.
            let stream = device.stream().unwrap();
            drop((device.pinned(1).unwrap(), device.doorbell().unwrap(), stream));
        });
    });
    let queries = bench.calls(Call::QueryStream);
    assert!(!captured.query().unwrap(), "a captured stream is pending");
    assert_eq!(bench.calls(Call::QueryStream), queries, "without a status call");
    assert!(captured.query_mark(number).unwrap(), "what is done stays done");
    let mut port = thread_port(&captured);
    for text in ["poll", SPIN, "block", "flag:park_us=50,backstop_us=1000"] {
        let refused = wait_by(text, &mut port).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::Captured, "{text}: {refused}");
    }
    assert_eq!(captured.mark().unwrap_err().code(), ErrorCode::Captured);
    assert!(V::end_capture(&bench.control, captured.handle()), "the capture was broken");
    wait_by(SPIN, &mut port).unwrap();
    bench.assert_clean();
}

fn f23_the_legacy_stream_beside_a_capture_reads_as_captured<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let blocking = V::blocking_stream(&bench.control);
    // SAFETY: the legacy stream is there as long as the context.
    let legacy = unsafe { device.stream_from_raw(StreamHandle::Legacy, None) }.unwrap();
    V::begin_capture(&bench.control, blocking);
    assert!(!legacy.query().unwrap());
    assert_eq!(legacy.mark().unwrap_err().code(), ErrorCode::Captured);
    assert!(V::end_capture(&bench.control, blocking), "the capture was broken");
    assert!(legacy.query().unwrap());
    bench.assert_clean();
}

#[test]
fn a_stream_of_another_hip_device_is_refused_where_the_runtime_can_tell() {
    let refused_by = |missing: Option<&str>| {
        let (folder, mut path) = copy_of::<OfHip>();
        if let Some(symbol) = missing {
            let without = folder.path().join("without.so");
            without_symbol(&path, symbol, &without).unwrap();
            path = without;
        }
        let bench = Bench::<OfHip>::over(folder, &path);
        bench.control.devices(2);
        let second = bench.driver.device(1).unwrap();
        let stream = second.stream().unwrap();
        // SAFETY: the stream lives until the end of this closure.
        unsafe { bench.device().stream_from_raw(stream.handle(), None) }.map(|_| ())
    };
    assert_eq!(refused_by(None).unwrap_err().code(), ErrorCode::ForeignContext);
    assert!(refused_by(Some("hipStreamGetDevice")).is_ok());
}
