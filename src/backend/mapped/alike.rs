//! The entry points that the vendors' interfaces have alike: the same arguments and the same statuses
//! under another name. So what is made of them is written once, in [`Calls`](super::calls::Calls).
//!
//! Sources: `cuda.h` and `hip_runtime_api.h`, under the names that each backend gives. Device addresses are
//! 64-bit numbers in the one and pointers in the other, which are passed alike on every system that
//! both exist for.

use super::library::Library;
use crate::core::error::Result;
use core::ffi::{c_int, c_uint, c_void};

/// A stream or an event, as the driver takes it.
pub type Handle = *mut c_void;

/// `CUDA_SUCCESS`, `hipSuccess`.
pub const SUCCESS: i32 = 0;
/// `CUDA_ERROR_INVALID_VALUE`, `hipErrorInvalidValue`.
pub const INVALID_VALUE: i32 = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`, `hipErrorOutOfMemory`.
pub const OUT_OF_MEMORY: i32 = 2;
/// `CUDA_ERROR_NOT_READY`, `hipErrorNotReady`: pending.
pub const NOT_READY: i32 = 600;
/// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`, `hipErrorStreamCaptureImplicit`: the legacy stream, while a stream
/// is captured that waits for it.
pub const STREAM_CAPTURE_IMPLICIT: i32 = 906;
/// The statuses that say that a capture is in the way: `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` (not
/// permitted while a stream captures), `.._INVALIDATED`, `.._IMPLICIT` and `CUDA_ERROR_CAPTURED_EVENT`, and
/// the same numbers of `hipError_t`. They say nothing about the device, and none of them stays.
pub const CAPTURE_STATUSES: [i32; 4] = [900, 901, STREAM_CAPTURE_IMPLICIT, CAPTURED_EVENT];
/// `CUDA_ERROR_CAPTURED_EVENT`, `hipErrorCapturedEvent`.
pub const CAPTURED_EVENT: i32 = 907;
/// `CU_STREAM_NON_BLOCKING`, `hipStreamNonBlocking`.
pub const STREAM_NON_BLOCKING: c_uint = 0x1;
/// `CU_EVENT_BLOCKING_SYNC`, `hipEventBlockingSync`: a blocking wait for the event sleeps.
pub const EVENT_BLOCKING_SYNC: c_uint = 0x1;
/// `CU_EVENT_DISABLE_TIMING`, `hipEventDisableTiming`.
pub const EVENT_DISABLE_TIMING: c_uint = 0x2;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`, `hipStreamCaptureModeRelaxed`.
pub const CAPTURE_MODE_RELAXED: c_int = 2;
/// `CU_STREAM_CAPTURE_STATUS_NONE`, `hipStreamCaptureStatusNone`.
pub const CAPTURE_STATUS_NONE: c_int = 0;

/// An entry point, and what it is called in messages.
#[derive(Clone, Copy)]
pub struct Entry<F> {
    pub call: F,
    pub name: &'static str,
}

macro_rules! alike {
    ($(fn $entry:ident($($arg:ty),*);)*) => {
        /// What a vendor's library exports them as.
        pub struct Names {
            $(pub $entry: &'static str,)*
        }

        /// The entry points.
        pub struct Alike {
            $(pub $entry: Entry<unsafe extern "system" fn($($arg),*) -> i32>,)*
        }

        impl Alike {
            /// Finds every one.
            ///
            /// # Errors
            ///
            /// [`SymbolMissing`](crate::ErrorCode::SymbolMissing) for the first that is not there.
            ///
            /// # Safety
            ///
            /// `library` has the vendor's interface, and `names` are its names.
            pub unsafe fn load(library: &Library, names: &Names) -> Result<Self> {
                Ok(Alike {
                    $($entry: Entry {
                        // SAFETY: the type is that of the vendor's header, by this function's contract.
                        call: unsafe { library.required(names.$entry) }?,
                        // Without the suffix by which a library tells its versions of an entry point.
                        name: names.$entry.strip_suffix("_v2").unwrap_or(names.$entry),
                    },)*
                })
            }
        }
    };
}

alike! {
    fn exchange_capture_mode(*mut c_int);
    fn host_allocate(*mut *mut c_void, usize, c_uint);
    fn host_device_pointer(*mut u64, *mut c_void, c_uint);
    fn host_free(*mut c_void);
    fn device_allocate(*mut u64, usize);
    fn device_free(u64);
    fn copy_to_host(*mut c_void, u64, usize, Handle);
    fn copy_to_device(u64, *const c_void, usize, Handle);
    fn stream_create(*mut Handle, c_uint);
    fn stream_destroy(Handle);
    fn stream_is_capturing(Handle, *mut c_int);
    fn stream_query(Handle);
    fn stream_wait_event(Handle, Handle, c_uint);
    fn event_create(*mut Handle, c_uint);
    fn event_destroy(Handle);
    fn event_record(Handle, Handle);
    fn event_query(Handle);
    fn event_synchronize(Handle);
}
