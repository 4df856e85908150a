//! One driver call for each thing that a mapped context needs.

use super::super::mapped::{
    Calls, Form, Forms, HostFunction, Interface, Library, Mapping, RawEvent, Store, StreamHandle,
    Width, halves,
};
use super::sys::{self, EntryPoints, WriteValue, attribute, result};
use crate::core::error::{Error, Result};
use alloc::string::ToString;
use core::ffi::{CStr, c_int, c_void};
use core::fmt;
use core::ptr::{self, NonNull};

/// The interface of NVIDIA's driver.
pub struct Cuda {
    pub(super) entry: EntryPoints,
    pub(super) library: Library,
    /// As `cuDriverGetVersion` gives it: 1000 times the major plus 10 times the minor number.
    pub(super) version: i32,
}

/// A `CUcontext`, and the device that it is one of.
#[derive(Clone, Copy, Debug)]
pub struct RawContext {
    pub(super) raw: NonNull<c_void>,
    pub(super) device: c_int,
}

impl PartialEq for RawContext {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

// SAFETY: a handle, which the driver resolves; a context may be made current on any thread.
unsafe impl Send for RawContext {}
// SAFETY: as for `Send`; the value is never changed.
unsafe impl Sync for RawContext {}

/// What a thread had before a context was entered.
#[derive(Clone, Copy)]
pub struct Entered {
    pushed: bool,
    capture_mode: c_int,
}

impl Cuda {
    /// The error of `call`, unless its status is success.
    pub(super) fn check(&self, call: &str, status: i32) -> Result<()> {
        if status == result::SUCCESS { Ok(()) } else { Err(self.error(call, status)) }
    }

    #[cold]
    fn error(&self, call: &str, status: i32) -> Error {
        let mut name = ptr::null();
        // SAFETY: `name` outlives the call, which stores a static string or null.
        let named = unsafe { (self.entry.cuGetErrorName)(status, &raw mut name) };
        let name = if named == result::SUCCESS && !name.is_null() {
            // SAFETY: on success it is a string that ends in 0 and is never freed.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        } else {
            "a status that this driver does not name".to_string()
        };
        Error::status(call, i64::from(status), &name)
    }

    /// Whether the status that `call` returned says done; pending is `NOT_READY`.
    fn is_done(&self, call: &str, status: i32) -> Result<bool> {
        match status {
            result::NOT_READY => Ok(false),
            status => self.check(call, status).map(|()| true),
        }
    }

    /// An attribute of a device; none where this driver does not know it.
    pub(super) fn attribute(&self, device: c_int, attribute: i32) -> Result<Option<i32>> {
        let mut value = 0;
        // SAFETY: `value` outlives the call, which stores an int.
        match unsafe { (self.entry.cuDeviceGetAttribute)(&raw mut value, attribute, device) } {
            result::INVALID_VALUE => Ok(None),
            status => self.check("cuDeviceGetAttribute", status).map(|()| Some(value)),
        }
    }

    /// The device of the current context.
    pub(super) fn current_device(&self) -> Result<c_int> {
        let mut device = 0;
        // SAFETY: `device` outlives the call.
        let status = unsafe { (self.entry.cuCtxGetDevice)(&raw mut device) };
        self.check("cuCtxGetDevice", status).map(|()| device)
    }

    fn pop(&self) -> Result<()> {
        let mut popped = ptr::null_mut();
        // SAFETY: `popped` outlives the call; what is popped was pushed by `enter` on this thread.
        let status = unsafe { (self.entry.cuCtxPopCurrent_v2)(&raw mut popped) };
        self.check("cuCtxPopCurrent", status)
    }

    fn exchange_capture_mode(&self, mode: c_int) -> Result<c_int> {
        let mut mode = mode;
        // SAFETY: `mode` outlives the call, which reads and writes it.
        let status = unsafe { (self.entry.cuThreadExchangeStreamCaptureMode)(&raw mut mode) };
        self.check("cuThreadExchangeStreamCaptureMode", status).map(|()| mode)
    }

    fn has(&self, form: Form) -> bool {
        let entry = &self.entry;
        match (form.generation, form.width) {
            (2, Width::Whole) => {
                entry.cuStreamBatchMemOp_v2.is_some() || entry.cuStreamWriteValue64_v2.is_some()
            }
            (2, Width::Halves) => {
                entry.cuStreamBatchMemOp_v2.is_some() || entry.cuStreamWriteValue32_v2.is_some()
            }
            (_, Width::Whole) => {
                entry.cuStreamBatchMemOp.is_some() || entry.cuStreamWriteValue64.is_some()
            }
            (_, Width::Halves) => {
                entry.cuStreamBatchMemOp.is_some() || entry.cuStreamWriteValue32.is_some()
            }
        }
    }
}

impl Interface for Cuda {}

impl Calls for Cuda {
    const NAME: &'static str = "cuda";
    type Context = RawContext;
    type Entered = Entered;

