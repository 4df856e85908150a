//! AMD: streams of the HIP runtime.
//!
//! The runtime is opened at run time by its name; nothing is linked. A [`HipDevice`] is a device; the
//! runtime has one context for each, which lives as long as the process. A [`HipStream`] is a stream
//! that a port can wait for. What this backend shares with `cuda` is in [`mapped`](super::mapped).
//!
//! # Sources
//!
//! The HIP runtime API's pages "Stream Memory Operations", "Stream Management", "Event Management", "Memory
//! Management" and "Graph Management", and `hip_runtime_api.h` of 5.7.
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
