//! When a store is seen, against when its semaphore is seen to be signalled.
//!
//! ```text
//! cargo run --release --features vulkan --example vulkan_latency [-- PART_OF_A_DEVICE_NAME]
//! ```
//!
//! Marks behind no work, so that what is measured is the way of the news alone: from before
//! `VulkanStream::mark` until the word is seen, until `vkGetSemaphoreCounterValue` agrees, and until
//! `vkWaitSemaphores` returns. Each row asks in its own way, and for marks of its own.

use gpu_async_reactor::backend::vulkan::{VulkanDevice, VulkanStream};
use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{Clock, DeviceStream, MonoNs, Result, reached};
use std::process::ExitCode;

const ROUNDS: usize = 5_000;

fn main() -> ExitCode {
    let done = run();
    if let Err(error) = &done {
        eprintln!("error: {error}");
    }
    ExitCode::from(u8::from(done.is_err()))
}

fn run() -> Result<()> {
    let mut builder = VulkanDevice::builder();
    if let Some(name) = std::env::args().nth(1) {
        builder = builder.named(name);
    }
    let device = builder.open()?;
    let bell = device.doorbell()?;
    println!("{}: {ROUNDS} marks a row, in us", device.name());
    println!("{:<60} {:>8} {:>8} {:>8}", "", "p50", "p99", "max");
    let clock = StdClock::new();
    let now = || Ok(clock.monotonic_ns());
    for (name, stream) in [("", device.stream()?), (", with doorbell", device.stream_on(&bell)?)] {
        let row = |what: &str, way: &mut dyn FnMut(u64) -> Result<MonoNs>| {
            measure(&clock, &stream, way)
                .map(|figures| print_row(&format!("{what}{name}"), &figures))
        };
        row("mark returns (record, vkQueueSubmit)", &mut |_| now())?;
        let mut early = 0;
        row("store seen", &mut |number| {
            while !seen(&stream, number) {
                std::hint::spin_loop();
            }
            let at = now();
            early += u64::from(!stream.query_mark(number)?);
            at
        })?;
        row("semaphore seen by vkGetSemaphoreCounterValue", &mut |number| {
            while !stream.query_mark(number)? {
                std::hint::spin_loop();
            }
            now()
        })?;
        row("vkWaitSemaphores returns", &mut |number| {
            stream.synchronize_mark(number)?;
            now()
        })?;
        println!("the store was there before the semaphore for {early} of {ROUNDS} marks\n");
    }
    drop(bell);
    assert_eq!(device.close()?, 0, "everything was dropped");
    Ok(())
}

fn seen(stream: &VulkanStream, number: u64) -> bool {
    reached((**stream.line()).as_ref(), stream.slot(), number)
}

/// From before each mark until the instant that `way` tells, in ascending order.
fn measure(
    clock: &StdClock,
    stream: &VulkanStream,
    way: &mut dyn FnMut(u64) -> Result<MonoNs>,
) -> Result<Vec<u64>> {
    let mut figures = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        // Nothing is in flight when a mark is made.
        stream.synchronize()?;
        let before = clock.monotonic_ns();
        let number = stream.mark()?;
        figures.push(way(number)?.since(before).0);
    }
    figures.sort_unstable();
    Ok(figures)
}

fn print_row(name: &str, figures: &[u64]) {
    let us = |rank: usize| figures[rank.min(figures.len() - 1)] as f64 / 1000.0;
    let (p50, p99, max) = (us(ROUNDS / 2), us(ROUNDS * 99 / 100), us(ROUNDS));
    println!("{name:<60} {p50:>8.1} {p99:>8.1} {max:>8.1}");
}
