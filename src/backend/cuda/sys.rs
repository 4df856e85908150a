//! The interface of NVIDIA's driver, as far as it is used here.
//!
//! Source: `cuda.h` of CUDA 12.9 and 13.5, whose names these are. Entry points are looked up by the
//! names that the library exports, which end in `_v2` where the header redirects the plain name.
//! Those without the suffix `_ptsz` take the handle 0 as the legacy default stream.

use super::super::mapped::{Handle, Names, entry_points};
use core::ffi::{c_char, c_int, c_uint, c_void};

/// The numbers of `CUresult` of which `cuda.h` says that the context or process can do no more work: it is
/// left "in an inconsistent state and any further CUDA work will return the same error", is destroyed, or
/// has an uncorrectable memory or link error.
pub(super) const STICKY: [i64; 18] = [
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

/// The entry points that HIP has alike, by their names here.
pub(super) const NAMES: Names = Names {
    exchange_capture_mode: "cuThreadExchangeStreamCaptureMode",
    host_allocate: "cuMemHostAlloc",
    host_device_pointer: "cuMemHostGetDevicePointer_v2",
    host_free: "cuMemFreeHost",
    device_allocate: "cuMemAlloc_v2",
    device_free: "cuMemFree_v2",
    copy_to_host: "cuMemcpyDtoHAsync_v2",
    copy_to_device: "cuMemcpyHtoDAsync_v2",
    stream_create: "cuStreamCreate",
    stream_destroy: "cuStreamDestroy_v2",
    stream_is_capturing: "cuStreamIsCapturing",
    stream_query: "cuStreamQuery",
    stream_wait_event: "cuStreamWaitEvent",
    event_create: "cuEventCreate",
    event_destroy: "cuEventDestroy_v2",
    event_record: "cuEventRecord",
    event_query: "cuEventQuery",
    event_synchronize: "cuEventSynchronize",
};

/// `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
pub(super) const CONTEXT_IS_DESTROYED: i64 = 709;
/// `CUDA_ERROR_NOT_SUPPORTED`.
pub(super) const NOT_SUPPORTED: i32 = 801;

/// What a status of `cuInit` means for who runs the program, and what to do.
pub(super) fn advice(status: i32) -> Option<&'static str> {
    Some(match status {
        34 => {
            "this is the toolkit's stub library, which is for linking only; take its folder out of the \
             loader's path, so that the driver's own library is found"
        }
        802 => {
            "the system is not ready yet; where the GPUs are behind NVSwitch, the fabric manager must run, of \
             the driver's version"
        }
        803 => {
            "the library and the kernel's driver are of different versions; load the matching driver, or \
             start the machine again after an update"
        }
        804 => {
            "the compatibility package does not serve for this GPU; take its folder out of the loader's \
             path, or use a newer driver"
        }
        _ => return None,
    })
}

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
        fn cuMemsetD8Async(u64, u8, usize, Handle);
        fn cuStreamGetCtx(Handle, *mut Handle);
        fn cuLaunchHostFunc(Handle, HostFn, *mut c_void);
    }
    optional {
        fn cuCtxGetId(Handle, *mut u64);
        fn cuStreamBatchMemOp(Handle, c_uint, *mut WriteValue, c_uint);
        fn cuStreamBatchMemOp_v2(Handle, c_uint, *mut WriteValue, c_uint);
        fn cuStreamWriteValue32(Handle, u64, u32, c_uint);
        fn cuStreamWriteValue32_v2(Handle, u64, u32, c_uint);
        fn cuStreamWriteValue64(Handle, u64, u64, c_uint);
        fn cuStreamWriteValue64_v2(Handle, u64, u64, c_uint);
    }
}
