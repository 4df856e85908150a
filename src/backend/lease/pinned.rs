//! Ordinary memory as a pinned buffer: what a device of this process's own threads copies to.

use super::buffer::DeviceBuffer;
use alloc::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use core::{fmt, ptr::NonNull};

/// Page-aligned memory of this process, all zero when made.
///
/// Pinned for the software device alone, whose workers are threads of this process. Backends of other
/// devices have one of their own, of memory that the device can reach.
pub struct PinnedBuffer {
    first: NonNull<u8>,
    bytes: usize,
}

/// What the memory is aligned to: the smallest page of the systems there are.
const ALIGN: usize = 4096;

impl PinnedBuffer {
    /// `bytes` of memory, all zero. One allocation, of at least one byte.
    ///
    /// # Panics
    ///
    /// Where `bytes` is more than half the address space. Without memory the process ends, as
    /// for any allocation.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let layout = layout(bytes);
        // SAFETY: the layout is at least one byte long.
        let first = unsafe { alloc_zeroed(layout) };
        let Some(first) = NonNull::new(first) else { handle_alloc_error(layout) };
        PinnedBuffer { first, bytes }
    }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes.max(1), ALIGN).expect("a buffer fits into the address space")
}

// SAFETY: the memory is the value's own, allocated by `new` and freed by `drop` alone, and does not
// move with the value. It is zeroed, hence initialised. References come from this trait's own
// methods only, which borrow the value.
unsafe impl DeviceBuffer for PinnedBuffer {
    fn address(&self) -> NonNull<u8> {
        self.first
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

// SAFETY: the value owns plain memory, which any thread may use and free.
unsafe impl Send for PinnedBuffer {}
// SAFETY: a shared borrow only reads.
unsafe impl Sync for PinnedBuffer {}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it with this layout, and nobody else frees it.
        unsafe { dealloc(self.first.as_ptr(), layout(self.bytes)) };
    }
}

impl fmt::Debug for PinnedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedBuffer").field("bytes", &self.bytes).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_buffer_is_page_aligned_zero_and_read_as_numbers() {
        let mut buffer = PinnedBuffer::new(4099);
        assert_eq!(buffer.address().addr().get() % ALIGN, 0);
        assert!(buffer.as_slice::<u8>().iter().all(|&byte| byte == 0));
        buffer.as_mut_slice::<u32>()[1] = 7;
        assert_eq!(buffer.as_slice::<u64>()[0].to_ne_bytes()[4..], 7_u32.to_ne_bytes());
        assert_eq!(buffer.as_slice::<u32>().len(), 1024, "three bytes are left out");
        assert_eq!(PinnedBuffer::new(0).as_slice::<f64>(), [] as [f64; 0]);
    }
}
