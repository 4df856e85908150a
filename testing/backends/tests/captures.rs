//! No call of the backend breaks a capture, of its own streams or of others', and what cannot be asked
//! meanwhile is pending.
#![cfg(target_os = "linux")]

use backend_tests::{
    Bench, Call, OfHip, Vendor, for_each_vendor, number_of, seen, thread_port, wait_by, wait_for,
};
use gpu_async_reactor::host::{StdClock, WatchOptions, WatchPolicy, Watcher};
use gpu_async_reactor::{Clock, DeviceStream, DurNs, ErrorCode, WaitError, run_inline, wait_until};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SPIN: &str = "spin:backstop_us=1000";

for_each_vendor! {
    f23_a_query_of_an_outstanding_mark_leaves_a_capture_of_its_stream_whole;
    f23_a_wait_beside_a_capture_of_its_stream_leaves_it_whole_and_goes_on_after_it;
    f23_a_watcher_beside_a_capture_of_its_stream_leaves_it_whole;
    f23_a_sweep_beside_a_capture_of_its_stream_leaks_nothing;
    f23_what_a_dropped_stream_leaves_beside_its_capture_is_not_leaked;
    f23_a_close_beside_a_foreign_capture_leaves_it_whole;
    f23_opening_a_device_that_cannot_be_probed_leaves_a_foreign_capture_whole;
    f60_a_status_that_says_captured_or_not_permitted_is_pending;
}

fn f23_a_query_of_an_outstanding_mark_leaves_a_capture_of_its_stream_whole<V: Vendor>() {
    let bench = Bench::<V>::new();
    let stream = bench.device().stream().unwrap();
    bench.hold(&stream);
    let number = stream.mark().unwrap();
    V::begin_capture(&bench.control, stream.handle());
    assert!(!stream.query_mark(number).unwrap());
    assert!(V::end_capture(&bench.control, stream.handle()), "the capture was broken");
    bench.control.release();
    stream.synchronize_mark(number).unwrap();
    bench.assert_clean();
}

fn f23_a_wait_beside_a_capture_of_its_stream_leaves_it_whole_and_goes_on_after_it<V: Vendor>() {
    let bench = Bench::<V>::new();
    let stream = bench.device().stream().unwrap();
    bench.hold(&stream);
    let mut port = thread_port(&stream);
    let ticket = port.mark().unwrap();
    V::begin_capture(&bench.control, stream.handle());
    let clock = StdClock::new();
    for text in [SPIN, "flag:park_us=50,backstop_us=1000", "poll"] {
        // Some ten backstops, with the word silent.
        let deadline = clock.monotonic_ns().after(DurNs::from_ms(10));
        let (plan, mut port) = (backend_tests::plan(text), port.at(ticket));
        let waited = run_inline(wait_until(&plan, None, &mut port, &clock, deadline)).unwrap();
        assert!(matches!(waited, Err(WaitError::TimedOut(_))), "{text}: {waited:?}");
    }
    bench.control.release();
    wait_for(|| seen(&stream, ticket.number()));
    // Whether the status can be asked depends on the vendor; nothing is broken by it.
    let deadline = clock.monotonic_ns().after(DurNs::from_ms(10));
    let plan = backend_tests::plan(SPIN);
    let waited = run_inline(wait_until(&plan, None, &mut port.at(ticket), &clock, deadline));
    assert!(matches!(waited.unwrap(), Ok(_) | Err(WaitError::TimedOut(_))));
    assert!(V::end_capture(&bench.control, stream.handle()), "the capture was broken");
    wait_by(SPIN, &mut port.at(ticket)).unwrap();
    bench.assert_clean();
}