    fn library(&self) -> &Library {
        &self.library
    }

    fn is_sticky(number: i64) -> bool {
        result::STICKY.contains(&number)
    }

    fn enter(&self, context: RawContext) -> Result<Entered> {
        let mut current = ptr::null_mut();
        // SAFETY: `current` outlives the call.
        let status = unsafe { (self.entry.cuCtxGetCurrent)(&raw mut current) };
        self.check("cuCtxGetCurrent", status)?;
        let pushed = current != context.raw.as_ptr();
        if pushed {
            // SAFETY: the context is live, as long as its `mapped::Context` is.
            let status = unsafe { (self.entry.cuCtxPushCurrent_v2)(context.raw.as_ptr()) };
            self.check("cuCtxPushCurrent", status)?;
        }
        match self.exchange_capture_mode(sys::CAPTURE_MODE_RELAXED) {
            Ok(capture_mode) => Ok(Entered { pushed, capture_mode }),
            Err(error) => {
                if pushed {
                    // The error that is reported is the first one.
                    let _ = self.pop();
                }
                Err(error)
            }
        }
    }

    fn leave(&self, entered: Entered) -> Result<()> {
        let exchanged = self.exchange_capture_mode(entered.capture_mode);
        let popped = if entered.pushed { self.pop() } else { Ok(()) };
        exchanged.map(|_| ()).and(popped)
    }

    unsafe fn release(&self, context: RawContext) -> Result<()> {
        // SAFETY: the reference that is given back is the caller's.
        let status = unsafe { (self.entry.cuDevicePrimaryCtxRelease_v2)(context.device) };
        self.check("cuDevicePrimaryCtxRelease", status)
    }

    /// The second generation of memory operations (CUDA 11.7) needs no option of the driver, the
    /// first one does; the attributes of the first are gone from drivers that have dropped it.
    /// Source: "Stream Memory Operations" of the CUDA driver API, and the attributes of `cuda.h`. An
    /// attribute that the driver does not know is left to the probe.
    fn forms(&self) -> Result<Forms> {
        let device = self.current_device()?;
        let mut forms = Forms::default();
        let tried = [
            (2, Width::Whole, Some(attribute::CAN_USE_64_BIT_STREAM_MEM_OPS)),
            (2, Width::Halves, None),
            (1, Width::Whole, Some(attribute::CAN_USE_64_BIT_STREAM_MEM_OPS_V1)),
            (1, Width::Halves, Some(attribute::CAN_USE_STREAM_MEM_OPS_V1)),
        ];
        for (generation, width, attribute) in tried {
            let form = Form { width, generation };
            if !self.has(form) {
                forms.refused.push(alloc::format!("{form}: no entry point"));
                continue;
            }
            let claim = attribute.map(|number| self.attribute(device, number)).transpose()?;
            if claim.flatten() == Some(0) {
                let number = attribute.unwrap_or_default();
                forms.refused.push(alloc::format!("{form}: device attribute {number} is 0"));
            } else {
                forms.candidates.push(form);
            }
        }
        Ok(forms)
    }

    fn settle(&self) -> Result<()> {
        // SAFETY: the context is current.
        self.check("cuCtxSynchronize", unsafe { (self.entry.cuCtxSynchronize)() })
    }

    fn allocate(&self, bytes: usize) -> Result<Mapping> {
        let flags = sys::MEMHOSTALLOC_PORTABLE | sys::MEMHOSTALLOC_DEVICEMAP;
        let mut host = ptr::null_mut();
        // SAFETY: `host` outlives the call; the context is current.
        let status = unsafe { (self.entry.cuMemHostAlloc)(&raw mut host, bytes, flags) };
        self.check("cuMemHostAlloc", status)?;
        let mut device = 0;
        // SAFETY: `host` is what was allocated, with the flag that this call needs.
        let status = unsafe { (self.entry.cuMemHostGetDevicePointer_v2)(&raw mut device, host, 0) };
        let mapped = self.check("cuMemHostGetDevicePointer", status);
        let mapped = mapped.and_then(|()| Mapping::new(host, device));
        if mapped.is_err() {
            // SAFETY: allocated above, and known to nobody else. The first error is reported.
            let _ = unsafe { (self.entry.cuMemFreeHost)(host) };
        }
        mapped
    }

