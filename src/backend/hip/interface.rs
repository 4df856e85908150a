//! One runtime call for each thing that a mapped context needs.

use super::super::mapped::{
    Alike, CAPTURE_MODE_RELAXED, Calls, EVENT_BLOCKING_SYNC, Form, Forms, Handle, HostFunction,
    INVALID_VALUE, Interface, Library, Opened, Store, StreamHandle, Width, halves,
};
use super::sys::{self, EntryPoints, ErrorName};
use crate::core::error::{Error, ErrorCode, Result};
use alloc::string::String;
use core::ffi::{CStr, c_int, c_uint, c_void};
use core::fmt;
use core::ptr;

/// The interface of AMD's HIP runtime.
pub struct Hip {
    pub(super) entry: EntryPoints,
    pub(super) alike: Alike,
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
    /// Whether the thread had no last error.
    was_clean: bool,
}

/// A device address as the runtime takes it.
fn pointer(address: u64) -> *mut c_void {
    ptr::without_provenance_mut(address as usize)
}

impl Hip {
    /// Whether the device claims stores of words; none where this runtime does not know the attribute.
    pub(super) fn claims_stores(&self, device: c_int) -> Result<Option<bool>> {
        let attribute = sys::CAN_USE_STREAM_WAIT_VALUE;
        let mut value = 0;
        // SAFETY: `value` outlives the call, which stores an int.
        match unsafe { (self.entry.hipDeviceGetAttribute)(&raw mut value, attribute, device) } {
            INVALID_VALUE => Ok(None),
            status => self.check("hipDeviceGetAttribute", status).map(|()| Some(value != 0)),
        }
    }

    /// Whether the thread has a last error.
    fn has_last_error(&self) -> bool {
        // SAFETY: no preconditions.
        self.entry.hipPeekAtLastError.is_some_and(|peek| unsafe { peek() } != 0)
    }

    /// Forgets the thread's last error, which a call made here has left: it is none of the program's.
    fn forget_last_error(&self) {
        if let Some(get) = self.entry.hipGetLastError {
            // SAFETY: no preconditions. The status is that of the forgotten error.
            let _ = unsafe { get() };
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
}

impl Interface for Hip {}

impl Calls for Hip {
    const NAME: &'static str = "hip";
    type Context = RawDevice;
    type Entered = Entered;

    /// `hipEventQuery` and `hipEventSynchronize` read the stream of the last record, and break its capture
    /// (`hip_event.cpp` of ROCm 6.2 to 7.1; the wait before that as well).
    const EVENTS_READ_STREAMS: bool = true;

    /// `hipStreamQuery` of the null stream queues a marker behind the work of all blocking streams.
    const DEFAULT_QUERY_QUEUES: bool = true;

    /// Alone: 7.x compares the flags as a whole (`Event::synchronize`).
    const SLEEPING_EVENT: c_uint = EVENT_BLOCKING_SYNC;

    /// Coherent by its own flag, whatever `HIP_HOST_COHERENT` says.
    const MEMORY_FLAGS: c_uint =
        sys::HOST_MALLOC_PORTABLE | sys::HOST_MALLOC_MAPPED | sys::HOST_MALLOC_COHERENT;

    const LIBRARY_NAMES: &'static [&'static str] = super::LIBRARY_NAMES;

    fn opened() -> &'static Opened<Hip> {
        static OPENED: Opened<Hip> = Opened::new();
        &OPENED
    }

    unsafe fn initialise(library: Library) -> Result<Hip> {
        // SAFETY: the library has the vendor's interface, by this function's contract.
        let entry = unsafe { EntryPoints::load(&library) }?;
        // SAFETY: the type is that of the vendor's header.
        let error_name: ErrorName = unsafe { library.required("hipGetErrorName") }?;
        // SAFETY: as above.
        let alike = unsafe { Alike::load(&library, &sys::NAMES) }?;
        let mut api = Hip { entry, alike, error_name, library, version: 0 };
        // SAFETY: flags must be 0. Initialising twice is allowed.
        api.check("hipInit", unsafe { (api.entry.hipInit)(0) })?;
        // SAFETY: the field outlives the call.
        let status = unsafe { (api.entry.hipRuntimeGetVersion)(&raw mut api.version) };
        api.check("hipRuntimeGetVersion", status)?;
        Ok(api)
    }