fn f23_a_watcher_beside_a_capture_of_its_stream_leaves_it_whole<V: Vendor>() {
    let bench = Bench::<V>::new();
    let stream = Arc::new(bench.device().stream().unwrap());
    let watcher = Watcher::new(WatchPolicy::default()).unwrap();
    bench.hold(&stream);
    let number = stream.mark().unwrap();
    V::begin_capture(&bench.control, stream.handle());
    let options = WatchOptions::new(DurNs::from_ms(1));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let watch = watcher.watch_stream(stream.clone(), number, options);
    let waited = runtime.block_on(async {
        let ending = async {
            // Backstops pass before the word comes, and behind it.
            tokio::time::sleep(Duration::from_millis(10)).await;
            bench.control.release();
            tokio::time::sleep(Duration::from_millis(10)).await;
            V::end_capture(&bench.control, stream.handle())
        };
        let (waited, whole) = tokio::join!(watch, ending);
        assert!(whole, "the capture was broken");
        waited
    });
    waited.unwrap();
    bench.assert_clean();
}

fn f23_a_sweep_beside_a_capture_of_its_stream_leaks_nothing<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    let memory = V::device_memory(&bench.control, 4096);
    bench.hold(&stream);
    let buffer = device.pinned(4096).unwrap();
    // SAFETY: the device memory is that long, is never freed, and written by nobody.
    drop(unsafe { stream.read_back::<u8, _>(memory, 4096, buffer) }.unwrap());
    V::begin_capture(&bench.control, stream.handle());
    assert_eq!(stream.sweep(), 0);
    bench.control.release();
    wait_for(|| stream.sweep() == 1 || device.stats().leases.waiting == 1);
    assert_eq!(device.stats().leases.leaked, 0);
    assert!(V::end_capture(&bench.control, stream.handle()), "the capture was broken");
    wait_for(|| {
        stream.sweep();
        device.stats().leases.waiting == 0
    });
    assert_eq!(device.stats().leases.leaked, 0);
    bench.assert_clean();
}

fn f23_what_a_dropped_stream_leaves_beside_its_capture_is_not_leaked<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let handle = V::blocking_stream(&bench.control);
    // SAFETY: the stream is never destroyed.
    let stream = unsafe { device.stream_from_raw(handle, None) }.unwrap();
    let memory = V::device_memory(&bench.control, 4096);
    bench.hold(&stream);
    let buffer = device.pinned(4096).unwrap();
    // SAFETY: as above.
    drop(unsafe { stream.read_back::<u8, _>(memory, 4096, buffer) }.unwrap());
    drop(stream);
    V::begin_capture(&bench.control, handle);
    for _ in 0..3 {
        drop(device.stream().unwrap());
    }
    assert!(V::end_capture(&bench.control, handle), "the capture was broken");
    bench.control.release();
    wait_for(|| {
        drop(device.stream().unwrap());
        device.stats().leases.waiting == 0
    });
    assert_eq!(device.stats().leases.leaked, 0);
    bench.assert_clean();
}

fn f23_a_close_beside_a_foreign_capture_leaves_it_whole<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    // The program's own reference to the context.
    V::device_memory(&bench.control, 1);
    let foreign = V::blocking_stream(&bench.control);
    let stream = device.stream().unwrap();
    stream.mark().unwrap();
    drop((stream, device.pinned(100).unwrap()));
    V::begin_capture(&bench.control, foreign);
    let report = device.close().unwrap();
    assert!(report.released && report.leaked == 0, "{report:?}");
    assert!(V::end_capture(&bench.control, foreign), "the capture was broken");
    bench.assert_clean();
}

fn f23_opening_a_device_that_cannot_be_probed_leaves_a_foreign_capture_whole<V: Vendor>() {
    let bench = Bench::<V>::new();
    V::device_memory(&bench.control, 1);
    let foreign = V::blocking_stream(&bench.control);
    V::begin_capture(&bench.control, foreign);
    bench.fail(Call::Record, 46);
    let refused = V::device(&bench.driver, 0).unwrap_err();
    assert_eq!(refused.status_number(), Some(46), "{refused}");
    assert!(V::end_capture(&bench.control, foreign), "the capture was broken");
    bench.assert_clean();
}

