//! Buffers: what cannot be had.

use crate::setup::device;
use gpu_async_reactor::ErrorCode;

crate::cases![what_is_longer_than_any_memory_is_refused,];

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
