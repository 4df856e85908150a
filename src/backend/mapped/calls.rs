//! The driver calls that a [`Context`](super::context::Context) and its streams are made of, by one
//! name each for every vendor.
//!
//! Each is one call of the driver, whose status becomes a `Result`; there is no waiting, no pooling and no
//! memory here. What the vendors have [alike](super::alike) is provided; a backend answers the rest.

use super::alike::{
    Alike, CAPTURE_STATUS_NONE, CAPTURE_STATUSES, CAPTURED_EVENT, EVENT_DISABLE_TIMING, Entry,
    Handle, NOT_READY, OUT_OF_MEMORY, STREAM_CAPTURE_IMPLICIT, STREAM_NON_BLOCKING, SUCCESS,
};
use super::driver::Opened;
use super::handle::{RawEvent, StreamHandle};
use super::library::Library;
use super::store::{Form, Forms, Store};
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::line::CompletionLine;
use alloc::string::String;
use core::ffi::{c_int, c_uint, c_void};
use core::fmt;
use core::ptr::{self, NonNull};

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

    /// Whether an event reads the stream of its last record whenever it is asked about or waited for. Such
    /// an event must not be touched after that stream was destroyed, nor, since that breaks the capture,
    /// while the stream is captured.
    const EVENTS_READ_STREAMS: bool;

    /// Whether a status query of the default stream queues a marker.
    const DEFAULT_QUERY_QUEUES: bool;

    /// The flags of an event for which a blocking wait sleeps.
    const SLEEPING_EVENT: c_uint;

    /// How page-locked memory is allocated: for all contexts, mapped for the device, and coherent.
    const MEMORY_FLAGS: c_uint;

    /// What the vendor's library is called, in the order in which the names are tried.
    const LIBRARY_NAMES: &'static [&'static str];

    /// The libraries that this process has opened.
    fn opened() -> &'static Opened<Self>
    where
        Self: Interface;

    /// Finds the entry points of `library` and initialises it.
    ///
    /// # Safety
    ///
    /// `library` has the vendor's interface.
    unsafe fn initialise(library: Library) -> Result<Self>;

    /// The library that the calls go to.
    fn library(&self) -> &Library;

    /// The entry points that are alike.
    fn alike(&self) -> &Alike;

    /// The vendor's name of a status; none where this driver has none.
    fn status_name(&self, status: i32) -> Option<String>;

    /// The number of a stream as the driver takes it.
    fn raw(stream: StreamHandle) -> Handle {
        stream.as_raw()
    }

    /// The error of `call`, unless its status is success.
    fn check(&self, call: &str, status: i32) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        let name = self.status_name(status);
        let name = name.as_deref().unwrap_or("a status that this driver does not name");
        Err(Error::status(call, i64::from(status), name))
    }

    /// The same for an entry point that was called.
    fn checked<F>(&self, entry: &Entry<F>, status: i32) -> Result<()> {
        self.check(entry.name, status)
    }

    /// Whether the status that an entry point returned says done, or pending. A status that a capture is in
    /// the way is pending as well: it says nothing about the device.
    fn is_done<F>(&self, entry: &Entry<F>, status: i32) -> Result<bool> {
        match status {
            NOT_READY => Ok(false),
            status if CAPTURE_STATUSES.contains(&status) => Ok(false),
            status => self.checked(entry, status).map(|()| true),
        }
    }

    /// Sets the thread's capture mode and returns the former one.
    fn exchange_capture_mode(&self, mode: c_int) -> Result<c_int> {
        let entry = &self.alike().exchange_capture_mode;
        let mut mode = mode;
        // SAFETY: `mode` outlives the call, which reads and writes it.
        let status = unsafe { (entry.call)(&raw mut mode) };
        self.checked(entry, status).map(|()| mode)
    }

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

    /// A number that the current context has alone, and another one after a reset of the device; 0 where the
    /// driver has no such number.
    ///
    /// # Errors
    ///
    /// The driver's status: that the context was destroyed.
    fn identity(&self) -> Result<u64> {
        Ok(0)
    }

    /// The error of a context that is not the one that it was.
    fn destroyed(&self) -> Error;

    /// Page-locked, coherent memory, mapped for the device; whole pages, contents unspecified.
    fn allocate(&self, bytes: usize) -> Result<Mapping> {
        let entry = &self.alike().host_allocate;
        let mut host = ptr::null_mut();
        // SAFETY: `host` outlives the call; the context is current.
        let status = unsafe { (entry.call)(&raw mut host, bytes, Self::MEMORY_FLAGS) };
        if status == OUT_OF_MEMORY {
            // Nothing in the driver's name says that it is not the device's memory that is short.
            let name = self.status_name(status).unwrap_or_default();
            let what = alloc::format!(
                "{name}: {bytes} bytes of page-locked host memory; the host or its container has a limit \
                 (ulimit -l, the memory of the cgroup), not the device"
            );
            return Err(Error::status(entry.name, i64::from(status), &what));
        }
        self.checked(entry, status)?;
        // SAFETY: `host` is what was allocated, and mapped.
        let mapped = unsafe { self.device_address(host) };
        let mapped = mapped.and_then(|device| Mapping::new(host, device));
        if mapped.is_err() {
            // SAFETY: allocated above, and known to nobody else. The first error is reported.
            let _ = unsafe { (self.alike().host_free.call)(host) };
        }
        mapped
    }

    /// The current context's address of page-locked memory, of this context or of another one.
    ///
    /// # Safety
    ///
    /// `host` is from `allocate`, not freed.
    unsafe fn device_address(&self, host: *mut c_void) -> Result<u64> {
        let entry = &self.alike().host_device_pointer;
        let mut device = 0;
        // SAFETY: the memory is there, and allocated with the flag that this call needs; flags must be 0.
        let status = unsafe { (entry.call)(&raw mut device, host, 0) };
        self.checked(entry, status).map(|()| device)
    }

    /// Frees it. May synchronise.
    ///
    /// # Safety
    ///
    /// `memory` is from `allocate` of this context, not freed yet, used by nobody, and no store
    /// into it is queued.
    unsafe fn free(&self, memory: Mapping) -> Result<()> {
        let entry = &self.alike().host_free;
        // SAFETY: allocated by this driver, freed once and used by nobody, says the caller.
        self.checked(entry, unsafe { (entry.call)(memory.host.as_ptr().cast()) })
    }

    /// A new stream that does not wait for the default stream.
    fn create_stream(&self) -> Result<StreamHandle> {
        let entry = &self.alike().stream_create;
        let mut stream = ptr::null_mut();
        // SAFETY: `stream` outlives the call; the context is current.
        let status = unsafe { (entry.call)(&raw mut stream, STREAM_NON_BLOCKING) };
        self.checked(entry, status).map(|()| StreamHandle::from_raw(stream))
    }

    /// Destroys a stream from `create_stream`. May synchronise.
    ///
    /// # Safety
    ///
    /// `stream` is from `create_stream`, not destroyed yet, and not used after.
    unsafe fn destroy_stream(&self, stream: StreamHandle) -> Result<()> {
        let entry = &self.alike().stream_destroy;
        // SAFETY: live, destroyed once and not used after, says the caller.
        self.checked(entry, unsafe { (entry.call)(Self::raw(stream)) })
    }

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
    unsafe fn is_capturing(&self, stream: StreamHandle) -> Result<bool> {
        let entry = &self.alike().stream_is_capturing;
        let mut capture = CAPTURE_STATUS_NONE;
        // SAFETY: the stream is live, says the caller; `capture` outlives the call.
        match unsafe { (entry.call)(Self::raw(stream), &raw mut capture) } {
            STREAM_CAPTURE_IMPLICIT => Ok(true),
            status => self.checked(entry, status).map(|()| capture != CAPTURE_STATUS_NONE),
        }
    }

    /// Whether everything queued is done.
    ///
    /// # Safety
    ///
    /// As `context_of`.
    unsafe fn query_stream(&self, stream: StreamHandle) -> Result<bool> {
        let entry = &self.alike().stream_query;
        // SAFETY: the stream is live, says the caller.
        self.is_done(entry, unsafe { (entry.call)(Self::raw(stream)) })
    }

    /// Has what is queued on `stream` from now on wait for `event`, as it is recorded now.
    ///
    /// # Safety
    ///
    /// As `context_of` and `destroy_event`; where events read their streams, that of the event's last
    /// record is live too.
    unsafe fn wait_event(&self, stream: StreamHandle, event: RawEvent) -> Result<()> {
        let entry = &self.alike().stream_wait_event;
        // SAFETY: both are live, says the caller; flags must be 0.
        let status = unsafe { (entry.call)(Self::raw(stream), event.as_raw(), 0) };
        self.checked(entry, status)
    }

    /// Queues the stores, in order, each after all memory operations before it. Adds to `taken` how many the
    /// driver has taken, in whole or in part, before it refused one.
    ///
    /// # Safety
    ///
    /// As `context_of`; each address is a word of mapped memory of this driver that stays until
    /// the stores have landed, and is accessed by atomics only.
    unsafe fn store(
        &self,
        stream: StreamHandle,
        form: Form,
        stores: &[Store],
        taken: &mut usize,
    ) -> Result<()>;

    /// An event without timing, or one for which a blocking wait sleeps: the latter costs the device an
    /// interrupt at each record.
    fn create_event(&self, sleeping: bool) -> Result<RawEvent> {
        let entry = &self.alike().event_create;
        let mut event = ptr::null_mut();
        let flags = if sleeping { Self::SLEEPING_EVENT } else { EVENT_DISABLE_TIMING };
        // SAFETY: `event` outlives the call; the context is current.
        let status = unsafe { (entry.call)(&raw mut event, flags) };
        self.checked(entry, status)?;
        RawEvent::from_raw(event).ok_or_else(|| Error::backend(entry.name, "a null event"))
    }

    /// Destroys an event from `create_event`.
    ///
    /// # Safety
    ///
    /// `event` is live and not used after. So it is, live, in all that follows.
    unsafe fn destroy_event(&self, event: RawEvent) -> Result<()> {
        let entry = &self.alike().event_destroy;
        // SAFETY: live, destroyed once and not used after, says the caller.
        self.checked(entry, unsafe { (entry.call)(event.as_raw()) })
    }

    /// Records `event` behind everything queued on `stream`.
    ///
    /// # Safety
    ///
    /// As `context_of` and `destroy_event`.
    unsafe fn record(&self, event: RawEvent, stream: StreamHandle) -> Result<()> {
        let entry = &self.alike().event_record;
        // SAFETY: both are live, says the caller.
        self.checked(entry, unsafe { (entry.call)(event.as_raw(), Self::raw(stream)) })
    }

    /// Whether what was queued before the last record of `event` is done.
    ///
    /// # Errors
    ///
    /// [`Captured`](ErrorCode::Captured) where the record itself was captured, by a capture that began
    /// between the look for one and the record: it never runs.
    ///
    /// # Safety
    ///
    /// As `destroy_event`, and as `wait_event` of the event's stream.
    unsafe fn query_event(&self, event: RawEvent) -> Result<bool> {
        let entry = &self.alike().event_query;
        // SAFETY: the event is live, says the caller.
        let status = unsafe { (entry.call)(event.as_raw()) };
        if status == CAPTURED_EVENT && !Self::EVENTS_READ_STREAMS {
            // SAFETY: as above.
            let again = unsafe { (entry.call)(event.as_raw()) };
            if again == CAPTURED_EVENT {
                return Err(Error::new(ErrorCode::Captured, [entry.name]));
            }
            return self.is_done(entry, again);
        }
        self.is_done(entry, status)
    }

    /// Waits until what was queued before the last record of `event` is done. Returns `false` if the driver
    /// came back before that.
    ///
    /// # Errors
    ///
    /// [`Captured`](ErrorCode::Captured) where a capture is in the way, and the driver's status.
    ///
    /// # Safety
    ///
    /// As `query_event`.
    unsafe fn synchronize_event(&self, event: RawEvent) -> Result<bool> {
        let entry = &self.alike().event_synchronize;
        // SAFETY: the event is live, says the caller.
        match unsafe { (entry.call)(event.as_raw()) } {
            status if CAPTURE_STATUSES.contains(&status) => {
                Err(Error::new(ErrorCode::Captured, [entry.name]))
            }
            status => self.is_done(entry, status),
        }
    }

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
    ) -> Result<()> {
        let entry = &self.alike().copy_to_host;
        let to = to.as_ptr().cast();
        // SAFETY: the stream is live, both sides are that long and unused, says the caller.
        self.checked(entry, unsafe { (entry.call)(to, from, bytes, Self::raw(stream)) })
    }

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
    ) -> Result<()> {
        let entry = &self.alike().copy_to_device;
        let from = from.as_ptr().cast_const().cast();
        // SAFETY: the stream is live, both sides are that long and unused, says the caller.
        self.checked(entry, unsafe { (entry.call)(to, from, bytes, Self::raw(stream)) })
    }

    /// Queues a fill of `bytes` of device memory `to` with `value`.
    ///
    /// # Safety
    ///
    /// As `context_of`; `to` is `bytes` long.
    unsafe fn fill(&self, stream: StreamHandle, to: u64, value: u8, bytes: usize) -> Result<()>;

    /// Device memory: its address.
    fn allocate_device(&self, bytes: usize) -> Result<u64> {
        let entry = &self.alike().device_allocate;
        let mut memory = 0;
        // SAFETY: `memory` outlives the call; the context is current.
        self.checked(entry, unsafe { (entry.call)(&raw mut memory, bytes) }).map(|()| memory)
    }

    /// Frees device memory. May synchronise.
    ///
    /// # Safety
    ///
    /// `memory` is from `allocate_device` of this context, not freed yet, and no queued work uses it.
    unsafe fn free_device(&self, memory: u64) -> Result<()> {
        let entry = &self.alike().device_free;
        // SAFETY: allocated by this driver, freed once and used by nobody, says the caller.
        self.checked(entry, unsafe { (entry.call)(memory) })
    }
}
