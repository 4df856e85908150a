//! One runtime call for each thing that a mapped context needs.

use super::super::mapped::{
    Calls, Form, Forms, HostFunction, Interface, Library, Mapping, RawEvent, Store, StreamHandle,
    Width, halves,
};
use super::sys::{self, EntryPoints, ErrorName, Handle, result};
use crate::core::error::{Error, ErrorCode, Result};
use alloc::string::ToString;
use core::ffi::{CStr, c_int, c_void};
use core::fmt;
use core::ptr::{self, NonNull};

/// The interface of AMD's HIP runtime.
pub struct Hip {
    pub(super) entry: EntryPoints,
    pub(super) error_name: ErrorName,
    pub(super) library: Library,
    /// As `hipRuntimeGetVersion` gives it.
    pub(super) version: i32,
}

/// A device, by its number: the runtime has one context for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawDevice(pub(super) c_int);

/// What a thread had before a device was entered.
#[derive(Clone, Copy)]
pub struct Entered {
    /// The device to go back to, where it was another one.
    device: Option<c_int>,
    capture_mode: c_int,
}

/// The runtime's handle of a stream. The legacy default stream has the handle 0 in the entry points
/// used here, and its own name only in newer runtimes.
fn raw(stream: StreamHandle) -> Handle {
    match stream {
        StreamHandle::Legacy => ptr::null_mut(),
        stream => stream.as_raw(),
    }
}

/// A device address as the runtime takes it.
fn pointer(address: u64) -> *mut c_void {
    ptr::without_provenance_mut(address as usize)
}

impl Hip {
    /// The error of `call`, unless its status is success.
    pub(super) fn check(&self, call: &str, status: i32) -> Result<()> {
        if status == result::SUCCESS { Ok(()) } else { Err(self.error(call, status)) }
    }

    #[cold]
    fn error(&self, call: &str, status: i32) -> Error {
        // SAFETY: takes any number; returns a static string or null.
        let name = unsafe { (self.error_name)(status) };
        let name = if name.is_null() {
            "a status that this runtime does not name".to_string()
        } else {
            // SAFETY: a string that ends in 0 and is never freed.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        };
        Error::status(call, i64::from(status), &name)
    }

    /// Whether the status that `call` returned says done; pending is `hipErrorNotReady`.
    fn is_done(&self, call: &str, status: i32) -> Result<bool> {
        match status {
            result::NOT_READY => Ok(false),
            status => self.check(call, status).map(|()| true),
        }
    }

    /// Whether the device claims stores of words; none where this runtime does not know the attribute.
    pub(super) fn claims_stores(&self, device: c_int) -> Result<Option<bool>> {
        let attribute = sys::CAN_USE_STREAM_WAIT_VALUE;
        let mut value = 0;
        // SAFETY: `value` outlives the call, which stores an int.
        match unsafe { (self.entry.hipDeviceGetAttribute)(&raw mut value, attribute, device) } {
            result::INVALID_VALUE => Ok(None),
            status => self.check("hipDeviceGetAttribute", status).map(|()| Some(value != 0)),
        }
    }

    fn current_device(&self) -> Result<c_int> {
        let mut device = 0;
        // SAFETY: `device` outlives the call.
        let status = unsafe { (self.entry.hipGetDevice)(&raw mut device) };
        self.check("hipGetDevice", status).map(|()| device)
    }

    fn set_device(&self, device: c_int) -> Result<()> {
        // SAFETY: a number that is no device's is an error of the call.
        self.check("hipSetDevice", unsafe { (self.entry.hipSetDevice)(device) })
    }

    fn exchange_capture_mode(&self, mode: c_int) -> Result<c_int> {
        let mut mode = mode;
        // SAFETY: `mode` outlives the call, which reads and writes it.
        let status = unsafe { (self.entry.hipThreadExchangeStreamCaptureMode)(&raw mut mode) };
        self.check("hipThreadExchangeStreamCaptureMode", status).map(|()| mode)
    }
}

impl Interface for Hip {}

impl Calls for Hip {
    const NAME: &'static str = "hip";
    type Context = RawDevice;
    type Entered = Entered;

