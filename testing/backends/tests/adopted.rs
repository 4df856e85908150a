//! Streams of the program's own: handles that mean nothing, streams that are destroyed early, and what is
//! left of dropped ones.
#![cfg(target_os = "linux")]

use backend_tests::{
    Bench, Call, OfCuda, OfHip, OpenDevice, Vendor, for_each_vendor, handle_of, number_of, wait_for,
};
use driver_core::MARKER;
use gpu_async_reactor::backend::mapped::{StreamHandle, StreamOwner};
use gpu_async_reactor::{DeviceStream, ErrorCode};

for_each_vendor! {
    a_handle_that_names_nothing_is_its_own_error_and_no_fault_of_the_device;
    a_borrowed_stream_may_be_destroyed_once_all_of_it_was_dropped;
    what_a_dropped_borrowed_stream_left_comes_back_without_another_stream;
    what_a_dropped_owned_stream_left_comes_back_without_another_stream;
    f4_a_close_waits_for_what_a_destroyed_borrowed_stream_left;
    f4_slots_of_a_dropped_borrowed_stream_drain_where_no_store_tells;
    a_refused_store_costs_no_slot_and_no_number;
}

/// Leases a buffer to a copy on `stream` that has not begun, and drops the lease.
fn leave_a_buffer<V: Vendor>(
    bench: &Bench<V>,
    device: &OpenDevice<V>,
    stream: &gpu_async_reactor::backend::mapped::Stream<V::Interface>,
) {
    let memory = V::device_memory(&bench.control, 4096);
    bench.hold(stream);
    let buffer = device.pinned(4096).unwrap();
    // SAFETY: the device memory is that long, is never freed, and written by nobody.
    drop(unsafe { stream.read_back::<u8, _>(memory, 4096, buffer) }.unwrap());
}

fn a_handle_that_names_nothing_is_its_own_error_and_no_fault_of_the_device<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let good = device.stream().unwrap();
    good.mark().unwrap();
    // SAFETY: it names nothing, which the drivers of both vendors find out.
    let refused = unsafe { device.stream_from_raw(handle_of(0x5_1234_5678), None) }.unwrap_err();
    if V::PREFIX == "hip" {
        assert_eq!(refused.code(), ErrorCode::ForeignContext, "{refused}");
    }
    let number = good.mark().expect("one bad handle is no fault of the device");
    good.synchronize_mark(number).unwrap();
    drop(good);
    assert!(device.close().unwrap().released);
    bench.assert_clean();
}

fn a_borrowed_stream_may_be_destroyed_once_all_of_it_was_dropped<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let handle = V::blocking_stream(&bench.control);
    // SAFETY: it lives until the stream, its ports and its leases are dropped.
    let stream = unsafe { device.stream_from_raw(handle, None) }.unwrap();
    leave_a_buffer(&bench, &device, &stream);
    drop(stream);
    V::destroy_stream(&bench.control, handle);
    drop(device.stream().unwrap());
    assert_eq!((device.stats().leases.leaked, device.stats().leases.waiting), (0, 1));
    bench.control.release();
    wait_for(|| {
        drop(device.stream().unwrap());
        device.stats().leases.waiting == 0
    });
    assert_eq!(device.stats().leases.leaked, 0);
    assert!(device.close().unwrap().released);
    bench.assert_clean();
}

fn what_a_dropped_borrowed_stream_left_comes_back_without_another_stream<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let handle = V::blocking_stream(&bench.control);
    // SAFETY: as above.
    let stream = unsafe { device.stream_from_raw(handle, None) }.unwrap();
    leave_a_buffer(&bench, &device, &stream);
    drop(stream);
    assert_eq!(device.stats().leases.waiting, 1);
    bench.control.release();
    wait_for(|| device.stats().leases.waiting == 0);
    assert_eq!(device.stats().leases.leaked, 0);
    // The buffer is there for the next one.
    let allocated = bench.calls(Call::Allocate);
    drop(device.pinned(4096).unwrap());
    assert_eq!(bench.calls(Call::Allocate), allocated);
    bench.assert_clean();
}

struct Owner(StreamHandle);

// SAFETY: the streams of these tests are never destroyed while their owner lives.
unsafe impl StreamOwner for Owner {
    fn handle(&self) -> StreamHandle {
        self.0
    }
}

fn what_a_dropped_owned_stream_left_comes_back_without_another_stream<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let handle = V::blocking_stream(&bench.control);
    let stream = device.stream_of(Owner(handle), None).unwrap();
    leave_a_buffer(&bench, &device, &stream);
    drop(stream);
    bench.control.release();
    let allocated = bench.calls(Call::Allocate);
    wait_for(|| {
        // A program that makes no streams and asks for nothing but its next buffer.
        let buffer = device.pinned(4096).unwrap();
        drop(buffer);
        device.stats().leases.waiting == 0
    });
    assert!(bench.calls(Call::Allocate) <= allocated + 1);
    assert_eq!(device.stats().leases.leaked, 0);
    bench.assert_clean();
}

