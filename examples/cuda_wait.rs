//! Waits for real work on an NVIDIA device under every plan.
//!
//! ```text
//! cargo run --release --features cuda --example cuda_wait [-- LIBRARY]
//! ```
//!
//! The work is a chain of fills of device memory on a stream of this crate's; the caller checks what came back.
//! A program's own kernels go onto the same stream, by its handle.

use gpu_async_reactor::Result;
use gpu_async_reactor::backend::cuda::{CudaDevice, CudaDriver};
use std::process::ExitCode;

#[path = "support/plans.rs"]
mod plans;

const BYTES: usize = 64 << 20;
const FILLS: u32 = 16;

fn open() -> Result<CudaDevice> {
    let driver = match std::env::args_os().nth(1) {
        // SAFETY: the library is the vendor's, or one with its interface, says the caller.
        Some(path) => unsafe { CudaDriver::load_from(path.as_ref()) }?,
        None => CudaDriver::load()?,
    };
    let device = driver.device(0)?;
    let (major, minor) = driver.version()?;
    println!("{}, driver for CUDA {major}.{minor}", driver.device_name(0)?);
    println!("stores land: {:?}, by {:?}", device.caps().store, device.store_form());
    Ok(device)
}

fn main() -> ExitCode {
    let done = run();
    if let Err(error) = &done {
        eprintln!("error: {error}");
    }
    ExitCode::from(u8::from(done.is_err()))
}

fn run() -> Result<()> {
    let device = open()?;
    let memory = device.memory(BYTES)?;
    plans::table(
        &device.caps(),
        || device.doorbell(),
        |bell| device.stream_on(bell),
        |stream, number| {
            let value = number as u8;
            stream.fill(&memory, value, FILLS)?;
            let pinned = device.pinned(4096)?;
            let copied = stream.copy_back::<u8, _>(&memory, BYTES - 4096..BYTES, pinned)?;
            Ok(move || {
                let landed = copied.try_read().expect("the wait was for what came behind it");
                assert!(landed.iter().all(|byte| *byte == value), "the device did the work");
                Ok(())
            })
        },
    )?;
    drop(memory);
    let report = device.close()?;
    assert_eq!((report.held, report.leaked), (0, 0), "everything was dropped: {report:?}");
    Ok(())
}
