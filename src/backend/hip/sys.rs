//! The interface of AMD's HIP runtime, as far as it is used here.
//!
//! Source: `hip_runtime_api.h` of HIP 5.7, whose names these are. The runtime's entry points without
//! the suffix `_spt` take the handle 0 as the legacy default stream.

use super::super::mapped::{Handle, Names, entry_points};
use core::ffi::{c_char, c_int, c_uint, c_void};

/// The numbers of `hipError_t` that say that the device or the runtime can do no more work.
///
/// Not 709 (`hipErrorContextIsDestroyed`): that is what nearly every entry point answers to a stream that is
/// not in this runtime's table.
pub(super) const STICKY: [i64; 7] = [
    4,   // hipErrorDeinitialized
    214, // hipErrorECCNotCorrectable
    700, // hipErrorIllegalAddress
    702, // hipErrorLaunchTimeOut
    710, // hipErrorAssert
    719, // hipErrorLaunchFailure
    999, // hipErrorUnknown
];

/// `hipErrorContextIsDestroyed`.
pub(super) const CONTEXT_IS_DESTROYED: i64 = 709;

/// `hipDeviceAttributeCanUseStreamWaitValue`, the fourteenth of AMD's own.
pub(super) const CAN_USE_STREAM_WAIT_VALUE: c_int = 10_013;

/// `hipHostMallocPortable`.
pub(super) const HOST_MALLOC_PORTABLE: c_uint = 0x1;
/// `hipHostMallocMapped`.
pub(super) const HOST_MALLOC_MAPPED: c_uint = 0x2;
/// `hipHostMallocCoherent`.
pub(super) const HOST_MALLOC_COHERENT: c_uint = 0x4000_0000;

/// The entry points that CUDA has alike, by their names here.
pub(super) const NAMES: Names = Names {
    exchange_capture_mode: "hipThreadExchangeStreamCaptureMode",
    host_allocate: "hipHostMalloc",
    host_device_pointer: "hipHostGetDevicePointer",
    host_free: "hipHostFree",
    device_allocate: "hipMalloc",
    device_free: "hipFree",
    copy_to_host: "hipMemcpyDtoHAsync",
    copy_to_device: "hipMemcpyHtoDAsync",
    stream_create: "hipStreamCreateWithFlags",
    stream_destroy: "hipStreamDestroy",
    stream_is_capturing: "hipStreamIsCapturing",
    stream_query: "hipStreamQuery",
    stream_wait_event: "hipStreamWaitEvent",
    event_create: "hipEventCreateWithFlags",
    event_destroy: "hipEventDestroy",
    event_record: "hipEventRecord",
    event_query: "hipEventQuery",
    event_synchronize: "hipEventSynchronize",
};

/// `hipHostFn_t`.
pub(super) type HostFn = extern "C" fn(*mut c_void);

/// `hipGetErrorName`, which returns no status.
pub(super) type ErrorName = unsafe extern "system" fn(c_int) -> *const c_char;

entry_points! {
    /// The entry points.
    struct EntryPoints;
    required {
        fn hipInit(c_uint);
        fn hipRuntimeGetVersion(*mut c_int);
        fn hipGetDeviceCount(*mut c_int);
        fn hipGetDevice(*mut c_int);
        fn hipSetDevice(c_int);
        fn hipDeviceGetAttribute(*mut c_int, c_int, c_int);
        fn hipMemsetAsync(*mut c_void, c_int, usize, Handle);
    }
    optional {
        fn hipPeekAtLastError();
        fn hipGetLastError();
        fn hipStreamGetDevice(Handle, *mut c_int);
        fn hipLaunchHostFunc(Handle, HostFn, *mut c_void);
        fn hipStreamWriteValue32(Handle, *mut c_void, u32, c_uint);
        fn hipStreamWriteValue64(Handle, *mut c_void, u64, c_uint);
    }
}
