//! The driver calls that a [`Context`](super::context::Context) and its streams are made of, by one
//! name each for every vendor.
//!
//! A backend answers each with one call of its driver and turns the status into a `Result`. It has
//! no waiting, no pooling and no memory of its own: these live here, once.

use super::handle::{RawEvent, StreamHandle};
use super::library::Library;
use super::store::{Form, Forms, Store};
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::line::CompletionLine;
use core::ffi::c_void;
use core::fmt;
use core::ptr::NonNull;

/// A device interface whose streams can write words in page-locked host memory.
///
/// Sealed: implemented by the backends of this crate.
pub trait Interface: Calls {}

/// Page-locked memory, as both sides see it.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    pub host: NonNull<u8>,
    pub device: u64,
}

impl Mapping {
    /// What an allocation call has returned.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorCode::Unsupported) where it is null or not on a cache line.
    pub fn new(host: *mut c_void, device: u64) -> Result<Self> {
        let is_aligned = host.addr() % align_of::<CompletionLine>() == 0;
        let host = NonNull::new(host.cast()).filter(|_| is_aligned).ok_or_else(|| {
            let what = alloc::format!("page-locked memory at {host:?}");
            Error::new(ErrorCode::Unsupported, [what.as_str(), "null, or not on a cache line"])
        })?;
        Ok(Mapping { host, device })
    }
}

/// What `cuLaunchHostFunc` and `hipLaunchHostFunc` call, on a thread of the driver's.
pub type HostFunction = extern "C" fn(*mut c_void);

