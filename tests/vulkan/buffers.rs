//! Buffers: what cannot be had, when a stream lets go of one, and how many are kept.

use crate::broken::{Broken, fail, repair};
use crate::setup::device;
use gpu_async_reactor::backend::vulkan::ash::vk;
use gpu_async_reactor::{DeviceStream, ErrorCode};

crate::cases![
    what_is_longer_than_any_memory_is_refused,
    a_stream_lets_go_of_a_buffer_once_its_status_has_passed_the_use,
    buffers_that_grow_leave_a_bounded_number_of_smaller_ones_behind,
    memory_that_nobody_uses_is_given_up_before_an_allocation_fails,
];

fn what_is_longer_than_any_memory_is_refused() {
    let device = device();
    // The last ones overflow when they are rounded to pages, or are longer than Rust allows.
    for bytes in [1 << 50, isize::MAX as usize, usize::MAX - 4096, usize::MAX] {
        let refused = [device.buffer(bytes).map(drop).err(), device.pinned(bytes).map(drop).err()];
        for error in refused {
            let error = error.expect("nobody has that much");
            assert_eq!(error.code(), ErrorCode::Backend, "{bytes}: {error}");
            assert_eq!(error.args()[0], "vkAllocateMemory", "{bytes}: {error}");
        }
    }
    assert_eq!((device.stats().buffers, device.stats().unused_buffers), (0, 0));
}

fn a_stream_lets_go_of_a_buffer_once_its_status_has_passed_the_use() {
    let device = device();
    let stream = device.stream().unwrap();
    for way in 0..4 {
        let (from, to) = (device.buffer(64).unwrap(), device.buffer(64).unwrap());
        let number = stream.copy(&from, &to, 64).unwrap();
        drop((from, to));
        assert_eq!(device.stats().buffers, 2, "the device may be at it");
        // Nothing is queued behind it, and the status alone tells.
        match way {
            0 => while !stream.query().unwrap() {},
            1 => while !stream.query_mark(number).unwrap() {},
            2 => stream.synchronize().unwrap(),
            _ => stream.synchronize_mark(number).unwrap(),
        }
        assert_eq!((device.stats().buffers, device.stats().unused_buffers), (0, 2), "way {way}");
    }
}

fn buffers_that_grow_leave_a_bounded_number_of_smaller_ones_behind() {
    let device = device();
    for pages in 1..=300 {
        drop((device.pinned(pages * 4096).unwrap(), device.buffer(pages * 4096).unwrap()));
    }
    let kept = device.stats().unused_buffers;
    assert!(kept <= 64 + 2, "{kept} allocations that nobody uses");
}

fn memory_that_nobody_uses_is_given_up_before_an_allocation_fails() {
    let broken = Broken::new();
    let device = &broken.device;
    drop((device.buffer(1).unwrap(), device.pinned(1).unwrap()));
    assert_eq!(device.stats().unused_buffers, 2);
    let results = [
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
        vk::Result::ERROR_OUT_OF_HOST_MEMORY,
        vk::Result::ERROR_TOO_MANY_OBJECTS,
    ];
    let mut held = Vec::new();
    for (size, result) in (1..).map(|turn| 4096 << (2 * turn)).zip(results) {
        assert!(device.stats().unused_buffers > 0);
        fail("vkAllocateMemory", 0, result);
        held.push(device.buffer(size).unwrap());
        assert!(!repair(), "it failed once");
        assert_eq!(device.stats().unused_buffers, 0);
        // With nothing to give up, the failure is the answer.
        fail("vkAllocateMemory", 0, result);
        let error = device.buffer(size).unwrap_err();
        assert_eq!(error.status_number(), Some(i64::from(result.as_raw())));
        assert!(!repair());
        drop(device.pinned(1).unwrap());
    }
    drop(held);
    broken.end();
}
