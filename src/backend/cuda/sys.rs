//! The interface of NVIDIA's driver, as far as it is used here.
//!
//! Source: `cuda.h` of CUDA 12.9 and 13.5, whose names these are. Entry points are looked up by the
//! names that the library exports, which end in `_v2` where the header redirects the plain name.
//! Those without the suffix `_ptsz` take the handle 0 as the legacy default stream.

use super::super::mapped::entry_points;
use core::ffi::{c_char, c_int, c_uint, c_void};

/// `CUresult`.
pub(super) mod result {
    pub(in super::super) const SUCCESS: i32 = 0;
    pub(in super::super) const INVALID_VALUE: i32 = 1;
    pub(in super::super) const NOT_READY: i32 = 600;
    pub(in super::super) const STREAM_CAPTURE_IMPLICIT: i32 = 906;
    /// Those of which `cuda.h` says that the context or process can do no more work: it is left "in
    /// an inconsistent state and any further CUDA work will return the same error", is destroyed, or
    /// has an uncorrectable memory or link error.
    pub(in super::super) const STICKY: [i64; 18] = [
        4,   // DEINITIALIZED
        214, // ECC_UNCORRECTABLE
        220, // NVLINK_UNCORRECTABLE
        226, // CONTAINED
        700, // ILLEGAL_ADDRESS
        702, // LAUNCH_TIMEOUT
        709, // CONTEXT_IS_DESTROYED
        710, // ASSERT
        714, // HARDWARE_STACK_ERROR
        715, // ILLEGAL_INSTRUCTION
        716, // MISALIGNED_ADDRESS
        717, // INVALID_ADDRESS_SPACE
        718, // INVALID_PC
        719, // LAUNCH_FAILED
        721, // TENSOR_MEMORY_LEAK
        810, // MPS_CLIENT_TERMINATED
        911, // EXTERNAL_DEVICE
        999, // UNKNOWN
    ];
}

/// `CUdevice_attribute`.
pub(super) mod attribute {
    pub(in super::super) const TCC_DRIVER: i32 = 35;
    pub(in super::super) const CAN_USE_STREAM_MEM_OPS_V1: i32 = 92;
    pub(in super::super) const CAN_USE_64_BIT_STREAM_MEM_OPS_V1: i32 = 93;
    pub(in super::super) const CAN_USE_64_BIT_STREAM_MEM_OPS: i32 = 122;
}

/// `CU_MEMHOSTALLOC_PORTABLE`.
pub(super) const MEMHOSTALLOC_PORTABLE: c_uint = 0x01;
/// `CU_MEMHOSTALLOC_DEVICEMAP`.
pub(super) const MEMHOSTALLOC_DEVICEMAP: c_uint = 0x02;
/// `CU_STREAM_NON_BLOCKING`.
pub(super) const STREAM_NON_BLOCKING: c_uint = 0x1;
/// `CU_EVENT_DISABLE_TIMING`.
pub(super) const EVENT_DISABLE_TIMING: c_uint = 0x2;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
pub(super) const CAPTURE_MODE_RELAXED: c_int = 2;
/// `CU_STREAM_CAPTURE_STATUS_NONE`.
pub(super) const CAPTURE_STATUS_NONE: c_int = 0;
/// `CU_STREAM_WRITE_VALUE_DEFAULT`: the store comes after all memory operations before it.
pub(super) const WRITE_VALUE_DEFAULT: c_uint = 0;

/// `CUstreamBatchMemOpType`.
pub(super) const MEM_OP_WRITE_VALUE_32: c_uint = 2;
/// `CUstreamBatchMemOpType`.
pub(super) const MEM_OP_WRITE_VALUE_64: c_uint = 5;

/// `CUstreamBatchMemOpParams`, the member `writeValue` of the union, which is six 64-bit words long.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct WriteValue {
    pub(super) operation: c_uint,
    pub(super) address: u64,
    /// The union of `value` and `value64`, little-endian.
    pub(super) value: u64,
    pub(super) flags: c_uint,
    pub(super) alias: u64,
    pub(super) rest: u64,
}

const _: () = assert!(size_of::<WriteValue>() == 48);
const _: () = assert!(core::mem::offset_of!(WriteValue, address) == 8);
const _: () = assert!(core::mem::offset_of!(WriteValue, value) == 16);
const _: () = assert!(core::mem::offset_of!(WriteValue, flags) == 24);
const _: () = assert!(core::mem::offset_of!(WriteValue, alias) == 32);

/// `CUcontext`, `CUstream`, `CUevent`.
pub(super) type Handle = *mut c_void;

/// `CUhostFn`.
pub(super) type HostFn = extern "C" fn(*mut c_void);

entry_points! {
    /// The entry points.
    struct EntryPoints;
    required {
        fn cuInit(c_uint);
        fn cuDriverGetVersion(*mut c_int);
        fn cuGetErrorName(c_int, *mut *const c_char);
        fn cuDeviceGetCount(*mut c_int);
        fn cuDeviceGet(*mut c_int, c_int);
        fn cuDeviceGetName(*mut c_char, c_int, c_int);
        fn cuDeviceGetAttribute(*mut c_int, c_int, c_int);
        fn cuDevicePrimaryCtxRetain(*mut Handle, c_int);
        fn cuDevicePrimaryCtxRelease_v2(c_int);
        fn cuCtxGetCurrent(*mut Handle);
        fn cuCtxPushCurrent_v2(Handle);
        fn cuCtxPopCurrent_v2(*mut Handle);
        fn cuCtxGetDevice(*mut c_int);
        fn cuCtxSynchronize();
        fn cuThreadExchangeStreamCaptureMode(*mut c_int);
        fn cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
        fn cuMemHostGetDevicePointer_v2(*mut u64, *mut c_void, c_uint);
        fn cuMemFreeHost(*mut c_void);
        fn cuMemAlloc_v2(*mut u64, usize);
        fn cuMemFree_v2(u64);
        fn cuMemcpyDtoHAsync_v2(*mut c_void, u64, usize, Handle);
        fn cuMemcpyHtoDAsync_v2(u64, *const c_void, usize, Handle);
        fn cuMemsetD8Async(u64, u8, usize, Handle);
        fn cuStreamCreate(*mut Handle, c_uint);
        fn cuStreamDestroy_v2(Handle);
        fn cuStreamGetCtx(Handle, *mut Handle);
        fn cuStreamIsCapturing(Handle, *mut c_int);
        fn cuStreamQuery(Handle);
        fn cuStreamSynchronize(Handle);
        fn cuEventCreate(*mut Handle, c_uint);
        fn cuEventDestroy_v2(Handle);
        fn cuEventRecord(Handle, Handle);
        fn cuEventQuery(Handle);
        fn cuEventSynchronize(Handle);
        fn cuLaunchHostFunc(Handle, HostFn, *mut c_void);
    }
    optional {
        fn cuStreamBatchMemOp(Handle, c_uint, *mut WriteValue, c_uint);
        fn cuStreamBatchMemOp_v2(Handle, c_uint, *mut WriteValue, c_uint);
        fn cuStreamWriteValue32(Handle, u64, u32, c_uint);
        fn cuStreamWriteValue32_v2(Handle, u64, u32, c_uint);
        fn cuStreamWriteValue64(Handle, u64, u64, c_uint);
        fn cuStreamWriteValue64_v2(Handle, u64, u64, c_uint);
    }
}
