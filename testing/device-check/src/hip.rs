//! AMD's runtime.

use crate::cases::{Cases, seen, why};
use crate::mapped::{self, Captures};
use gpu_async_reactor::Result;
use gpu_async_reactor::backend::hip::{Hip, HipDriver, HipStream};
use std::ffi::c_void;
use std::path::Path;

type Handle = *mut c_void;
type BeginCapture = unsafe extern "C" fn(Handle, i32) -> i32;
type EndCapture = unsafe extern "C" fn(Handle, *mut Handle) -> i32;

/// How a program captures.
struct Calls {
    begin: BeginCapture,
    end: EndCapture,
}

impl Calls {
    fn new(driver: &HipDriver) -> Result<Self> {
        // SAFETY: the types are those of `hip_runtime_api.h`.
        let (begin, end) = unsafe {
            (
                driver.entry_point("hipStreamBeginCapture")?,
                driver.entry_point("hipStreamEndCapture")?,
            )
        };
        Ok(Calls { begin, end })
    }
}

impl Captures<Hip> for Calls {
    fn begin(&self, stream: &HipStream) -> std::result::Result<(), String> {
        // SAFETY: the stream is live; 0 is the global mode.
        match unsafe { (self.begin)(stream.handle().as_raw(), 0) } {
            0 => Ok(()),
            status => Err(format!("hipStreamBeginCapture: {status}")),
        }
    }

    fn end(&self, stream: &HipStream) -> std::result::Result<bool, String> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream is live; the graph is small, and stays.
        let ended = unsafe { (self.end)(stream.handle().as_raw(), &raw mut graph) };
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