    fn library(&self) -> &Library {
        &self.library
    }

    fn is_sticky(number: i64) -> bool {
        result::STICKY.contains(&number)
    }

    fn enter(&self, device: RawDevice) -> Result<Entered> {
        let current = self.current_device()?;
        let other = (current != device.0).then_some(current);
        if other.is_some() {
            self.set_device(device.0)?;
        }
        match self.exchange_capture_mode(sys::CAPTURE_MODE_RELAXED) {
            Ok(capture_mode) => Ok(Entered { device: other, capture_mode }),
            Err(error) => {
                if let Some(other) = other {
                    // The error that is reported is the first one.
                    let _ = self.set_device(other);
                }
                Err(error)
            }
        }
    }

    fn leave(&self, entered: Entered) -> Result<()> {
        let exchanged = self.exchange_capture_mode(entered.capture_mode);
        let set = entered.device.map_or(Ok(()), |device| self.set_device(device));
        exchanged.map(|_| ()).and(set)
    }

    /// The runtime's contexts live as long as the process: there is no reference to give back.
    unsafe fn release(&self, _device: RawDevice) -> Result<()> {
        Ok(())
    }

    /// The attribute tells of waits, and a device that waits for words stores them as well; the probe
    /// tells the truth. Source: "Stream Memory Operations" of the HIP runtime API.
    fn forms(&self) -> Result<Forms> {
        let claim = self.claims_stores(self.current_device()?)?;
        let mut forms = Forms::default();
        let entry_points = [
            (Width::Whole, self.entry.hipStreamWriteValue64.is_some()),
            (Width::Halves, self.entry.hipStreamWriteValue32.is_some()),
        ];
        for (width, is_there) in entry_points {
            let form = Form { width, generation: 1 };
            if !is_there {
                forms.refused.push(alloc::format!("{form}: no entry point"));
            } else if claim == Some(false) {
                let why = "hipDeviceAttributeCanUseStreamWaitValue is 0";
                forms.refused.push(alloc::format!("{form}: {why}"));
            } else {
                forms.candidates.push(form);
            }
        }
        Ok(forms)
    }

    fn settle(&self) -> Result<()> {
        // SAFETY: the device is current.
        self.check("hipDeviceSynchronize", unsafe { (self.entry.hipDeviceSynchronize)() })
    }

    /// Coherent memory by its own flag, whatever `HIP_HOST_COHERENT` says.
    fn allocate(&self, bytes: usize) -> Result<Mapping> {
        let flags = sys::HOST_MALLOC_PORTABLE | sys::HOST_MALLOC_MAPPED | sys::HOST_MALLOC_COHERENT;
        let mut host = ptr::null_mut();
        // SAFETY: `host` outlives the call.
        let status = unsafe { (self.entry.hipHostMalloc)(&raw mut host, bytes, flags) };
        self.check("hipHostMalloc", status)?;
        let mut device = ptr::null_mut();
        // SAFETY: `host` is what was allocated, with the flag that this call needs.
        let status = unsafe { (self.entry.hipHostGetDevicePointer)(&raw mut device, host, 0) };
        let mapped = self.check("hipHostGetDevicePointer", status);
        let mapped = mapped.and_then(|()| Mapping::new(host, device.addr() as u64));
        if mapped.is_err() {
            // SAFETY: allocated above, and known to nobody else. The first error is reported.
            let _ = unsafe { (self.entry.hipHostFree)(host) };
        }
        mapped
    }

    unsafe fn free(&self, memory: Mapping) -> Result<()> {
        // SAFETY: from `hipHostMalloc`, freed once and used by nobody, says the caller.
        let status = unsafe { (self.entry.hipHostFree)(memory.host.as_ptr().cast()) };
        self.check("hipHostFree", status)
    }

