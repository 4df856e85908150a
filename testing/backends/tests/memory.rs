//! Device memory: whose it is while work on it may be on its way.
#![cfg(target_os = "linux")]

use backend_tests::{Bench, Call, Vendor, for_each_vendor, thread_port, wait_by};
use driver_core::Live;
use gpu_async_reactor::backend::lease::DeviceBuffer;
use gpu_async_reactor::{DeviceStream, ErrorCode};

const BYTES: usize = 10_000;
const CODE: i32 = 46;

for_each_vendor! {
    what_was_uploaded_and_filled_comes_back;
    f4_memory_with_work_in_flight_is_nobody_elses;
    f4_memory_of_an_upload_that_failed_half_way_is_nobody_elses_before_the_stream_has_passed_it;
    memory_that_refused_work_was_meant_for_is_used_again;
    memory_beyond_the_address_space_is_refused;
}

fn what_was_uploaded_and_filled_comes_back<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    let memory = device.memory(BYTES).unwrap();
    stream.fill(&memory, 7, 2).unwrap();
    let mut three = device.pinned(3).unwrap();
    three.as_mut_slice::<u8>().copy_from_slice(&[1, 2, 3]);
    let uploaded = stream.upload(three, &memory, 5).unwrap();
    let copied = stream.copy_back::<u8, _>(&memory, 4..9, device.pinned(5).unwrap()).unwrap();
    wait_by("spin:backstop_us=1000", &mut thread_port(&stream).at(copied.ticket())).unwrap();
    assert_eq!(*copied.try_read().unwrap(), [7, 1, 2, 3, 7]);
    drop((uploaded, memory, stream));
    assert!(device.close().unwrap().released);
    assert_eq!(bench.control.live(Live::DeviceAllocations), 0);
    bench.assert_clean();
}

fn f4_memory_with_work_in_flight_is_nobody_elses<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    let memory = device.memory(BYTES).unwrap();
    let address = memory.device_address();
    bench.hold(&stream);
    let number = stream.fill(&memory, 7, 1).unwrap();
    drop(memory);
    assert_ne!(device.memory(BYTES).unwrap().device_address(), address);
    bench.control.release();
    stream.synchronize_mark(number).unwrap();
    let [first, second] = [0, 1].map(|_| device.memory(BYTES).unwrap());
    assert!([first.device_address(), second.device_address()].contains(&address));
    bench.assert_clean();
}

fn f4_memory_of_an_upload_that_failed_half_way_is_nobody_elses_before_the_stream_has_passed_it<
    V: Vendor,
>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    let memory = device.memory(BYTES).unwrap();
    let address = memory.device_address();
    bench.hold(&stream);
    // The copy is queued, and its mark is not.
    bench.fail(Call::Record, CODE);
    let failed = stream.upload(device.pinned(BYTES).unwrap(), &memory, 0).unwrap_err();
    assert_eq!(failed.status_number(), Some(i64::from(CODE)), "{failed}");
    drop(memory);
    assert_eq!(device.stats().leases.leaked, 1, "nobody can tell when the buffer is free");
    assert_ne!(device.memory(BYTES).unwrap().device_address(), address, "a copy is on its way");
    bench.control.release();
    stream.synchronize().unwrap();
    let [first, second] = [0, 1].map(|_| device.memory(BYTES).unwrap());
    assert!([first.device_address(), second.device_address()].contains(&address));
    bench.assert_clean();
}

fn memory_that_refused_work_was_meant_for_is_used_again<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    V::begin_capture(&bench.control, stream.handle());
    let memory = device.memory(BYTES).unwrap();
    let address = memory.device_address();
    for refused in [
        stream.fill(&memory, 7, 1).unwrap_err(),
        stream.upload(device.pinned(BYTES).unwrap(), &memory, 0).unwrap_err(),
    ] {
        assert_eq!(refused.code(), ErrorCode::Captured, "{refused}");
    }
    drop(memory);
    assert_eq!(device.memory(BYTES).unwrap().device_address(), address, "nothing was queued on it");
    assert!(V::end_capture(&bench.control, stream.handle()));
    bench.assert_clean();
}

fn memory_beyond_the_address_space_is_refused<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    // With something in the pools that could fit.
    drop((device.pinned(1).unwrap(), device.memory(1).unwrap()));
    for bytes in [usize::MAX, usize::MAX / 2 + 1] {
        let pinned = device.pinned(bytes).unwrap_err();
        let memory = device.memory(bytes).unwrap_err();
        for refused in [pinned, memory] {
            let codes = [ErrorCode::Unsupported, ErrorCode::Backend];
            assert!(codes.contains(&refused.code()), "{refused}");
        }
    }
    bench.assert_clean();
}
