//! Memory that the CPU and the GPU share.

use super::device::{MetalDevice, nil};
use crate::backend::lease::DeviceBuffer;
use crate::core::error::Result;
use crate::fork::Own;
use core::fmt;
use core::ptr::NonNull;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLBuffer, MTLDevice, MTLResourceOptions};

/// A `MTLBuffer` in shared storage, all zero when made: what a lease lends to the GPU, and a copy from
/// the GPU is read back into.
pub struct MetalBuffer {
    raw: Own<Retained<ProtocolObject<dyn MTLBuffer>>>,
    first: NonNull<u8>,
    bytes: usize,
}

impl MetalBuffer {
    /// `bytes` of memory of `device`, all zero.
    ///
    /// # Errors
    ///
    /// A [`Backend`](crate::ErrorCode::Backend) error where Metal makes no buffer, for want of memory or
    /// because it is longer than `maxBufferLength`; [`Forked`](crate::ErrorCode::Forked).
    pub fn new(device: &MetalDevice, bytes: usize) -> Result<Self> {
        let birth = device.birth();
        birth.check("buffer")?;
        let options = MTLResourceOptions::StorageModeShared;
        let raw = device.raw().newBufferWithLength_options(bytes.max(1), options);
        let raw = raw.ok_or_else(|| nil("newBufferWithLength:options:"))?;
        let first = raw.contents().cast::<u8>();
        // SAFETY: `contents` of a buffer in shared storage is its memory, `bytes` long at least, which
        // is this call's own so far.
        unsafe { first.as_ptr().write_bytes(0, bytes) };
        Ok(MetalBuffer { raw: Own::of(birth, raw), first, bytes })
    }

    /// Metal's own, for commands. Taken before a lease, it is what the lease's closure encodes.
    ///
    /// Who lets the GPU, or the CPU by its `contents`, use it while the buffer is not leased, breaks
    /// the promise of [`DeviceBuffer`]: the first is not prevented by types here, as nowhere in
    /// Metal.
    #[must_use]
    pub fn raw(&self) -> Retained<ProtocolObject<dyn MTLBuffer>> {
        (*self.raw).clone()
    }
}

// SAFETY: the memory is the buffer's, which this value retains, stays where it is, and is freed with
// the last reference to it, by this value's destructor or later. `new` has zeroed it. Nothing hands
// out a Rust reference into it but this trait's methods: `raw` gives an object whose `contents` is a raw
// pointer.
unsafe impl DeviceBuffer for MetalBuffer {
    fn address(&self) -> NonNull<u8> {
        self.first
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

// SAFETY: a buffer may be used from any thread ("MTLBuffer"; Metal's resources are not bound to
// one); retaining and releasing are atomic. The memory is plain.
unsafe impl Send for MetalBuffer {}
// SAFETY: as above; a shared borrow only reads, or retains.
unsafe impl Sync for MetalBuffer {}

impl fmt::Debug for MetalBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetalBuffer").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
