//! Waits for real work on an AMD device under every plan.
//!
//! ```text
//! cargo run --release --features hip --example hip_wait [-- LIBRARY]
//! ```
//!
//! The work is a chain of fills of device memory on a stream of this crate's; the caller checks what came back.
//! A program's own kernels go onto the same stream, by its handle.

use gpu_async_reactor::Result;
use gpu_async_reactor::backend::hip::{HipDevice, HipDriver, HipStream};
use gpu_async_reactor::backend::lease::DeviceBuffer;
use std::ffi::c_void;
use std::process::ExitCode;

#[path = "support/plans.rs"]
mod plans;

const BYTES: usize = 64 << 20;
const FILLS: usize = 16;

type Malloc = unsafe extern "C" fn(*mut *mut c_void, usize) -> i32;
type Memset = unsafe extern "C" fn(*mut c_void, i32, usize, *mut c_void) -> i32;

/// The program's own work: what it does with the runtime besides waiting.
struct Fills {
    memset: Memset,
    memory: u64,
}

impl Fills {
    fn new(driver: &HipDriver) -> Result<Self> {
        // SAFETY: the types are those of `hip_runtime_api.h`.
        let (allocate, memset) = unsafe {
            (
                driver.entry_point::<Malloc>("hipMalloc")?,
                driver.entry_point::<Memset>("hipMemsetAsync")?,
            )
        };
        let mut memory = std::ptr::null_mut();
        // SAFETY: the result outlives the call; device 0 is current to a new thread.
        let done = unsafe { allocate(&raw mut memory, BYTES) };
        assert_eq!(done, 0, "device memory of {BYTES} bytes");
        Ok(Fills { memset, memory: memory.expose_provenance() as u64 })
    }

    fn queue(&self, stream: &HipStream, value: u8) {
        let memory = std::ptr::with_exposed_provenance_mut(self.memory as usize);
        for _ in 0..FILLS {
            let stream = stream.handle().as_raw();
            // SAFETY: the memory is that long and stays; the stream is live.
            let queued = unsafe { (self.memset)(memory, i32::from(value), BYTES, stream) };
            assert_eq!(queued, 0, "hipMemsetAsync");
        }
    }
}

fn open() -> Result<(HipDriver, HipDevice)> {
    let driver = match std::env::args_os().nth(1) {
        // SAFETY: the library is the vendor's, or one with its interface, says the caller.
        Some(path) => unsafe { HipDriver::load_from(path.as_ref()) }?,
        None => HipDriver::load()?,
    };
    let device = driver.device(0)?;
    println!("HIP runtime {} of {}", driver.version()?, driver.library()?);
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