    unsafe fn free(&self, memory: Mapping) -> Result<()> {
        // SAFETY: from `cuMemHostAlloc`, freed once and used by nobody, says the caller.
        let status = unsafe { (self.entry.cuMemFreeHost)(memory.host.as_ptr().cast()) };
        self.check("cuMemFreeHost", status)
    }

    fn create_stream(&self) -> Result<StreamHandle> {
        let mut stream = ptr::null_mut();
        // SAFETY: `stream` outlives the call; the context is current.
        let status =
            unsafe { (self.entry.cuStreamCreate)(&raw mut stream, sys::STREAM_NON_BLOCKING) };
        self.check("cuStreamCreate", status)?;
        Ok(StreamHandle::from_raw(stream))
    }

    unsafe fn destroy_stream(&self, stream: StreamHandle) -> Result<()> {
        // SAFETY: live, destroyed once and not used after, says the caller.
        let status = unsafe { (self.entry.cuStreamDestroy_v2)(stream.as_raw()) };
        self.check("cuStreamDestroy", status)
    }

    unsafe fn context_of(&self, stream: StreamHandle) -> Result<Option<RawContext>> {
        let StreamHandle::Created(_) = stream else {
            // A reserved handle means the current context's.
            return Ok(None);
        };
        let mut context = ptr::null_mut();
        // SAFETY: the stream is live, says the caller; `context` outlives the call.
        let status = unsafe { (self.entry.cuStreamGetCtx)(stream.as_raw(), &raw mut context) };
        self.check("cuStreamGetCtx", status)?;
        Ok(NonNull::new(context).map(|raw| RawContext { raw, device: -1 }))
    }

    unsafe fn is_capturing(&self, stream: StreamHandle) -> Result<bool> {
        let mut capture = sys::CAPTURE_STATUS_NONE;
        // SAFETY: the stream is live, says the caller; `capture` outlives the call.
        match unsafe { (self.entry.cuStreamIsCapturing)(stream.as_raw(), &raw mut capture) } {
            // The legacy stream while a stream is captured that waits for it.
            result::STREAM_CAPTURE_IMPLICIT => Ok(true),
            status => self
                .check("cuStreamIsCapturing", status)
                .map(|()| capture != sys::CAPTURE_STATUS_NONE),
        }
    }

    unsafe fn query_stream(&self, stream: StreamHandle) -> Result<bool> {
        // SAFETY: the stream is live, says the caller.
        let status = unsafe { (self.entry.cuStreamQuery)(stream.as_raw()) };
        self.is_done("cuStreamQuery", status)
    }

    unsafe fn synchronize_stream(&self, stream: StreamHandle) -> Result<()> {
        // SAFETY: the stream is live, says the caller.
        let status = unsafe { (self.entry.cuStreamSynchronize)(stream.as_raw()) };
        self.check("cuStreamSynchronize", status)
    }

