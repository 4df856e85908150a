//! NVIDIA's driver.

use crate::cases::{Cases, seen, why};
use crate::mapped::{self, Work};
use gpu_async_reactor::Result;
use gpu_async_reactor::backend::cuda::{Cuda, CudaDriver, CudaStream};
use std::ffi::c_void;
use std::path::Path;

const BYTES: usize = 64 << 20;
const FILLS: usize = 8;

type Handle = *mut c_void;
type Retain = unsafe extern "C" fn(*mut Handle, i32) -> i32;
type Bind = unsafe extern "C" fn(Handle) -> i32;
type Allocate = unsafe extern "C" fn(*mut u64, usize) -> i32;
type Memset = unsafe extern "C" fn(u64, u8, usize, Handle) -> i32;
type BeginCapture = unsafe extern "C" fn(Handle, i32) -> i32;
type EndCapture = unsafe extern "C" fn(Handle, *mut Handle) -> i32;

struct Calls {
    memset: Memset,
    bind: Bind,
    begin_capture: BeginCapture,
    end_capture: EndCapture,
    context: usize,
    memory: u64,
}

/// What a status of the driver's means for a case.
fn status(call: &str, status: i32) -> std::result::Result<(), String> {
    if status == 0 { Ok(()) } else { Err(format!("{call}: {status}")) }
}

impl Calls {
    fn new(driver: &CudaDriver) -> Result<Self> {
        // SAFETY: the types are those of `cuda.h`.
        let (retain, bind, allocate, memset, begin_capture, end_capture) = unsafe {
            (
                driver.entry_point::<Retain>("cuDevicePrimaryCtxRetain")?,
                driver.entry_point::<Bind>("cuCtxSetCurrent")?,
                driver.entry_point::<Allocate>("cuMemAlloc_v2")?,
                driver.entry_point::<Memset>("cuMemsetD8Async")?,
                driver.entry_point::<BeginCapture>("cuStreamBeginCapture_v2")?,
                driver.entry_point::<EndCapture>("cuStreamEndCapture")?,
            )
        };
        let (mut context, mut memory) = (std::ptr::null_mut(), 0);
        // SAFETY: the results outlive the calls; the context is device 0's, now current here.
        let done = unsafe {
            [retain(&raw mut context, 0), bind(context), allocate(&raw mut memory, BYTES)]
        };
        assert_eq!(done, [0; 3], "device memory of {BYTES} bytes");
        let context = context.expose_provenance();
        Ok(Calls { memset, bind, begin_capture, end_capture, context, memory })
    }

    fn bind(&self) -> std::result::Result<(), String> {
        let context = std::ptr::with_exposed_provenance_mut(self.context);
        // SAFETY: the context is retained for ever.
        status("cuCtxSetCurrent", unsafe { (self.bind)(context) })
    }
}

impl Work<Cuda> for Calls {
    fn fill(&self, stream: &CudaStream, value: u8) -> std::result::Result<(), String> {
        self.bind()?;
        for _ in 0..FILLS {
            let stream = stream.handle().as_raw();
            // SAFETY: the memory is that long and stays; the stream is live.
            let queued = unsafe { (self.memset)(self.memory, value, BYTES, stream) };
            status("cuMemsetD8Async", queued)?;
        }
        Ok(())
    }

    fn memory(&self) -> u64 {
        self.memory
    }

    fn begin_capture(&self, stream: &CudaStream) -> std::result::Result<(), String> {
        self.bind()?;
        // SAFETY: the stream is live; 0 is the global mode.
        status("cuStreamBeginCapture", unsafe { (self.begin_capture)(stream.handle().as_raw(), 0) })
    }

    fn end_capture(&self, stream: &CudaStream) -> std::result::Result<bool, String> {
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