    fn create_stream(&self) -> Result<StreamHandle> {
        let mut stream = ptr::null_mut();
        let flags = sys::STREAM_NON_BLOCKING;
        // SAFETY: `stream` outlives the call; the device is current.
        let status = unsafe { (self.entry.hipStreamCreateWithFlags)(&raw mut stream, flags) };
        self.check("hipStreamCreateWithFlags", status)?;
        Ok(StreamHandle::from_raw(stream))
    }

    unsafe fn destroy_stream(&self, stream: StreamHandle) -> Result<()> {
        // SAFETY: live, destroyed once and not used after, says the caller.
        let status = unsafe { (self.entry.hipStreamDestroy)(raw(stream)) };
        self.check("hipStreamDestroy", status)
    }

    unsafe fn context_of(&self, stream: StreamHandle) -> Result<Option<RawDevice>> {
        let (StreamHandle::Created(_), Some(get_device)) = (stream, self.entry.hipStreamGetDevice)
        else {
            // A reserved handle means the current device's; older runtimes cannot tell.
            return Ok(None);
        };
        let mut device = 0;
        // SAFETY: the stream is live, says the caller; `device` outlives the call.
        let status = unsafe { get_device(raw(stream), &raw mut device) };
        self.check("hipStreamGetDevice", status)?;
        Ok(Some(RawDevice(device)))
    }

    unsafe fn is_capturing(&self, stream: StreamHandle) -> Result<bool> {
        let mut capture = sys::CAPTURE_STATUS_NONE;
        // SAFETY: the stream is live, says the caller; `capture` outlives the call.
        match unsafe { (self.entry.hipStreamIsCapturing)(raw(stream), &raw mut capture) } {
            // The legacy stream while a stream is captured that waits for it.
            result::STREAM_CAPTURE_IMPLICIT => Ok(true),
            status => self
                .check("hipStreamIsCapturing", status)
                .map(|()| capture != sys::CAPTURE_STATUS_NONE),
        }
    }

    unsafe fn query_stream(&self, stream: StreamHandle) -> Result<bool> {
        // SAFETY: the stream is live, says the caller.
        let status = unsafe { (self.entry.hipStreamQuery)(raw(stream)) };
        self.is_done("hipStreamQuery", status)
    }

    unsafe fn synchronize_stream(&self, stream: StreamHandle) -> Result<()> {
        // SAFETY: the stream is live, says the caller.
        let status = unsafe { (self.entry.hipStreamSynchronize)(raw(stream)) };
        self.check("hipStreamSynchronize", status)
    }

