//! Streams of the crate `cudarc`, kept by their owner.
//!
//! `cudarc` opens the driver by itself; both share the process's one primary context of a device,
//! since its `CudaContext` is that.
//!
//! The program chooses the CUDA version of `cudarc`, which that crate cannot be built without, and how
//! the driver is linked. Where it says nothing of the latter, the driver is opened at run time:
//!
//! ```toml
//! gpu-async-reactor = { version = "0.1", features = ["cudarc"] }
//! cudarc = { version = "0.19.10", default-features = false, features = ["std", "driver", "cuda-12080"] }
//! ```
//!
//! `testing/consumers` has such programs, one of them beside candle; `scripts/check-cudarc` checks them.

use super::super::mapped::{StreamHandle, StreamOwner};
use super::{CudaDevice, CudaStream};
use crate::core::doorbell::Doorbell;
use crate::core::error::{Error, ErrorCode, Result};
use crate::exit;
use crate::fork::Birth;
use alloc::sync::Arc;
use core::mem::ManuallyDrop;
use core::ptr;
use cudarc::driver::result::ctx as context;

/// Keeps the stream.
struct Owner {
    stream: ManuallyDrop<Arc<cudarc::driver::CudaStream>>,
    birth: Birth,
}

impl Drop for Owner {
    /// The last handle destroys the stream, and `cudarc` makes its context current for that and leaves it
    /// so. The thread may be an executor's or a watcher's, which has another one or none. In a forked child,
    /// and while the process is exiting, the stream stays.
    fn drop(&mut self) {
        let Ok(_calling) = exit::calling(self.birth, "drop a stream") else { return };
        let before = context::get_current();
        // SAFETY: dropped once, here, and nothing uses it after this destructor.
        unsafe { ManuallyDrop::drop(&mut self.stream) };
        if let Ok(before) = before {
            // SAFETY: it was current on this thread, and a stream's end destroys no other context. What it
            // answers is of no use here: a lost context is what every other call answers too.
            let _ = unsafe { context::set_current(before.unwrap_or(ptr::null_mut())) };
        }
    }
}

// SAFETY: a `cudarc` stream is destroyed when its last `Arc` is dropped, and its handle does not
// change.
unsafe impl StreamOwner for Owner {
    fn handle(&self) -> StreamHandle {
        StreamHandle::from_raw(self.stream.cu_stream().cast())
    }
}

impl CudaDevice {
    /// A stream of the crate `cudarc`, which is kept while the returned stream lives.
    ///
    /// # Errors
    ///
    /// As [`stream_of`](super::super::mapped::Device::stream_of):
    /// [`ForeignContext`](ErrorCode::ForeignContext) where the stream is one of another device, a default
    /// stream too.
    pub fn stream_of_cudarc(
        &self,
        stream: Arc<cudarc::driver::CudaStream>,
        doorbell: Option<&Doorbell>,
    ) -> Result<CudaStream> {
        // By the owner: the handles of the default streams are the same in every context.
        let own = self.raw_context().raw.as_ptr();
        if stream.context().cu_ctx().cast() != own {
            return Err(Error::new(ErrorCode::ForeignContext, ["stream", "stream"]));
        }
        let (stream, birth) = (ManuallyDrop::new(stream), Birth::here());
        self.stream_of(Owner { stream, birth }, doorbell)
    }
}
