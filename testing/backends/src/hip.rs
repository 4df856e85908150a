//! AMD, as the tests need it.

use crate::{Call, Vendor, handle_of, number_of};
use driver_core::{Control, foreign_call};
use gpu_async_reactor::Result;
use gpu_async_reactor::backend::hip::{Hip, HipDriver};
use gpu_async_reactor::backend::mapped::{Device, StreamHandle};

/// AMD.
pub struct OfHip;

impl Vendor for OfHip {
    type Interface = Hip;
    const LIBRARY: &'static str = "hip_driver";
    const FAULT: (i32, &'static str) = (700, "hipErrorIllegalAddress");
    const REQUIRED: &'static [&'static str] = &[
        "hipInit",
        "hipRuntimeGetVersion",
        "hipGetErrorName",
        "hipGetDeviceCount",
        "hipGetDevice",
        "hipSetDevice",
        "hipDeviceGetAttribute",
        "hipThreadExchangeStreamCaptureMode",
        "hipHostMalloc",
        "hipHostGetDevicePointer",
        "hipHostFree",
        "hipMalloc",
        "hipFree",
        "hipMemcpyDtoHAsync",
        "hipMemcpyHtoDAsync",
        "hipMemsetAsync",
        "hipStreamCreateWithFlags",
        "hipStreamDestroy",
        "hipStreamIsCapturing",
        "hipStreamQuery",
        "hipStreamWaitEvent",
        "hipEventCreateWithFlags",
        "hipEventDestroy",
        "hipEventRecord",
        "hipEventQuery",
        "hipEventSynchronize",
    ];

    fn device(driver: &HipDriver, ordinal: u32) -> Result<Device<Hip>> {
        driver.device(ordinal)
    }

    fn entry(call: Call) -> &'static str {
        match call {
            Call::Settle => "hipDeviceSynchronize",
            Call::Free => "hipHostFree",
            Call::QueryStream => "hipStreamQuery",
            Call::QueryEvent => "hipEventQuery",
            Call::Store => "hipStreamWriteValue64",
            Call::Launch => "hipLaunchHostFunc",
            Call::CreateEvent => "hipEventCreateWithFlags",
            Call::CreateStream => "hipStreamCreateWithFlags",
            Call::Allocate => "hipHostMalloc",
            Call::Record => "hipEventRecord",
            Call::SynchronizeEvent => "hipEventSynchronize",
            Call::Enter => "hipGetDevice",
        }
    }

    const PREFIX: &'static str = "hip";

    fn device_memory(control: &Control, bytes: usize) -> u64 {
        let mut address = 0u64;
        let allocated = foreign_call!(control.entry_points(), hipMalloc(
            &raw mut address => *mut u64, bytes => usize) -> i32);
        assert_eq!(allocated, 0);
        address
    }

    fn begin_capture(control: &Control, stream: StreamHandle) {
        let begun = foreign_call!(control.entry_points(), hipStreamBeginCapture(
            number_of(stream) => u64, 0 => i32) -> i32);
        assert_eq!(begun, 0);
    }

    fn end_capture(control: &Control, stream: StreamHandle) -> bool {
        let mut graph = 0u64;
        let ended = foreign_call!(control.entry_points(), hipStreamEndCapture(
            number_of(stream) => u64, &raw mut graph => *mut u64) -> i32);
        ended == 0 && graph != 0
    }

    fn blocking_stream(control: &Control) -> StreamHandle {
        let mut stream = 0u64;
        let made = foreign_call!(control.entry_points(), hipStreamCreateWithFlags(
            &raw mut stream => *mut u64, 0 => u32) -> i32);
        assert_eq!(made, 0);
        handle_of(stream)
    }

    fn destroy_stream(control: &Control, stream: StreamHandle) {
        let destroyed = foreign_call!(control.entry_points(), hipStreamDestroy(
            number_of(stream) => u64) -> i32);
        assert_eq!(destroyed, 0);
    }

    fn go_elsewhere(control: &Control) {
        control.devices(2);
        let set = foreign_call!(control.entry_points(), hipSetDevice(1 => i32) -> i32);
        assert_eq!(set, 0);
    }

    fn fill(control: &Control, stream: StreamHandle, to: u64, value: u8, bytes: usize) {
        let filled = foreign_call!(control.entry_points(), hipMemsetAsync(
            to => u64, i32::from(value) => i32, bytes => usize, number_of(stream) => u64) -> i32);
        assert_eq!(filled, 0);
    }
}