    unsafe fn store(&self, stream: StreamHandle, form: Form, stores: &[Store]) -> Result<()> {
        let stream = raw(stream);
        for store in stores {
            match form.width {
                Width::Whole => {
                    let write = self.entry.hipStreamWriteValue64;
                    let write = write.expect("the form was offered for it");
                    // SAFETY: the stream is live and the address a word that stays, says the caller.
                    let status = unsafe { write(stream, pointer(store.address), store.value, 0) };
                    self.check("hipStreamWriteValue64", status)?;
                }
                Width::Halves => {
                    let write = self.entry.hipStreamWriteValue32;
                    let write = write.expect("the form was offered for it");
                    for (address, value) in halves(*store) {
                        // SAFETY: as above.
                        let status = unsafe { write(stream, pointer(address), value, 0) };
                        self.check("hipStreamWriteValue32", status)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn create_event(&self) -> Result<RawEvent> {
        let mut event = ptr::null_mut();
        let flags = sys::EVENT_DISABLE_TIMING;
        // SAFETY: `event` outlives the call; the device is current.
        let status = unsafe { (self.entry.hipEventCreateWithFlags)(&raw mut event, flags) };
        self.check("hipEventCreateWithFlags", status)?;
        let null = || Error::backend("hipEventCreateWithFlags", "a null event");
        RawEvent::from_raw(event).ok_or_else(null)
    }

    unsafe fn destroy_event(&self, event: RawEvent) -> Result<()> {
        // SAFETY: live, destroyed once and not used after, says the caller.
        let status = unsafe { (self.entry.hipEventDestroy)(event.as_raw()) };
        self.check("hipEventDestroy", status)
    }

    unsafe fn record(&self, event: RawEvent, stream: StreamHandle) -> Result<()> {
        // SAFETY: both are live, says the caller.
        let status = unsafe { (self.entry.hipEventRecord)(event.as_raw(), raw(stream)) };
        self.check("hipEventRecord", status)
    }

    unsafe fn query_event(&self, event: RawEvent) -> Result<bool> {
        // SAFETY: the event is live, says the caller.
        let status = unsafe { (self.entry.hipEventQuery)(event.as_raw()) };
        self.is_done("hipEventQuery", status)
    }

    unsafe fn synchronize_event(&self, event: RawEvent) -> Result<()> {
        // SAFETY: the event is live, says the caller.
        let status = unsafe { (self.entry.hipEventSynchronize)(event.as_raw()) };
        self.check("hipEventSynchronize", status)
    }

    unsafe fn launch(
        &self,
        stream: StreamHandle,
        function: HostFunction,
        data: *mut c_void,
    ) -> Result<()> {
        let Some(launch) = self.entry.hipLaunchHostFunc else {
            let missing = [self.library.name.as_str(), "hipLaunchHostFunc"];
            return Err(Error::new(ErrorCode::SymbolMissing, missing));
        };
        // SAFETY: the stream is live and the data valid for the function, says the caller.
        let status = unsafe { launch(raw(stream), function, data) };
        self.check("hipLaunchHostFunc", status)
    }

    unsafe fn copy_to_host(
        &self,
        stream: StreamHandle,
        to: NonNull<u8>,
        from: u64,
        bytes: usize,
    ) -> Result<()> {
        let (to, from) = (to.as_ptr().cast(), pointer(from));
        // SAFETY: the stream is live, both sides are that long and unused, says the caller.
        let status = unsafe { (self.entry.hipMemcpyDtoHAsync)(to, from, bytes, raw(stream)) };
        self.check("hipMemcpyDtoHAsync", status)
    }

    unsafe fn copy_to_device(
        &self,
        stream: StreamHandle,
        to: u64,
        from: NonNull<u8>,
        bytes: usize,
    ) -> Result<()> {
        let (to, from) = (pointer(to), from.as_ptr().cast());
        // SAFETY: the stream is live, both sides are that long and unused, says the caller.
        let status = unsafe { (self.entry.hipMemcpyHtoDAsync)(to, from, bytes, raw(stream)) };
        self.check("hipMemcpyHtoDAsync", status)
    }

    unsafe fn fill(&self, stream: StreamHandle, to: u64, value: u8, bytes: usize) -> Result<()> {
        let (to, value) = (pointer(to), c_int::from(value));
        // SAFETY: the stream is live and the memory that long, says the caller.
        let status = unsafe { (self.entry.hipMemsetAsync)(to, value, bytes, raw(stream)) };
        self.check("hipMemsetAsync", status)
    }

    fn allocate_device(&self, bytes: usize) -> Result<u64> {
        let mut memory = ptr::null_mut();
        // SAFETY: `memory` outlives the call; the device is current.
        let status = unsafe { (self.entry.hipMalloc)(&raw mut memory, bytes) };
        self.check("hipMalloc", status).map(|()| memory.addr() as u64)
    }

    unsafe fn free_device(&self, memory: u64) -> Result<()> {
        // SAFETY: from `hipMalloc`, freed once and used by nobody, says the caller.
        self.check("hipFree", unsafe { (self.entry.hipFree)(pointer(memory)) })
    }
}

impl fmt::Debug for Hip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hip")
            .field("library", &self.library.name)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
