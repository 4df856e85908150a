//! One driver call for each thing that a mapped context needs.

use super::super::mapped::{
    Alike, CAPTURE_MODE_RELAXED, Calls, EVENT_BLOCKING_SYNC, EVENT_DISABLE_TIMING, Form, Forms,
    HostFunction, INVALID_VALUE, Interface, Library, Opened, Store, StreamHandle, Width, halves,
};
use super::sys::{self, EntryPoints, WriteValue, attribute};
use crate::core::error::{Error, ErrorCode, Result};
use alloc::string::String;
use core::ffi::{CStr, c_int, c_uint, c_void};
use core::fmt;
use core::ptr::{self, NonNull};

/// The interface of NVIDIA's driver.
pub struct Cuda {
    pub(super) entry: EntryPoints,
    pub(super) alike: Alike,
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
    /// An attribute of a device; none where this driver does not know it.
    pub(super) fn attribute(&self, device: c_int, attribute: i32) -> Result<Option<i32>> {
        let mut value = 0;
        // SAFETY: `value` outlives the call, which stores an int.
        match unsafe { (self.entry.cuDeviceGetAttribute)(&raw mut value, attribute, device) } {
            INVALID_VALUE => Ok(None),
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

    /// An event outlives its stream, and one that was recorded before a capture can be asked about during
    /// it (`cuEventQuery`, `cuThreadExchangeStreamCaptureMode`).
    const EVENTS_READ_STREAMS: bool = false;

    const DEFAULT_QUERY_QUEUES: bool = false;

    const SLEEPING_EVENT: c_uint = EVENT_BLOCKING_SYNC | EVENT_DISABLE_TIMING;

    const MEMORY_FLAGS: c_uint = sys::MEMHOSTALLOC_PORTABLE | sys::MEMHOSTALLOC_DEVICEMAP;

    const LIBRARY_NAMES: &'static [&'static str] = super::LIBRARY_NAMES;

    fn opened() -> &'static Opened<Cuda> {
        static OPENED: Opened<Cuda> = Opened::new();
        &OPENED
    }

    unsafe fn initialise(library: Library) -> Result<Cuda> {
        // SAFETY: the library has the vendor's interface, by this function's contract.
        let entry = unsafe { EntryPoints::load(&library) }?;
        // SAFETY: as above.
        let alike = unsafe { Alike::load(&library, &sys::NAMES) }?;
        let mut api = Cuda { entry, alike, library, version: 0 };
        // SAFETY: flags must be 0. Initialising twice is allowed.
        let status = unsafe { (api.entry.cuInit)(0) };
        if let Some(advice) = sys::advice(status) {
            let name = api.status_name(status).unwrap_or_default();
            let place = api.library.place().unwrap_or_else(|| api.library.name.clone());
            let what = alloc::format!("{name} ({place}): {advice}");
            return Err(Error::status("cuInit", i64::from(status), &what));
        }
        api.check("cuInit", status)?;
        // SAFETY: the field outlives the call.
        let status = unsafe { (api.entry.cuDriverGetVersion)(&raw mut api.version) };
        api.check("cuDriverGetVersion", status)?;
        Ok(api)
    }

    fn library(&self) -> &Library {
        &self.library
    }

    fn alike(&self) -> &Alike {
        &self.alike
    }

    fn status_name(&self, status: i32) -> Option<String> {
        let mut name = ptr::null();
        // SAFETY: `name` outlives the call, which stores a static string or null.
        let named = unsafe { (self.entry.cuGetErrorName)(status, &raw mut name) };
        (named == 0 && !name.is_null()).then(|| {
            // SAFETY: on success it is a string that ends in 0 and is never freed.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        })
    }

    fn is_sticky(number: i64) -> bool {
        sys::STICKY.contains(&number)
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
        match self.exchange_capture_mode(CAPTURE_MODE_RELAXED) {
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

    /// `cuCtxGetId`, from 12.0 on: "each context has a unique ID".
    fn identity(&self) -> Result<u64> {
        let Some(get_id) = self.entry.cuCtxGetId else { return Ok(0) };
        let mut id = 0;
        // SAFETY: `id` outlives the call; null names the current context.
        let status = unsafe { get_id(ptr::null_mut(), &raw mut id) };
        self.check("cuCtxGetId", status).map(|()| id)
    }

    fn destroyed(&self) -> Error {
        let name = "CUDA_ERROR_CONTEXT_IS_DESTROYED: the device was reset";
        Error::status("cuCtxGetId", sys::CONTEXT_IS_DESTROYED, name)
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

    unsafe fn context_of(&self, stream: StreamHandle) -> Result<Option<RawContext>> {
        let StreamHandle::Created(_) = stream else {
            // A reserved handle means the current context's.
            return Ok(None);
        };
        let mut context = ptr::null_mut();
        // SAFETY: the stream is live, says the caller; `context` outlives the call.
        let status = unsafe { (self.entry.cuStreamGetCtx)(stream.as_raw(), &raw mut context) };
        if status == sys::NOT_SUPPORTED {
            // What 12.x says of a stream from `cuGreenCtxStreamCreate`.
            let why = "cuStreamGetCtx does not tell its context, as for one of a green context";
            return Err(Error::new(ErrorCode::Unsupported, ["a stream of a green context", why]));
        }
        self.check("cuStreamGetCtx", status)?;
        Ok(NonNull::new(context).map(|raw| RawContext { raw, device: -1 }))
    }

    unsafe fn store(
        &self,
        stream: StreamHandle,
        form: Form,
        stores: &[Store],
        taken: &mut usize,
    ) -> Result<()> {
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
            // All of them or none.
            return self.check("cuStreamBatchMemOp", status).map(|()| *taken += stores.len());
        }
        for store in stores {
            match form.width {
                Width::Whole => {
                    let write = whole.expect("the form was offered for one of the two");
                    // SAFETY: as above.
                    let status = unsafe { write(stream, store.address, store.value, flags) };
                    self.check("cuStreamWriteValue64", status)?;
                    *taken += 1;
                }
                Width::Halves => {
                    let write = half.expect("the form was offered for one of the two");
                    for (half, (address, value)) in halves(*store).into_iter().enumerate() {
                        // SAFETY: as above.
                        let status = unsafe { write(stream, address, value, flags) };
                        self.check("cuStreamWriteValue32", status)?;
                        *taken += usize::from(half == 0);
                    }
                }
            }
        }
        Ok(())
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

    unsafe fn fill(&self, stream: StreamHandle, to: u64, value: u8, bytes: usize) -> Result<()> {
        // SAFETY: the stream is live and the memory that long, says the caller.
        let status = unsafe { (self.entry.cuMemsetD8Async)(to, value, bytes, stream.as_raw()) };
        self.check("cuMemsetD8Async", status)
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
