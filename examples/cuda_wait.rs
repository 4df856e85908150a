//! Waits for real work on an NVIDIA device under every plan.
//!
//! ```text
//! cargo run --release --features cuda --example cuda_wait [-- LIBRARY]
//! ```
//!
//! The work is a chain of fills of device memory on a stream of this crate's; the caller checks what came back.
//! A program's own kernels go onto the same stream, by its handle.

use gpu_async_reactor::Result;
use gpu_async_reactor::backend::cuda::{CudaDevice, CudaDriver, CudaStream};
use gpu_async_reactor::backend::lease::DeviceBuffer;
use std::ffi::c_void;
use std::process::ExitCode;

#[path = "support/plans.rs"]
mod plans;

const BYTES: usize = 64 << 20;
const FILLS: usize = 16;

type MemAlloc = unsafe extern "C" fn(*mut u64, usize) -> i32;
type Memset = unsafe extern "C" fn(u64, u8, usize, *mut c_void) -> i32;
type CtxSetCurrent = unsafe extern "C" fn(*mut c_void) -> i32;
type CtxRetain = unsafe extern "C" fn(*mut *mut c_void, i32) -> i32;

/// The program's own work: what it does with the driver besides waiting.
struct Fills {
    memset: Memset,
    memory: u64,
}

impl Fills {
    fn new(driver: &CudaDriver) -> Result<Self> {
        // SAFETY: the types are those of `cuda.h`.
        let (retain, bind, allocate, memset) = unsafe {
            (
                driver.entry_point::<CtxRetain>("cuDevicePrimaryCtxRetain")?,
                driver.entry_point::<CtxSetCurrent>("cuCtxSetCurrent")?,
                driver.entry_point::<MemAlloc>("cuMemAlloc_v2")?,
                driver.entry_point::<Memset>("cuMemsetD8Async")?,
            )
        };
        let (mut context, mut memory) = (std::ptr::null_mut(), 0);
        // SAFETY: the results outlive the calls; the context is that of device 0, now current here.
        let done = unsafe {
            [retain(&raw mut context, 0), bind(context), allocate(&raw mut memory, BYTES)]
        };
        assert_eq!(done, [0; 3], "device memory of {BYTES} bytes");
        Ok(Fills { memset, memory })
    }

    fn queue(&self, stream: &CudaStream, value: u8) {
        for _ in 0..FILLS {
            let stream = stream.handle().as_raw();
            // SAFETY: the memory is that long and stays; the stream is live.
            let queued = unsafe { (self.memset)(self.memory, value, BYTES, stream) };
            assert_eq!(queued, 0, "cuMemsetD8Async");
        }
    }
}

fn open() -> Result<(CudaDriver, CudaDevice)> {
    let driver = match std::env::args_os().nth(1) {
        // SAFETY: the library is the vendor's, or one with its interface, says the caller.
        Some(path) => unsafe { CudaDriver::load_from(path.as_ref()) }?,
        None => CudaDriver::load()?,
    };
    let device = driver.device(0)?;
    let (major, minor) = driver.version()?;
    println!("{}, driver for CUDA {major}.{minor}", driver.device_name(0)?);
    println!("stores land: {:?}, by {:?}", device.caps().store, device.store_form());
    Ok((driver, device))
}

fn main() -> ExitCode {
    let done = run();
    if let Err(error) = &done {
        eprintln!("error: {error}");
    }
    ExitCode::from(u8::from(done.is_err()))
}

fn run() -> Result<()> {
    let (driver, device) = open()?;
    let fills = Fills::new(&driver)?;
    plans::table(
        &device.caps(),
        || device.doorbell(),
        |bell| device.stream_on(bell),
        |stream, number| {
            let value = number as u8;
            fills.queue(stream, value);
            let pinned = device.pinned(4096)?;
            // SAFETY: the memory is longer, stays, and is written by this stream alone.
            let copied =
                unsafe { stream.read_back::<u8, _>(fills.memory, pinned.bytes(), pinned) }?;
            Ok(move || {
                let landed = copied.try_read().expect("the wait was for what came behind it");
                assert!(landed.iter().all(|byte| *byte == value), "the device did the work");
                Ok(())
            })
        },
    )?;
    let report = device.close()?;
    assert_eq!((report.held, report.leaked), (0, 0), "everything was dropped: {report:?}");
    Ok(())
}