fn f4_a_close_waits_for_what_a_destroyed_borrowed_stream_left<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let handle = V::blocking_stream(&bench.control);
    // SAFETY: as above.
    let stream = unsafe { device.stream_from_raw(handle, None) }.unwrap();
    assert_eq!(bench.control.work(number_of(handle), gpu_async_reactor::DurNs::from_ms(20)), 0);
    stream.mark().unwrap();
    drop(stream);
    V::destroy_stream(&bench.control, handle);
    let report = device.close().unwrap();
    assert!(report.released && report.leaked == 0, "{report:?}");
    bench.assert_clean();
}

fn f4_slots_of_a_dropped_borrowed_stream_drain_where_no_store_tells<V: Vendor>() {
    let bench = Bench::<V>::new();
    // The probe sees no store of either kind.
    bench.control.lose_stores(8);
    let device = bench.device();
    bench.control.lose_stores(0);
    assert!(device.caps().store.is_err());
    let retired = device.stats().slots.retired;
    let handle = V::blocking_stream(&bench.control);
    // SAFETY: as above.
    let stream = unsafe { device.stream_from_raw(handle, None) }.unwrap();
    bench.hold(&stream);
    stream.mark().unwrap();
    drop(stream);
    V::destroy_stream(&bench.control, handle);
    bench.control.release();
    wait_for(|| {
        drop(device.stream().unwrap());
        device.stats().slots.leased == 0
    });
    let slots = device.stats().slots;
    assert_eq!((slots.retired, slots.draining), (retired, 0), "{slots:?}");
    let report = device.close().unwrap();
    assert_eq!((report.leaked, report.streams), (0, 0), "{report:?}");
    bench.assert_clean();
}

fn a_refused_store_costs_no_slot_and_no_number<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let before = device.stats().slots;
    let stream = device.stream().unwrap();
    let number = stream.mark().unwrap();
    bench.fail(Call::Store, 46);
    assert_eq!(stream.mark().unwrap_err().status_number(), Some(46));
    assert_eq!(stream.query_mark(number + 1).unwrap_err().code(), ErrorCode::NeverIssued);
    stream.synchronize_mark(number).unwrap();
    drop(stream);
    let slots = device.stats().slots;
    assert_eq!((slots.retired, slots.leased), (before.retired, before.leased), "{slots:?}");
    let next = device.stream().unwrap();
    let number = next.mark().unwrap();
    next.synchronize_mark(number).unwrap();
    bench.assert_clean();
}

#[test]
fn hip_a_stale_handle_is_the_error_of_its_stream_alone() {
    let bench = Bench::<OfHip>::new();
    let device = bench.device();
    let good = device.stream().unwrap();
    bench.control.fail("hipStreamIsCapturing", 1, 709);
    assert_eq!(good.mark().unwrap_err().status_number(), Some(709));
    good.mark().expect("the next call finds the stream");
    bench.assert_clean();
}

#[test]
fn hip_a_pending_mark_answers_for_the_null_stream_without_a_marker() {
    let bench = Bench::<OfHip>::new();
    let device = bench.device();
    let blocking = OfHip::blocking_stream(&bench.control);
    assert_eq!(bench.control.hold(number_of(blocking)), 0);
    // SAFETY: the null stream is there as long as the device.
    let null = unsafe { device.stream_from_raw(StreamHandle::Null, None) }.unwrap();
    let number = null.mark().unwrap();
    for _ in 0..100 {
        assert!(!null.query().unwrap() && !null.query_mark(number).unwrap());
    }
    assert_eq!(bench.control.calls(MARKER), 0, "the event of the mark told");
    bench.control.release();
    null.synchronize_mark(number).unwrap();
    wait_for(|| null.query().unwrap());
    bench.assert_clean();
}

#[test]
fn cuda_a_stream_of_a_green_context_is_refused_by_name() {
    for (version, code) in [(12_090, ErrorCode::Unsupported), (13_000, ErrorCode::ForeignContext)] {
        let bench = Bench::<OfCuda>::new();
        bench.control.version(version);
        let device = bench.device();
        let green = OfCuda::blocking_stream(&bench.control);
        bench.control.green(number_of(green));
        // SAFETY: the stream is never destroyed.
        let refused = unsafe { device.stream_from_raw(green, None) }.unwrap_err();
        assert_eq!(refused.code(), code, "{version}: {refused}");
        if code == ErrorCode::Unsupported {
            assert!(refused.to_string().contains("green context"), "{refused}");
        }
        bench.assert_clean();
    }
}
