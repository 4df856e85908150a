//! Buffers: what cannot be had and when a stream lets go of one.

use crate::setup::device;
use gpu_async_reactor::{DeviceStream, ErrorCode};

crate::cases![
    what_is_longer_than_any_memory_is_refused,
    a_stream_lets_go_of_a_buffer_once_its_status_has_passed_the_use,
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