    unsafe fn store(&self, stream: StreamHandle, form: Form, stores: &[Store]) -> Result<()> {
        let flags = sys::WRITE_VALUE_DEFAULT;
        let (batch, whole, half) = match form.generation {
            2 => (
                self.entry.cuStreamBatchMemOp_v2,
                self.entry.cuStreamWriteValue64_v2,
                self.entry.cuStreamWriteValue32_v2,
            ),
            _ => (
                self.entry.cuStreamBatchMemOp,
                self.entry.cuStreamWriteValue64,
                self.entry.cuStreamWriteValue32,
            ),
        };
        let stream = stream.as_raw();
        if let Some(batch) = batch {
            let mut operations: Operations = Operations::new();
            for store in stores {
                operations.add(form.width, *store);
            }
            // SAFETY: the stream is live and the addresses are words that stay, says the caller; the
            // operations are as many as told, initialised, and copied before the call returns.
            let status = unsafe { batch(stream, operations.len, operations.list.as_mut_ptr(), 0) };
            return self.check("cuStreamBatchMemOp", status);
        }
        for store in stores {
            match form.width {
                Width::Whole => {
                    let write = whole.expect("the form was offered for one of the two");
                    // SAFETY: as above.
                    let status = unsafe { write(stream, store.address, store.value, flags) };
                    self.check("cuStreamWriteValue64", status)?;
                }
                Width::Halves => {
                    let write = half.expect("the form was offered for one of the two");
                    for (address, value) in halves(*store) {
                        // SAFETY: as above.
                        let status = unsafe { write(stream, address, value, flags) };
                        self.check("cuStreamWriteValue32", status)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn create_event(&self) -> Result<RawEvent> {
        let mut event = ptr::null_mut();
        // SAFETY: `event` outlives the call; the context is current.
        let status =
            unsafe { (self.entry.cuEventCreate)(&raw mut event, sys::EVENT_DISABLE_TIMING) };
        self.check("cuEventCreate", status)?;
        RawEvent::from_raw(event).ok_or_else(|| Error::backend("cuEventCreate", "a null event"))
    }

    unsafe fn destroy_event(&self, event: RawEvent) -> Result<()> {
        // SAFETY: live, destroyed once and not used after, says the caller.
        let status = unsafe { (self.entry.cuEventDestroy_v2)(event.as_raw()) };
        self.check("cuEventDestroy", status)
    }

    unsafe fn record(&self, event: RawEvent, stream: StreamHandle) -> Result<()> {
        // SAFETY: both are live, says the caller.
        let status = unsafe { (self.entry.cuEventRecord)(event.as_raw(), stream.as_raw()) };
        self.check("cuEventRecord", status)
    }

    unsafe fn query_event(&self, event: RawEvent) -> Result<bool> {
        // SAFETY: the event is live, says the caller.
        let status = unsafe { (self.entry.cuEventQuery)(event.as_raw()) };
        self.is_done("cuEventQuery", status)
    }

    unsafe fn synchronize_event(&self, event: RawEvent) -> Result<()> {
        // SAFETY: the event is live, says the caller.
        let status = unsafe { (self.entry.cuEventSynchronize)(event.as_raw()) };
        self.check("cuEventSynchronize", status)
    }

    unsafe fn launch(
        &self,
        stream: StreamHandle,
        function: HostFunction,
        data: *mut c_void,
    ) -> Result<()> {
        // SAFETY: the stream is live and the data valid for the function, says the caller.
        let status = unsafe { (self.entry.cuLaunchHostFunc)(stream.as_raw(), function, data) };
        self.check("cuLaunchHostFunc", status)
    }

    unsafe fn copy_to_host(
        &self,
        stream: StreamHandle,
        to: NonNull<u8>,
        from: u64,
        bytes: usize,
    ) -> Result<()> {
        let to = to.as_ptr().cast();
        // SAFETY: the stream is live, both sides are that long and unused, says the caller.
        let status = unsafe { (self.entry.cuMemcpyDtoHAsync_v2)(to, from, bytes, stream.as_raw()) };
        self.check("cuMemcpyDtoHAsync", status)
    }

    unsafe fn copy_to_device(
        &self,
        stream: StreamHandle,
        to: u64,
        from: NonNull<u8>,
        bytes: usize,
    ) -> Result<()> {
        let from = from.as_ptr().cast_const().cast();
        // SAFETY: the stream is live, both sides are that long and unused, says the caller.
        let status = unsafe { (self.entry.cuMemcpyHtoDAsync_v2)(to, from, bytes, stream.as_raw()) };
        self.check("cuMemcpyHtoDAsync", status)
    }

    unsafe fn fill(&self, stream: StreamHandle, to: u64, value: u8, bytes: usize) -> Result<()> {
        // SAFETY: the stream is live and the memory that long, says the caller.
        let status = unsafe { (self.entry.cuMemsetD8Async)(to, value, bytes, stream.as_raw()) };
        self.check("cuMemsetD8Async", status)
    }

    fn allocate_device(&self, bytes: usize) -> Result<u64> {
        let mut memory = 0;
        // SAFETY: `memory` outlives the call; the context is current.
        let status = unsafe { (self.entry.cuMemAlloc_v2)(&raw mut memory, bytes) };
        self.check("cuMemAlloc", status).map(|()| memory)
    }

    unsafe fn free_device(&self, memory: u64) -> Result<()> {
        // SAFETY: from `cuMemAlloc`, freed once and used by nobody, says the caller.
        self.check("cuMemFree", unsafe { (self.entry.cuMemFree_v2)(memory) })
    }
}

/// The memory operations of one mark: at most two stores of two halves each.
struct Operations {
    list: [WriteValue; 4],
    len: u32,
}

impl Operations {
    fn new() -> Self {
        let none = WriteValue { operation: 0, address: 0, value: 0, flags: 0, alias: 0, rest: 0 };
        Operations { list: [none; 4], len: 0 }
    }

    fn add(&mut self, width: Width, store: Store) {
        match width {
            Width::Whole => self.push(sys::MEM_OP_WRITE_VALUE_64, store.address, store.value),
            Width::Halves => {
                for (address, half) in halves(store) {
                    self.push(sys::MEM_OP_WRITE_VALUE_32, address, u64::from(half));
                }
            }
        }
    }

    fn push(&mut self, operation: u32, address: u64, value: u64) {
        let place = &mut self.list[self.len as usize];
        *place = WriteValue { operation, address, value, ..*place };
        place.flags = sys::WRITE_VALUE_DEFAULT;
        self.len += 1;
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuda")
            .field("library", &self.library.name)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
