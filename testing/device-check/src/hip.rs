//! AMD's runtime.

use crate::cases::{Cases, seen, why};
use crate::mapped::{self, Work};
use gpu_async_reactor::Result;
use gpu_async_reactor::backend::hip::{Hip, HipDriver, HipStream};
use std::ffi::c_void;
use std::path::Path;

const BYTES: usize = 64 << 20;
const FILLS: usize = 8;

type Handle = *mut c_void;
type Allocate = unsafe extern "C" fn(*mut Handle, usize) -> i32;
type Memset = unsafe extern "C" fn(Handle, i32, usize, Handle) -> i32;
type BeginCapture = unsafe extern "C" fn(Handle, i32) -> i32;
type EndCapture = unsafe extern "C" fn(Handle, *mut Handle) -> i32;

struct Calls {
    memset: Memset,
    begin_capture: BeginCapture,
    end_capture: EndCapture,
    memory: usize,
}

/// What a status of the runtime's means for a case.
fn status(call: &str, status: i32) -> std::result::Result<(), String> {
    if status == 0 { Ok(()) } else { Err(format!("{call}: {status}")) }
}

impl Calls {
    fn new(driver: &HipDriver) -> Result<Self> {
        // SAFETY: the types are those of `hip_runtime_api.h`.
        let (allocate, memset, begin_capture, end_capture) = unsafe {
            (
                driver.entry_point::<Allocate>("hipMalloc")?,
                driver.entry_point::<Memset>("hipMemsetAsync")?,
                driver.entry_point::<BeginCapture>("hipStreamBeginCapture")?,
                driver.entry_point::<EndCapture>("hipStreamEndCapture")?,
            )
        };
        let mut memory = std::ptr::null_mut();
        // SAFETY: the result outlives the call; device 0 is current to a thread from its start.
        let done = unsafe { allocate(&raw mut memory, BYTES) };
        assert_eq!(done, 0, "device memory of {BYTES} bytes");
        let memory = memory.expose_provenance();
        Ok(Calls { memset, begin_capture, end_capture, memory })
    }
}

impl Work<Hip> for Calls {
    fn fill(&self, stream: &HipStream, value: u8) -> std::result::Result<(), String> {
        let memory = std::ptr::with_exposed_provenance_mut(self.memory);
        for _ in 0..FILLS {
            let stream = stream.handle().as_raw();
            // SAFETY: the memory is that long and stays; the stream is live.
            let queued = unsafe { (self.memset)(memory, i32::from(value), BYTES, stream) };
            status("hipMemsetAsync", queued)?;
        }
        Ok(())
    }

    fn memory(&self) -> u64 {
        self.memory as u64
    }

    fn begin_capture(&self, stream: &HipStream) -> std::result::Result<(), String> {
        // SAFETY: the stream is live; 0 is the global mode.
        status("hipStreamBeginCapture", unsafe {
            (self.begin_capture)(stream.handle().as_raw(), 0)
        })
    }

    fn end_capture(&self, stream: &HipStream) -> std::result::Result<bool, String> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream is live; the graph is small, and stays.
        let ended = unsafe { (self.end_capture)(stream.handle().as_raw(), &raw mut graph) };
        Ok(ended == 0 && !graph.is_null())
    }
}

/// The cases.
pub fn run(cases: &mut Cases, library: Option<&Path>) {
    let opened = match library {
        // SAFETY: the library has the vendor's interface, says who named it.
        Some(path) => unsafe { HipDriver::load_from(path) },
        None => HipDriver::load(),
    };
    let driver = match opened {
        Ok(driver) => driver,
        Err(error) => return cases.skip("everything", &error.to_string()),
    };
    cases.case("the runtime and its devices", || {
        let devices = driver.devices().map_err(why)?;
        let claim = driver.claims_stores(0).map_err(why)?;
        let version = driver.version().map_err(why)?;
        seen(format!("HIP {version}, {devices} devices, claims stores: {claim:?}"))
    });
    match driver.device(0).and_then(|device| Ok((device, Calls::new(&driver)?))) {
        Ok((device, calls)) => mapped::run(cases, &device, &calls),
        Err(error) => cases.fail("open device 0", &error.to_string()),
    }
}
