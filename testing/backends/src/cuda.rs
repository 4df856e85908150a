//! NVIDIA, as the tests need it.

use crate::{Call, Vendor, handle_of, number_of};
use driver_core::{Control, foreign_call};
use gpu_async_reactor::Result;
use gpu_async_reactor::backend::cuda::{Cuda, CudaDriver};
use gpu_async_reactor::backend::mapped::{Device, StreamHandle};
use libloading::Library;

/// NVIDIA.
pub struct OfCuda;

impl Vendor for OfCuda {
    type Interface = Cuda;
    const LIBRARY: &'static str = "cuda_driver";
    const FAULT: (i32, &'static str) = (700, "CUDA_ERROR_ILLEGAL_ADDRESS");
    const REQUIRED: &'static [&'static str] = &[
        "cuInit",
        "cuDriverGetVersion",
        "cuGetErrorName",
        "cuDeviceGetCount",
        "cuDeviceGet",
        "cuDeviceGetName",
        "cuDeviceGetAttribute",
        "cuDevicePrimaryCtxRetain",
        "cuDevicePrimaryCtxRelease_v2",
        "cuCtxGetCurrent",
        "cuCtxPushCurrent_v2",
        "cuCtxPopCurrent_v2",
        "cuCtxGetDevice",
        "cuThreadExchangeStreamCaptureMode",
        "cuMemHostAlloc",
        "cuMemHostGetDevicePointer_v2",
        "cuMemFreeHost",
        "cuMemAlloc_v2",
        "cuMemFree_v2",
        "cuMemcpyDtoHAsync_v2",
        "cuMemcpyHtoDAsync_v2",
        "cuMemsetD8Async",
        "cuStreamCreate",
        "cuStreamDestroy_v2",
        "cuStreamGetCtx",
        "cuStreamIsCapturing",
        "cuStreamQuery",
        "cuStreamWaitEvent",
        "cuEventCreate",
        "cuEventDestroy_v2",
        "cuEventRecord",
        "cuEventQuery",
        "cuEventSynchronize",
        "cuLaunchHostFunc",
    ];

    fn device(driver: &CudaDriver, ordinal: u32) -> Result<Device<Cuda>> {
        driver.device(ordinal)
    }

    fn entry(call: Call) -> &'static str {
        match call {
            Call::Settle => "cuCtxSynchronize",
            Call::Free => "cuMemFreeHost",
            Call::QueryStream => "cuStreamQuery",
            Call::QueryEvent => "cuEventQuery",
            Call::Store => "cuStreamBatchMemOp_v2",
            Call::Launch => "cuLaunchHostFunc",
            Call::CreateEvent => "cuEventCreate",
            Call::CreateStream => "cuStreamCreate",
            Call::Allocate => "cuMemHostAlloc",
            Call::Record => "cuEventRecord",
            Call::SynchronizeEvent => "cuEventSynchronize",
            Call::Enter => "cuCtxGetCurrent",
        }
    }

    const PREFIX: &'static str = "cu";

    fn device_memory(control: &Control, bytes: usize) -> u64 {
        // It goes with its context, so that somebody must hold that.
        let (mut context, mut address) = (0u64, 0u64);
        let retained = foreign_call!(control.entry_points(), cuDevicePrimaryCtxRetain(
            &raw mut context => *mut u64, 0 => i32) -> i32);
        assert_eq!(retained, 0);
        in_primary(
            control,
            |library| foreign_call!(library, cuMemAlloc_v2(&raw mut address => *mut u64, bytes => usize) -> i32),
        );
        address
    }

    fn begin_capture(control: &Control, stream: StreamHandle) {
        in_primary(
            control,
            |library| foreign_call!(library, cuStreamBeginCapture_v2(number_of(stream) => u64, 0 => i32) -> i32),
        );
    }

    fn end_capture(control: &Control, stream: StreamHandle) -> bool {
        let mut graph = 0u64;
        in_primary(control, |library| {
            foreign_call!(library, cuStreamEndCapture(
                number_of(stream) => u64, &raw mut graph => *mut u64) -> i32)
        });
        graph != 0
    }

    fn blocking_stream(control: &Control) -> StreamHandle {
        let mut stream = 0u64;
        in_primary(
            control,
            |library| foreign_call!(library, cuStreamCreate(&raw mut stream => *mut u64, 0 => u32) -> i32),
        );
        handle_of(stream)
    }

    fn destroy_stream(control: &Control, stream: StreamHandle) {
        in_primary(
            control,
            |library| foreign_call!(library, cuStreamDestroy_v2(number_of(stream) => u64) -> i32),
        );
    }

    fn go_elsewhere(control: &Control) {
        // No context is current to a new thread.
        let set = foreign_call!(control.entry_points(), cuCtxSetCurrent(0 => u64) -> i32);
        assert_eq!(set, 0);
    }

    fn fill(control: &Control, stream: StreamHandle, to: u64, value: u8, bytes: usize) {
        in_primary(control, |library| {
            foreign_call!(library, cuMemsetD8Async(
                to => u64, value => u8, bytes => usize, number_of(stream) => u64) -> i32)
        });
    }
}

/// Makes a call of CUDA's driver in the primary context of device 0.
fn in_primary(control: &Control, call: impl FnOnce(&Library) -> i32) {
    let library = control.entry_points();
    let mut context = 0u64;
    let retained = foreign_call!(library, cuDevicePrimaryCtxRetain(
        &raw mut context => *mut u64, 0 => i32) -> i32);
    let pushed = foreign_call!(library, cuCtxPushCurrent_v2(context => u64) -> i32);
    let called = call(library);
    let popped = foreign_call!(library, cuCtxPopCurrent_v2(&raw mut context => *mut u64) -> i32);
    let released = foreign_call!(library, cuDevicePrimaryCtxRelease_v2(0 => i32) -> i32);
    assert_eq!([retained, pushed, called, popped, released], [0; 5]);
}