    fn library(&self) -> &Library {
        &self.library
    }

    fn alike(&self) -> &Alike {
        &self.alike
    }

    fn status_name(&self, status: i32) -> Option<String> {
        // SAFETY: takes any number; returns a static string or null.
        let name = unsafe { (self.error_name)(status) };
        (!name.is_null()).then(|| {
            // SAFETY: a string that ends in 0 and is never freed.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        })
    }

    /// The legacy default stream has the handle 0 in the entry points used here, and a name of its own
    /// only in newer runtimes.
    fn raw(stream: StreamHandle) -> Handle {
        match stream {
            StreamHandle::Legacy => core::ptr::null_mut(),
            stream => stream.as_raw(),
        }
    }

    fn is_sticky(number: i64) -> bool {
        sys::STICKY.contains(&number)
    }

    fn enter(&self, device: RawDevice) -> Result<Entered> {
        let was_clean = !self.has_last_error();
        let current = self.current_device()?;
        let other = (current != device.0).then_some(current);
        if other.is_some() {
            self.set_device(device.0)?;
        }
        match self.exchange_capture_mode(CAPTURE_MODE_RELAXED) {
            Ok(capture_mode) => Ok(Entered { device: other, capture_mode, was_clean }),
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
        if entered.was_clean && self.has_last_error() {
            self.forget_last_error();
        }
        exchanged.map(|_| ()).and(set)
    }

    fn destroyed(&self) -> Error {
        Error::status("hipSetDevice", sys::CONTEXT_IS_DESTROYED, "hipErrorContextIsDestroyed")
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

    unsafe fn context_of(&self, stream: StreamHandle) -> Result<Option<RawDevice>> {
        let (StreamHandle::Created(_), Some(get_device)) = (stream, self.entry.hipStreamGetDevice)
        else {
            // A reserved handle means the current device's; older runtimes cannot tell.
            return Ok(None);
        };
        let mut device = 0;
        // SAFETY: the stream is live, says the caller; `device` outlives the call.
        let status = unsafe { get_device(Self::raw(stream), &raw mut device) };
        if i64::from(status) == sys::CONTEXT_IS_DESTROYED {
            // A stream that is not in this runtime's table: destroyed, or of another runtime.
            return Err(Error::new(ErrorCode::ForeignContext, ["stream", "stream"]));
        }
        self.check("hipStreamGetDevice", status)?;
        Ok(Some(RawDevice(device)))
    }

    unsafe fn store(
        &self,
        stream: StreamHandle,
        form: Form,
        stores: &[Store],
        taken: &mut usize,
    ) -> Result<()> {
        let stream = Self::raw(stream);
        for store in stores {
            match form.width {
                Width::Whole => {
                    let write = self.entry.hipStreamWriteValue64;
                    let write = write.expect("the form was offered for it");
                    // SAFETY: the stream is live and the address a word that stays, says the caller.
                    let status = unsafe { write(stream, pointer(store.address), store.value, 0) };
                    self.check("hipStreamWriteValue64", status)?;
                    *taken += 1;
                }
                Width::Halves => {
                    let write = self.entry.hipStreamWriteValue32;
                    let write = write.expect("the form was offered for it");
                    for (half, (address, value)) in halves(*store).into_iter().enumerate() {
                        // SAFETY: as above.
                        let status = unsafe { write(stream, pointer(address), value, 0) };
                        self.check("hipStreamWriteValue32", status)?;
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
        let Some(launch) = self.entry.hipLaunchHostFunc else {
            let missing = [self.library.name.as_str(), "hipLaunchHostFunc"];
            return Err(Error::new(ErrorCode::SymbolMissing, missing));
        };
        // SAFETY: the stream is live and the data valid for the function, says the caller.
        let status = unsafe { launch(Self::raw(stream), function, data) };
        self.check("hipLaunchHostFunc", status)
    }

    unsafe fn fill(&self, stream: StreamHandle, to: u64, value: u8, bytes: usize) -> Result<()> {
        let (to, value) = (pointer(to), c_int::from(value));
        // SAFETY: the stream is live and the memory that long, says the caller.
        let status = unsafe { (self.entry.hipMemsetAsync)(to, value, bytes, Self::raw(stream)) };
        self.check("hipMemsetAsync", status)
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
