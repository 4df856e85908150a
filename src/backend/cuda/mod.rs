//! NVIDIA: streams of the CUDA driver.
//!
//! The driver is opened at run time by its name; nothing is linked. A [`CudaDevice`] is a context:
//! the device's primary one, shared with the CUDA runtime and with `cudarc`, or one of the program's
//! own. A [`CudaStream`] is a stream that a port can wait for.
//!
//! ```no_run
//! use gpu_async_reactor::backend::cuda::CudaDriver;
//! use gpu_async_reactor::host::{StdClock, StdIdle};
//! use gpu_async_reactor::{ThreadPort, WaitPlan, run_inline, wait};
//!
//! # fn main() -> gpu_async_reactor::Result<()> {
//! let device = CudaDriver::load()?.device(0)?;
//! let (idle, host) = StdIdle::probe(StdClock::new());
//! let plan = WaitPlan::parse("spin:backstop_us=1000")?.resolve_on(&host, &device.caps());
//! let stream = device.stream()?;
//! // ... queue kernels on `stream.handle()` ...
//! let mut port = ThreadPort::new(stream, idle);
//! run_inline(wait(&plan.plan, None, &mut port, &StdClock::new()))??;
//! # Ok(())
//! # }
//! ```
//!
//! # Sources
//!
//! The driver API's pages "Stream Memory Operations", "Stream Management", "Event Management", "Memory
//! Management", "Primary Context Management" and "Context Management", and `cuda.h` of 12.9 and 13.5.
//!
//! # Captures
//!
//! A status query of any thread can invalidate a capture in global mode elsewhere. Every call of this
//! backend is made in the thread's relaxed mode (`cuThreadExchangeStreamCaptureMode`), which is put
//! back afterwards. A stream that is being captured is pending; what would be recorded is refused
//! with [`Captured`](crate::ErrorCode::Captured). A capture that another thread begins between the
//! look and the call is the program's race: its status says that a capture is in the way, which is pending.
//!
//! No call waits for a whole context, which breaks every capture in it in any mode. A
//! [`close`](Device::close) waits for what this crate has queued.
//!
//! # Faults, resets
//!
//! A kernel's fault is the context's (`CUDA_ERROR_ILLEGAL_ADDRESS` and its like): every call answers it from
//! then on, each wait ends with it, leased buffers are leaked and counted. The primary context is one for the
//! process, so that a new device over it answers the same until every library has given it back; only a
//! new process is sure to have a new one. [`Device::close`] then reports what is leaked.
//!
//! A reset of the device by another library (`cuDevicePrimaryCtxReset`, `cudaDeviceReset`) ends the context:
//! waits end with `CUDA_ERROR_CONTEXT_IS_DESTROYED`, also where somebody has revived the same handle since
//! (`cuCtxGetId`, from CUDA 12.0 on; before it the program must see to it), and [`device`](Driver::device)
//! opens a new one. The memory of old lines is gone with the reset, so nobody may look at a word of theirs
//! any more: while a device is open, a reset is unsound.
//!
//! # Green contexts
//!
//! Their streams are refused: by [`Unsupported`](crate::ErrorCode::Unsupported) on CUDA 12.x, where the driver
//! does not tell their context, and by [`ForeignContext`](crate::ErrorCode::ForeignContext) from 13.0 on, where
//! it is not the primary one.
//!
//! # Blocking waits
//!
//! A plain event's blocking wait spins, and the context's flags, which would change that, belong to the whole
//! process. A `block` wait here sleeps all the same: it waits for an event with the flag that says so, which
//! costs some microseconds more than a spin, and next to no processor time.
//!
//! # Faults
//!
//! A fault of a kernel is one of the whole context, and by the vendor's words of the process: every stream
//! answers it, and nothing that was leased is handed back. What a program does then is in
//! `docs/recovery.md`.
//!
//! # Forks
//!
//! The driver does not work in a forked child: everything made before the fork answers
//! [`Forked`](crate::ErrorCode::Forked) there, and makes no driver call.

#[cfg(feature = "cudarc")]
mod cudarc;
mod interface;
mod sys;

pub use interface::Cuda;

use super::mapped::{Calls, Device, Driver, Ownership, PinnedBuffer, Stream};
use crate::core::error::{Error, ErrorCode, Result};
use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::{CStr, c_int, c_void};
use core::ptr::{self, NonNull};
use interface::RawContext;
use sys::attribute;

/// The CUDA driver.
pub type CudaDriver = Driver<Cuda>;
/// A context of the CUDA driver.
pub type CudaDevice = Device<Cuda>;
/// A stream of the CUDA driver.
pub type CudaStream = Stream<Cuda>;
/// Page-locked memory of the CUDA driver.
pub type CudaPinnedBuffer = PinnedBuffer<Cuda>;

/// What the driver library is called. The last name is its place under WSL, whose folder is not always in the
/// loader's path.
pub const LIBRARY_NAMES: &[&str] = if cfg!(windows) {
    &["nvcuda.dll"]
} else {
    &["libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1"]
};

