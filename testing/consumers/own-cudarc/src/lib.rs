//! A program with its own dependency on `cudarc`: it chose the CUDA version and the way of linking,
//! and awaits a stream of that crate through this library.

use gpu_async_reactor::backend::cuda::{CudaDriver, CudaStream};
use std::sync::Arc;

// The version is the program's own: nothing that the library asks of `cudarc` moves it.
#[cfg(feature = "cuda-12080")]
const _: () = assert!(cudarc::driver::sys::CUDA_VERSION == 12080);
#[cfg(feature = "cuda-13000")]
const _: () = assert!(cudarc::driver::sys::CUDA_VERSION == 13000);

/// A stream of theirs, as a stream of ours.
pub fn awaited(stream: Arc<cudarc::driver::CudaStream>) -> gpu_async_reactor::Result<CudaStream> {
    CudaDriver::load()?.device(0)?.stream_of_cudarc(stream, None)
}
