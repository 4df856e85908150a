//! AMD: streams of the HIP runtime.
//!
//! The runtime is opened at run time by its name; nothing is linked. A [`HipDevice`] is a device; the
//! runtime has one context for each, which lives as long as the process. A [`HipStream`] is a stream
//! that a port can wait for. What this backend shares with `cuda` is in [`mapped`](super::mapped).
//!
//! # Sources
//!
//! The HIP runtime API's pages "Stream Memory Operations", "Stream Management", "Event Management", "Memory
//! Management" and "Graph Management", `hip_runtime_api.h` of 5.7, and the source of AMD's runtime
//! (`hipamd/src`) of ROCm 5.6 to 7.1.
//!
//! # Faults
//!
//! What a program sees of a kernel that faults depends on the version:
//!
//! | ROCm | a GPU memory fault |
//! |---|---|
//! | 5.x, 6.x | ends the process: the runtime's fault handler calls `abort()`. No wait ends, no error arrives, no destructor runs. What must survive belongs into another process. |
//! | 7.x with `HIP_SKIP_ABORT_ON_GPU_ERROR` (on by default where it is known) | every call answers the error. Each wait ends with it, once; leased buffers are leaked and counted; the device stays unusable for the process. |
//!
//! After such an error a program closes its device, which leaks and counts what cannot be freed, and goes on
//! in a new process; [`device`](Driver::device) opens the device anew, which works only if the runtime does.
//! The status 709 (`hipErrorContextIsDestroyed`) is no fault here: it is what the runtime answers to a stream
//! that is not in its table. A stream that was destroyed, or is one of another copy of the runtime, answers
//! it until 6.x; 7.x follows the handle as a pointer, and crashes.
//!
//! # One runtime
//!
//! A runtime that is already in the process is the one that is used, whatever else is installed: streams of
//! one copy mean nothing to another. [`library`](Driver::library) tells the name.
//!
//! # Default streams
//!
//! [`query`](crate::DeviceStream::query) of the null stream has the runtime queue a marker behind the work of
//! all blocking streams, each time. While a mark of the stream is pending its event answers instead, which
//! queues nothing; so a wait for a mark (`spin`, `flag`, or any plan at a ticket) costs no markers, and a
//! `poll` of everything queued costs one for each look.
//!
//! # The last error
//!
//! Until 6.x every call of the runtime writes the thread's last error, success included: a task that polls
//! between a program's launch and its `hipGetLastError` hides the launch's error. Check the status of the
//! launch itself. From 7.x on only failures are written; one that a call of this backend leaves is forgotten
//! again where the thread had none before.
//!
//! # Resets
//!
//! While a device is open nobody resets it (`hipDeviceReset`): the runtime frees the memory of its lines under
//! those who look at them, and nothing tells this backend.
//!
//! # Memory
//!
//! Lines lie in memory that was allocated as coherent by its own flag (`hipHostMallocCoherent`):
//! without it, the environment decides (`HIP_HOST_COHERENT`).
//!
//! # Streams of another device
//!
//! Are refused with [`ForeignContext`](crate::ErrorCode::ForeignContext), where the runtime can tell
//! (`hipStreamGetDevice`, from HIP 5.6 on). Before it, the program must give each device its own.
//!
//! # Captures and forks
//!
//! As in the backend for CUDA: calls are made in the thread's relaxed mode, a captured stream is
//! pending, what would be recorded is refused, and a forked child gets
//! [`Forked`](crate::ErrorCode::Forked).
//!
//! Until ROCm 7.1 a status call of an event breaks a capture of the stream that the event was last recorded
//! on. So the status of a mark is not asked while its stream is captured: the mark is pending, and a blocking
//! wait for it is refused with [`Captured`](crate::ErrorCode::Captured). Waits go on when the capture has ended.
//! Where the word of a mark is there and the capture goes on for 5 s more, the wait ends with that error, since
//! its thread may be the one that would end the capture; it can be waited for again.
//!
//! The same events read a stream that was destroyed. So a stream that the program lends by its raw handle hands
//! its last mark over to a stream of this crate's when the last of it is dropped, by two calls.

mod interface;
mod sys;

pub use interface::Hip;

use super::mapped::{Calls, Device, Driver, Ownership, PinnedBuffer, Stream};
use crate::core::error::{Error, ErrorCode, Result};
use core::ffi::c_int;
use interface::RawDevice;

/// The HIP runtime.
pub type HipDriver = Driver<Hip>;
/// A device of the HIP runtime.
pub type HipDevice = Device<Hip>;
/// A stream of the HIP runtime.
pub type HipStream = Stream<Hip>;
/// Page-locked memory of the HIP runtime.
pub type HipPinnedBuffer = PinnedBuffer<Hip>;

/// What the runtime's library is called, the newest interface first.
pub const LIBRARY_NAMES: &[&str] = if cfg!(windows) {
    &["amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"]
} else {
    &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"]
};

impl Driver<Hip> {
    /// The version of the runtime, as `hipRuntimeGetVersion` gives it: 10,000,000 times the major plus
    /// 100,000 times the minor number plus the patch.
    ///
    /// # Errors
    ///
    /// [`Forked`](ErrorCode::Forked).
    pub fn version(&self) -> Result<i32> {
        Ok(self.api("version")?.version)
    }

    /// How many devices there are.
    ///
    /// # Errors
    ///
    /// The runtime's status, or [`Forked`](ErrorCode::Forked).
    pub fn devices(&self) -> Result<usize> {
        let api = self.api("devices")?;
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        let status = unsafe { (api.entry.hipGetDeviceCount)(&raw mut count) };
        api.check("hipGetDeviceCount", status)?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Whether device `ordinal` claims stores of words; none where this runtime does not say. What is
    /// true of it, [`Device::caps`] tells.
    ///
    /// # Errors
    ///
    /// As [`device`](Self::device).
    pub fn claims_stores(&self, ordinal: u32) -> Result<Option<bool>> {
        self.api("claims_stores")?.claims_stores(device_number(ordinal))
    }

    /// Device `ordinal`, probed.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorCode::Unsupported) where there is no such device, the runtime's status, or
    /// [`Forked`](ErrorCode::Forked).
    pub fn device(&self, ordinal: u32) -> Result<HipDevice> {
        let count = self.devices()?;
        if ordinal as usize >= count {
            let what = alloc::format!("HIP device {ordinal}");
            return Err(Error::new(
                ErrorCode::Unsupported,
                [what, alloc::format!("there are {count}")],
            ));
        }
        // SAFETY: the runtime's contexts live as long as the process.
        unsafe { self.open(RawDevice(device_number(ordinal)), Ownership::Borrowed, false) }
    }
}

fn device_number(ordinal: u32) -> c_int {
    c_int::try_from(ordinal).unwrap_or(c_int::MAX)
}