impl Driver<Cuda> {
    /// The CUDA version of the driver: major and minor.
    ///
    /// # Errors
    ///
    /// [`Forked`](ErrorCode::Forked).
    pub fn version(&self) -> Result<(i32, i32)> {
        let version = self.api("version")?.version;
        Ok((version / 1000, version % 1000 / 10))
    }

    /// How many devices there are.
    ///
    /// # Errors
    ///
    /// The driver's status, or [`Forked`](ErrorCode::Forked).
    pub fn devices(&self) -> Result<usize> {
        let api = self.api("devices")?;
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        let status = unsafe { (api.entry.cuDeviceGetCount)(&raw mut count) };
        api.check("cuDeviceGetCount", status)?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// The name of device `ordinal`.
    ///
    /// # Errors
    ///
    /// As [`device`](Self::device).
    pub fn device_name(&self, ordinal: u32) -> Result<String> {
        let api = self.api("device_name")?;
        let device = device_handle(api, ordinal)?;
        let mut name = [0; 256];
        // SAFETY: `name` is that long and outlives the call, which ends the string with a 0.
        let status = unsafe { (api.entry.cuDeviceGetName)(name.as_mut_ptr(), 256, device) };
        api.check("cuDeviceGetName", status)?;
        name[255] = 0;
        // SAFETY: a 0 stands at its end at the latest.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// What device `ordinal` claims of its memory operations: each attribute's name and value, none
    /// where this driver does not know it. What is true of it, [`Device::caps`] tells.
    ///
    /// # Errors
    ///
    /// As [`device`](Self::device).
    pub fn store_attributes(&self, ordinal: u32) -> Result<Vec<(&'static str, Option<i32>)>> {
        let api = self.api("store_attributes")?;
        let device = device_handle(api, ordinal)?;
        let attributes = [
            ("CAN_USE_64_BIT_STREAM_MEM_OPS", attribute::CAN_USE_64_BIT_STREAM_MEM_OPS),
            ("CAN_USE_64_BIT_STREAM_MEM_OPS_V1", attribute::CAN_USE_64_BIT_STREAM_MEM_OPS_V1),
            ("CAN_USE_STREAM_MEM_OPS_V1", attribute::CAN_USE_STREAM_MEM_OPS_V1),
        ];
        attributes.into_iter().map(|(name, id)| Ok((name, api.attribute(device, id)?))).collect()
    }

    /// The primary context of device `ordinal`, retained until a close has released it, and probed.
    ///
    /// # Errors
    ///
    /// The driver's status, as `cuDeviceGet: 101 CUDA_ERROR_INVALID_DEVICE` where there is no such
    /// device, or [`Forked`](ErrorCode::Forked).
    pub fn device(&self, ordinal: u32) -> Result<CudaDevice> {
        let api = self.api("device")?;
        let device = device_handle(api, ordinal)?;
        let flush = must_flush(api, device)?;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` outlives the call.
        let status = unsafe { (api.entry.cuDevicePrimaryCtxRetain)(&raw mut raw, device) };
        api.check("cuDevicePrimaryCtxRetain", status)?;
        let context = raw_context(raw, device)?;
        // SAFETY: retained above, and the reference is passed on.
        unsafe { self.open(context, Ownership::Retained, flush) }
    }

    /// A context of the program's own, a `CUcontext`.
    ///
    /// # Safety
    ///
    /// `context` is live, and stays so until a [`close`](Device::close) of the returned device has reported
    /// that it was [released](super::mapped::CloseReport::released); for good, where none does: memory of
    /// the context is destroyed with it, and stores may be on their way into it, and calls be made in it,
    /// until then.
    ///
    /// # Errors
    ///
    /// The driver's status, or [`Forked`](ErrorCode::Forked).
    pub unsafe fn device_from_context(&self, context: *mut c_void) -> Result<CudaDevice> {
        let api = self.api("device_from_context")?;
        let context = raw_context(context, -1)?;
        let entered = api.enter(context)?;
        let device = api.current_device().and_then(|device| Ok((device, must_flush(api, device)?)));
        let left = api.leave(entered);
        let (device, flush) = device?;
        left?;
        let context = RawContext { device, ..context };
        // SAFETY: live until a close has reported that it was released, says the caller.
        unsafe { self.open(context, Ownership::Borrowed, flush) }
    }
}

fn raw_context(raw: *mut c_void, device: c_int) -> Result<RawContext> {
    let null = || Error::new(ErrorCode::ForeignContext, ["device", "null context"]);
    NonNull::new(raw).map(|raw| RawContext { raw, device }).ok_or_else(null)
}

fn device_handle(api: &Cuda, ordinal: u32) -> Result<c_int> {
    let mut device = 0;
    let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
    // SAFETY: `device` outlives the call.
    let status = unsafe { (api.entry.cuDeviceGet)(&raw mut device, ordinal) };
    api.check("cuDeviceGet", status)?;
    Ok(device)
}

/// Whether queued work may wait in the process until somebody asks for it: under Windows's WDDM,
/// where a query submits it. Source: the note on batching of "Stream Memory Operations".
fn must_flush(api: &Cuda, device: c_int) -> Result<bool> {
    Ok(cfg!(windows) && api.attribute(device, attribute::TCC_DRIVER)? != Some(1))
}
