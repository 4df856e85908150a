//! Streams of the crate `cudarc`, kept by their owner.
//!
//! `cudarc` opens the driver by itself; both share the process's one primary context of a device,
//! since its `CudaContext` is that.

use super::super::mapped::{StreamHandle, StreamOwner};
use super::{CudaDevice, CudaStream};
use crate::core::doorbell::Doorbell;
use crate::core::error::Result;
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
    /// [`ForeignContext`](crate::ErrorCode::ForeignContext) where the stream is one of another device.
    pub fn stream_of_cudarc(
        &self,
        stream: Arc<cudarc::driver::CudaStream>,
        doorbell: Option<&Doorbell>,
    ) -> Result<CudaStream> {
        self.stream_of(Owner(stream), doorbell)
    }
}
