//! A program whose tensors are candle's: the stream that its kernels run on is awaited through this
//! library. candle links the driver and takes the version of the toolkit that compiles its kernels.

use candle_core::CudaDevice;
use gpu_async_reactor::backend::cuda::{CudaDriver, CudaStream};

/// The stream of `device`, as a stream of ours.
pub fn awaited(device: &CudaDevice) -> gpu_async_reactor::Result<CudaStream> {
    CudaDriver::load()?.device(0)?.stream_of_cudarc(device.cuda_stream(), None)
}
