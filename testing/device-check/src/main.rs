//! Runs the backends on the devices of this machine, and says of each case: run, skipped (why) or failed.
//!
//! A backend that was asked for and ran no case is a failure. `scripts/device-check` runs this and keeps its report.

mod cases;
mod cuda;
mod hip;
mod mapped;
mod samples;
mod software;
mod vulkan;

use cases::Cases;
use clap::{Parser, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs the backends on the devices of this machine.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  device-check cuda vulkan\n  device-check --cuda-library ./libcuda.so.1 cuda"
)]
struct Args {
    /// The backends that must run.
    #[arg(required = true)]
    backends: Vec<Backend>,
    /// Opens this library instead of the system's CUDA driver.
    #[arg(long)]
    cuda_library: Option<PathBuf>,
    /// Opens this library instead of the system's HIP runtime.
    #[arg(long)]
    hip_library: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Backend {
    Software,
    Cuda,
    Hip,
    Vulkan,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut failed = false;
    for backend in &args.backends {
        let mut cases = match backend {
            Backend::Software => Cases::of("software"),
            Backend::Cuda => Cases::of("cuda"),
            Backend::Hip => Cases::of("hip"),
            Backend::Vulkan => Cases::of("vulkan"),
        };
        match backend {
            Backend::Software => software::run(&mut cases),
            Backend::Cuda => cuda::run(&mut cases, args.cuda_library.as_deref()),
            Backend::Hip => hip::run(&mut cases, args.hip_library.as_deref()),
            Backend::Vulkan => vulkan::run(&mut cases),
        }
        failed |= cases.conclude();
    }
    ExitCode::from(u8::from(failed))
}
