//! NVIDIA's driver.

use crate::cases::{Cases, seen, why};
use crate::mapped::{self, Captures};
use gpu_async_reactor::Result;
use gpu_async_reactor::backend::cuda::{Cuda, CudaDriver, CudaStream};
use std::ffi::c_void;
use std::path::Path;

type Handle = *mut c_void;
type BeginCapture = unsafe extern "C" fn(Handle, i32) -> i32;
type EndCapture = unsafe extern "C" fn(Handle, *mut Handle) -> i32;
type Retain = unsafe extern "C" fn(*mut Handle, i32) -> i32;
type Bind = unsafe extern "C" fn(Handle) -> i32;

/// How a program captures.
struct Calls {
    begin: BeginCapture,
    end: EndCapture,
}

impl Calls {
    fn new(driver: &CudaDriver) -> Result<Self> {
        // SAFETY: the types are those of `cuda.h`.
        let (begin, end) = unsafe {
            (
                driver.entry_point("cuStreamBeginCapture_v2")?,
                driver.entry_point("cuStreamEndCapture")?,
            )
        };
        // SAFETY: as above.
        let (retain, bind) = unsafe {
            (
                driver.entry_point::<Retain>("cuDevicePrimaryCtxRetain")?,
                driver.entry_point::<Bind>("cuCtxSetCurrent")?,
            )
        };
        let mut context = std::ptr::null_mut();
        // SAFETY: the result outlives the call; the context is device 0's, retained for ever.
        let done = unsafe { [retain(&raw mut context, 0), bind(context)] };
        assert_eq!(done, [0; 2], "the primary context of device 0");
        Ok(Calls { begin, end })
    }
}

impl Captures<Cuda> for Calls {
    fn begin(&self, stream: &CudaStream) -> std::result::Result<(), String> {
        // SAFETY: the stream is live; 0 is the global mode.
        match unsafe { (self.begin)(stream.handle().as_raw(), 0) } {
            0 => Ok(()),
            status => Err(format!("cuStreamBeginCapture_v2: {status}")),
        }
    }

    fn end(&self, stream: &CudaStream) -> std::result::Result<bool, String> {
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
        Some(path) => unsafe { CudaDriver::load_from(path) },
        None => CudaDriver::load(),
    };
    let driver = match opened {
        Ok(driver) => driver,
        Err(error) => return cases.skip("everything", &error.to_string()),
    };
    cases.case("the driver and its device", || {
        let (major, minor) = driver.version().map_err(why)?;
        let name = driver.device_name(0).map_err(why)?;
        let attributes = driver.store_attributes(0).map_err(why)?;
        seen(format!("{name}, CUDA {major}.{minor}, {attributes:?}"))
    });
    match driver.device(0).and_then(|device| Ok((device, Calls::new(&driver)?))) {
        Ok((device, calls)) => mapped::run(cases, &device, &calls),
        Err(error) => cases.fail("open device 0", &error.to_string()),
    }
}