/// The calls. Each but `enter`, `leave` and `release` is made between `enter` and `leave`, on one thread.
///
/// Errors carry the vendor's number and the name of the failing entry point.
pub trait Calls: fmt::Debug + Send + Sync + Sized + 'static {
    /// The name of the interface, for messages.
    const NAME: &'static str;
    /// What streams and memory belong to.
    type Context: Copy + PartialEq + fmt::Debug + Send + Sync;
    /// What `leave` puts back.
    type Entered: Copy;

    /// The library that the calls go to.
    fn library(&self) -> &Library;

    /// Whether a status with this number stays for ever, whatever is called.
    fn is_sticky(number: i64) -> bool;

    /// Makes `context` current on this thread, and allows calls here that would break a capture of
    /// a stream elsewhere. Where it fails, nothing is left changed.
    fn enter(&self, context: Self::Context) -> Result<Self::Entered>;

    /// Puts back what `enter` changed.
    fn leave(&self, entered: Self::Entered) -> Result<()>;

    /// Gives the reference to `context` back. May synchronise.
    ///
    /// # Safety
    ///
    /// The caller holds such a reference, and nothing of the context is used after it.
    unsafe fn release(&self, context: Self::Context) -> Result<()>;

    /// The ways in which the device may be able to store a word, best first.
    fn forms(&self) -> Result<Forms>;

    /// Waits until nothing is queued in the context. May take as long as its work.
    fn settle(&self) -> Result<()>;

    /// Page-locked, coherent memory, mapped for the device; whole pages, contents unspecified.
    fn allocate(&self, bytes: usize) -> Result<Mapping>;

    /// Frees it. May synchronise.
    ///
    /// # Safety
    ///
    /// `memory` is from `allocate` of this context, not freed yet, used by nobody, and no store
    /// into it is queued.
    unsafe fn free(&self, memory: Mapping) -> Result<()>;

    /// A new stream that does not wait for the default stream.
    fn create_stream(&self) -> Result<StreamHandle>;

    /// Destroys a stream from `create_stream`. May synchronise.
    ///
    /// # Safety
    ///
    /// `stream` is from `create_stream`, not destroyed yet, and not used after.
    unsafe fn destroy_stream(&self, stream: StreamHandle) -> Result<()>;

    /// The context of a stream; `None` where this driver cannot tell.
    ///
    /// # Safety
    ///
    /// `stream` is a live handle. So it is in all that follows.
    unsafe fn context_of(&self, stream: StreamHandle) -> Result<Option<Self::Context>>;

    /// Whether work on `stream` would be recorded, or is forbidden by a capture, instead of run.
    ///
    /// # Safety
    ///
    /// As `context_of`.
    unsafe fn is_capturing(&self, stream: StreamHandle) -> Result<bool>;

    /// Whether everything queued is done.
    ///
    /// # Safety
    ///
    /// As `context_of`.
    unsafe fn query_stream(&self, stream: StreamHandle) -> Result<bool>;

    /// Waits until everything queued is done.
    ///
    /// # Safety
    ///
    /// As `context_of`.
    unsafe fn synchronize_stream(&self, stream: StreamHandle) -> Result<()>;

    /// Queues the stores, in order, each after all memory operations before it.
    ///
    /// # Safety
    ///
    /// As `context_of`; each address is a word of mapped memory of this driver that stays until
    /// the stores have landed, and is accessed by atomics only.
    unsafe fn store(&self, stream: StreamHandle, form: Form, stores: &[Store]) -> Result<()>;

    /// An event without timing.
    fn create_event(&self) -> Result<RawEvent>;

    /// Destroys an event from `create_event`.
    ///
    /// # Safety
    ///
    /// `event` is live and not used after. So it is, live, in all that follows.
    unsafe fn destroy_event(&self, event: RawEvent) -> Result<()>;

    /// Records `event` behind everything queued on `stream`.
    ///
    /// # Safety
    ///
    /// As `context_of` and `destroy_event`.
    unsafe fn record(&self, event: RawEvent, stream: StreamHandle) -> Result<()>;

    /// Whether what was queued before the last record of `event` is done.
    ///
    /// # Safety
    ///
    /// As `destroy_event`.
    unsafe fn query_event(&self, event: RawEvent) -> Result<bool>;

    /// Waits until what was queued before the last record of `event` is done.
    ///
    /// # Safety
    ///
    /// As `destroy_event`.
    unsafe fn synchronize_event(&self, event: RawEvent) -> Result<()>;

    /// Queues a call of `function(data)` behind everything queued on `stream`.
    ///
    /// # Safety
    ///
    /// As `context_of`; `data` is valid for `function` until it was called, which may be never.
    unsafe fn launch(
        &self,
        stream: StreamHandle,
        function: HostFunction,
        data: *mut c_void,
    ) -> Result<()>;

    /// Queues a copy of `bytes` from device memory `from` into page-locked memory `to`.
    ///
    /// # Safety
    ///
    /// As `context_of`; `from` is `bytes` long, `to` as well, and nobody accesses `to` until the
    /// copy is done.
    unsafe fn copy_to_host(
        &self,
        stream: StreamHandle,
        to: NonNull<u8>,
        from: u64,
        bytes: usize,
    ) -> Result<()>;

    /// Queues a copy of `bytes` from page-locked memory `from` into device memory `to`.
    ///
    /// # Safety
    ///
    /// As `context_of`; `to` is `bytes` long, `from` as well, and nobody writes `from` until the copy is
    /// done.
    unsafe fn copy_to_device(
        &self,
        stream: StreamHandle,
        to: u64,
        from: NonNull<u8>,
        bytes: usize,
    ) -> Result<()>;

    /// Queues a fill of `bytes` of device memory `to` with `value`.
    ///
    /// # Safety
    ///
    /// As `context_of`; `to` is `bytes` long.
    unsafe fn fill(&self, stream: StreamHandle, to: u64, value: u8, bytes: usize) -> Result<()>;

    /// Device memory: its address.
    fn allocate_device(&self, bytes: usize) -> Result<u64>;

    /// Frees device memory. May synchronise.
    ///
    /// # Safety
    ///
    /// `memory` is from `allocate_device` of this context, not freed yet, and no queued work uses it.
    unsafe fn free_device(&self, memory: u64) -> Result<()>;
}