fn f60_a_status_that_says_captured_or_not_permitted_is_pending<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    bench.hold(&stream);
    let number = stream.mark().unwrap();
    // As where another thread begins a capture between the look and the call.
    for code in [900, 901, 906, 907] {
        bench.fail(Call::QueryEvent, code);
        assert!(!stream.query_mark(number).unwrap(), "{code}");
        bench.fail(Call::QueryStream, code);
        assert!(!stream.query().unwrap(), "{code}");
    }
    bench.control.release();
    let refused = {
        bench.fail(Call::SynchronizeEvent, 900);
        let held = device.stream().unwrap();
        bench.hold(&held);
        let number = held.mark().unwrap();
        let refused = held.synchronize_mark(number).unwrap_err();
        bench.control.release();
        held.synchronize_mark(number).unwrap();
        refused
    };
    assert_eq!(refused.code(), ErrorCode::Captured, "a blocking wait says so: {refused}");
    stream.synchronize_mark(number).unwrap();
    assert!(stream.query_mark(number).unwrap());
    assert_eq!(device.stats().leases.leaked, 0);
    bench.assert_clean();
}

#[test]
fn f23_hip_a_wait_whose_word_is_there_ends_by_an_error_where_nobody_ends_the_capture() {
    let bench = Bench::<OfHip>::new();
    let stream = bench.device().stream().unwrap();
    bench.hold(&stream);
    let mut port = thread_port(&stream);
    let ticket = port.mark().unwrap();
    OfHip::begin_capture(&bench.control, stream.handle());
    bench.control.release();
    // The one thread that could end the capture waits.
    let began = Instant::now();
    let refused = wait_by(SPIN, &mut port.at(ticket)).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Captured, "{refused}");
    assert!(began.elapsed() >= Duration::from_secs(4), "others may end theirs meanwhile");
    let blocked = stream.synchronize_mark(ticket.number()).unwrap_err();
    assert_eq!(blocked.code(), ErrorCode::Captured, "{blocked}");
    assert!(OfHip::end_capture(&bench.control, stream.handle()), "the capture was broken");
    wait_by(SPIN, &mut port.at(ticket)).unwrap();
    bench.assert_clean();
}

#[test]
fn f23_hip_a_close_beside_a_capture_of_a_stream_of_its_own_says_so_and_leaves_it_whole() {
    let bench = Bench::<OfHip>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    bench.hold(&stream);
    stream.mark().unwrap();
    OfHip::begin_capture(&bench.control, stream.handle());
    let report = device.close().unwrap();
    assert_eq!(report.unsettled.as_ref().map(|error| error.code()), Some(ErrorCode::Captured));
    assert!(OfHip::end_capture(&bench.control, stream.handle()), "the capture was broken");
    bench.control.release();
    drop(stream);
    let report = device.close().unwrap();
    assert!(report.released && report.leaked == 0, "{report:?}");
    bench.assert_clean();
}

#[test]
fn f23_hip_each_version_leaves_captures_whole() {
    for version in [50_700_000, 60_200_000, 70_000_000] {
        let bench = Bench::<OfHip>::new();
        bench.control.version(version);
        let device = bench.device();
        let stream = device.stream().unwrap();
        bench.hold(&stream);
        let number = stream.mark().unwrap();
        OfHip::begin_capture(&bench.control, stream.handle());
        assert!(!stream.query_mark(number).unwrap(), "{version}");
        let refused = stream.synchronize_mark(number).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::Captured, "{version}: {refused}");
        assert!(OfHip::end_capture(&bench.control, stream.handle()), "{version}");
        bench.control.release();
        stream.synchronize_mark(number).unwrap();
        assert!(bench.calls(Call::QueryEvent) > 0 && number_of(stream.handle()) > 0);
        bench.assert_clean();
    }
}
