//! Waits for real work on an AMD device under every plan.
//!
//! ```text
//! cargo run --release --features hip --example hip_wait [-- LIBRARY]
//! ```
//!
//! The work is a chain of fills of device memory on a stream of this crate's; the caller checks what came back.
//! A program's own kernels go onto the same stream, by its handle.

use gpu_async_reactor::Result;
use gpu_async_reactor::backend::hip::HipDriver;
use std::process::ExitCode;

#[path = "support/mapped.rs"]
mod mapped;
#[path = "support/plans.rs"]
mod plans;

fn main() -> ExitCode {
    let done = run();
    if let Err(error) = &done {
        eprintln!("error: {error}");
    }
    ExitCode::from(u8::from(done.is_err()))
}

fn run() -> Result<()> {
    let driver = match std::env::args_os().nth(1) {
        // SAFETY: the library is the vendor's, or one with its interface, says the caller.
        Some(path) => unsafe { HipDriver::load_from(path.as_ref()) }?,
        None => HipDriver::load()?,
    };
    println!("HIP runtime {} of {}", driver.version()?, driver.library()?);
    mapped::wait_for_fills(&driver.device(0)?)
}
