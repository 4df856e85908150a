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
use alloc::sync::Arc;

/// Keeps the stream.
struct Owner(Arc<cudarc::driver::CudaStream>);

// SAFETY: a `cudarc` stream is destroyed when its last `Arc` is dropped, and its handle does not
// change.
unsafe impl StreamOwner for Owner {
    fn handle(&self) -> StreamHandle {
        StreamHandle::from_raw(self.0.cu_stream().cast())
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
        self.stream_of(Owner(stream), doorbell)
    }
}
