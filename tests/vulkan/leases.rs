//! Buffers that the device is using.

use crate::broken::{Broken, fail, repair};
use crate::common::wait_for;
use crate::setup::{Gate, PARKS, busy, device, idle, plan};
use gpu_async_reactor::backend::lease::{DeviceBuffer, LeaseStats};
use gpu_async_reactor::backend::vulkan::ash::vk;
use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{DeviceStream, ErrorCode, ThreadPort, run_inline};

crate::cases![
    a_readback_is_awaited_by_any_plan_and_read_as_numbers,
    what_is_uploaded_comes_back,
    f4_the_memory_of_a_dropped_lease_is_not_handed_out_before_its_number_is_reached,
    f4_a_lease_dropped_before_its_stream_is_reclaimed_once_the_semaphore_has_passed,
    f4_behind_a_lost_device_a_leased_buffer_is_leaked_and_counted,
    a_buffer_of_another_device_is_refused,
];

fn a_readback_is_awaited_by_any_plan_and_read_as_numbers() {
    let device = device();
    let stream = device.stream().unwrap();
    let buffer = device.buffer(40_000).unwrap();
    let clock = StdClock::new();
    for (value, text) in (1..).zip(PARKS.iter().chain(&["block"])) {
        let _work = busy(&device, &stream, 1);
        stream.fill(&buffer, value, 1).unwrap();
        let pinned = device.pinned(4_000).unwrap();
        let readback = stream.read_back::<u32>(&buffer, 36_000, 1_000, pinned).unwrap();
        let mut port = ThreadPort::new(&stream, idle());
        let mut at = port.at(readback.ticket());
        let (landed, _) =
            run_inline(readback.wait(&plan(text), None, &mut at, &clock)).unwrap().unwrap();
        assert_eq!(&landed[..], [value; 1_000], "{text}");
    }
    let raw = buffer.raw();
    // SAFETY: the buffer is of this device and is held until the copy is done.
    let readback = unsafe { stream.read_back_raw::<u32>(raw, 4, 2, device.pinned(8).unwrap()) };
    let readback = readback.unwrap();
    stream.synchronize().unwrap();
    assert_eq!(readback.try_read().unwrap()[..], [4, 4]);
}

fn what_is_uploaded_comes_back() {
    let device = device();
    let stream = device.stream().unwrap();
    let buffer = device.buffer(10_000).unwrap();
    let mut pinned = device.pinned(8_000).unwrap();
    for (at, number) in (0..).zip(pinned.as_mut_slice::<u64>()) {
        *number = at * at;
    }
    let lease = stream.upload(pinned, &buffer, 2_000).unwrap();
    let readback =
        stream.read_back::<u64>(&buffer, 2_000, 1_000, device.pinned(8_000).unwrap()).unwrap();
    stream.synchronize().unwrap();
    let landed = readback.try_read().unwrap();
    assert!((0..).zip(landed.iter()).all(|(at, number): (u64, _)| *number == at * at));
    assert_eq!(lease.try_take().unwrap().as_slice::<u64>()[3], 9);
}

fn f4_the_memory_of_a_dropped_lease_is_not_handed_out_before_its_number_is_reached() {
    let device = device();
    let stream = device.stream().unwrap();
    let gate = Gate::new(&device);
    gate.hold(&stream).unwrap();
    let buffer = device.buffer(4_096).unwrap();
    let pinned = device.pinned(4_096).unwrap();
    let raw = pinned.raw();
    drop(stream.read_back::<u8>(&buffer, 0, 4_096, pinned).unwrap());
    assert_eq!((stream.sweep(), device.stats().leases.waiting), (0, 1));
    let another = device.pinned(4_096).unwrap();
    assert_ne!(another.raw(), raw, "the device is about to write there");
    gate.open();
    stream.synchronize().unwrap();
    assert_eq!(stream.sweep(), 1);
    assert_eq!(device.stats().leases, LeaseStats::default());
    assert_eq!(device.pinned(4_096).unwrap().raw(), raw);
    drop((another, buffer, stream));
    gate.end();
}

fn f4_a_lease_dropped_before_its_stream_is_reclaimed_once_the_semaphore_has_passed() {
    let device = device();
    let stream = device.stream().unwrap();
    let gate = Gate::new(&device);
    gate.hold(&stream).unwrap();
    let buffer = device.buffer(4_096).unwrap();
    let pinned = device.pinned(4_096).unwrap();
    let readback = stream.read_back::<u8>(&buffer, 0, 4_096, pinned).unwrap();
    drop(stream);
    assert_eq!(device.stats().streams, 1, "the lease holds it");
    drop(readback);
    assert_eq!((device.stats().streams, device.stats().leases.waiting), (0, 1));
    gate.open();
    wait_for(|| {
        let _another = device.stream().unwrap();
        device.stats().settling == 0
    });
    assert_eq!(device.stats().leases, LeaseStats::default());
    drop(buffer);
    gate.end();
}

fn f4_behind_a_lost_device_a_leased_buffer_is_leaked_and_counted() {
    let broken = Broken::new();
    let device = &broken.device;
    let stream = device.stream().unwrap();
    let gate = Gate::new(device);
    gate.hold(&stream).unwrap();
    let buffer = device.buffer(4_096).unwrap();
    let readback =
        stream.read_back::<u8>(&buffer, 0, 4_096, device.pinned(4_096).unwrap()).unwrap();
    fail("vkGetSemaphoreCounterValue", 0, vk::Result::ERROR_DEVICE_LOST);
    assert!(readback.try_read().is_err());
    assert!(!repair());
    stream.sweep();
    drop(stream);
    assert!(device.close().is_err());
    let leases = device.stats().leases;
    assert_eq!((leases.waiting, leases.leaked), (0, 1), "{leases:?}");
    gate.open();
}

fn a_buffer_of_another_device_is_refused() {
    let (device, other) = (device(), device());
    let stream = device.stream().unwrap();
    let own = device.buffer(64).unwrap();
    let foreign = stream.read_back::<u8>(&own, 0, 1, other.pinned(64).unwrap()).unwrap_err();
    assert_eq!(foreign.code(), ErrorCode::ForeignContext);
    let foreign = stream.upload(other.pinned(64).unwrap(), &own, 0).unwrap_err();
    assert_eq!(foreign.code(), ErrorCode::ForeignContext);
    assert!(stream.query().unwrap());
}
