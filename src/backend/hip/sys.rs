//! The interface of AMD's HIP runtime, as far as it is used here.
//!
//! Source: `hip_runtime_api.h` of HIP 5.7, whose names these are. The runtime's entry points without
//! the suffix `_spt` take the handle 0 as the legacy default stream.

use super::super::mapped::entry_points;
use core::ffi::{c_char, c_int, c_uint, c_void};

/// `hipError_t`.
pub(super) mod result {
    pub(in super::super) const SUCCESS: i32 = 0;
    pub(in super::super) const INVALID_VALUE: i32 = 1;
    pub(in super::super) const NOT_READY: i32 = 600;
    pub(in super::super) const STREAM_CAPTURE_IMPLICIT: i32 = 906;
    /// Those that say that the device or the runtime can do no more work.
    pub(in super::super) const STICKY: [i64; 8] = [
        4,   // hipErrorDeinitialized
        214, // hipErrorECCNotCorrectable
        700, // hipErrorIllegalAddress
        702, // hipErrorLaunchTimeOut
        709, // hipErrorContextIsDestroyed
        710, // hipErrorAssert
        719, // hipErrorLaunchFailure
        999, // hipErrorUnknown
    ];
}

/// `hipDeviceAttributeCanUseStreamWaitValue`, the fourteenth of AMD's own.
pub(super) const CAN_USE_STREAM_WAIT_VALUE: c_int = 10_013;

/// `hipHostMallocPortable`.
pub(super) const HOST_MALLOC_PORTABLE: c_uint = 0x1;
/// `hipHostMallocMapped`.
pub(super) const HOST_MALLOC_MAPPED: c_uint = 0x2;
/// `hipHostMallocCoherent`.
pub(super) const HOST_MALLOC_COHERENT: c_uint = 0x4000_0000;
/// `hipStreamNonBlocking`.
pub(super) const STREAM_NON_BLOCKING: c_uint = 0x1;
/// `hipEventDisableTiming`.
pub(super) const EVENT_DISABLE_TIMING: c_uint = 0x2;
/// `hipStreamCaptureModeRelaxed`.
pub(super) const CAPTURE_MODE_RELAXED: c_int = 2;
/// `hipStreamCaptureStatusNone`.
pub(super) const CAPTURE_STATUS_NONE: c_int = 0;

/// `hipStream_t`, `hipEvent_t`.
pub(super) type Handle = *mut c_void;

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
        fn hipDeviceSynchronize();
        fn hipThreadExchangeStreamCaptureMode(*mut c_int);
        fn hipHostMalloc(*mut *mut c_void, usize, c_uint);
        fn hipHostGetDevicePointer(*mut *mut c_void, *mut c_void, c_uint);
        fn hipHostFree(*mut c_void);
        fn hipMalloc(*mut *mut c_void, usize);
        fn hipFree(*mut c_void);
        fn hipMemcpyDtoHAsync(*mut c_void, *mut c_void, usize, Handle);
        fn hipMemcpyHtoDAsync(*mut c_void, *mut c_void, usize, Handle);
        fn hipMemsetAsync(*mut c_void, c_int, usize, Handle);
        fn hipStreamCreateWithFlags(*mut Handle, c_uint);
        fn hipStreamDestroy(Handle);
        fn hipStreamIsCapturing(Handle, *mut c_int);
        fn hipStreamQuery(Handle);
        fn hipStreamSynchronize(Handle);
        fn hipEventCreateWithFlags(*mut Handle, c_uint);
        fn hipEventDestroy(Handle);
        fn hipEventRecord(Handle, Handle);
        fn hipEventQuery(Handle);
        fn hipEventSynchronize(Handle);
    }
    optional {
        fn hipStreamGetDevice(Handle, *mut c_int);
        fn hipLaunchHostFunc(Handle, HostFn, *mut c_void);
        fn hipStreamWriteValue32(Handle, *mut c_void, u32, c_uint);
        fn hipStreamWriteValue64(Handle, *mut c_void, u64, c_uint);
    }
}
