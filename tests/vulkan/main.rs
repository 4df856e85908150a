//! The Vulkan backend on a real device, under the validation layer: a portable binary whose cases say run,
//! skipped (why) or failed.
//!
//! ```text
//! cargo test --features vulkan --test vulkan [-- PART_OF_A_NAME]
//! ```
//!
//! Without a device every case is skipped, with the reason. `GPU_REQUIRE_VULKAN=1` turns that, and a missing
//! validation layer, into a failure. One case runs at a time, each under a watchdog.

mod broken;
#[path = "../common/mod.rs"]
mod common;
mod errors;
mod faults;
mod injected;
mod leases;
mod lifetimes;
mod plans;
mod setup;
mod stores;

use std::panic::catch_unwind;
use std::process::ExitCode;

/// A case: its name, which is a sentence, and what it does.
pub type Case = (&'static str, fn());

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        /// The cases of this file.
        pub const CASES: &[$crate::Case] = &[$((stringify!($name), $name as fn())),*];
    };
}
pub(crate) use cases;

/// The parts of names that were asked for. Options are those of the usual harness, and mean nothing here.
fn wanted() -> Vec<String> {
    const WITH_VALUE: [&str; 5] = ["--test-threads", "--skip", "--format", "--color", "-Z"];
    let mut wanted = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if WITH_VALUE.contains(&arg.as_str()) {
            args.next();
        } else if !arg.starts_with('-') {
            wanted.push(arg);
        }
    }
    wanted
}

fn main() -> ExitCode {
    let wanted = wanted();
    if std::env::args().any(|arg| arg == "--list") {
        return ExitCode::SUCCESS;
    }
    let required = std::env::var("GPU_REQUIRE_VULKAN").is_ok_and(|value| value == "1");
    let missing = setup::missing();
    let (mut ran, mut skipped, mut failed) = (0, 0, Vec::new());
    let groups = [
        stores::CASES,
        plans::CASES,
        faults::CASES,
        lifetimes::CASES,
        leases::CASES,
        errors::CASES,
        injected::CASES,
    ];
    for &(name, case) in groups.into_iter().flatten() {
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        if let Some(why) = &missing {
            println!("{name}: skipped ({why})");
            skipped += 1;
            continue;
        }
        let watchdog = common::Watchdog::new(name);
        let ended = catch_unwind(case);
        drop(watchdog);
        println!("{name}: {}", if ended.is_ok() { "run" } else { "failed" });
        ran += 1;
        if ended.is_err() {
            failed.push(name);
        }
    }
    println!("\n{ran} run, {skipped} skipped, {} failed {failed:?}", failed.len());
    if required && missing.is_some() {
        println!("GPU_REQUIRE_VULKAN=1: {}", missing.unwrap_or_default());
        return ExitCode::FAILURE;
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(101) }
}
