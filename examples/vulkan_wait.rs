//! Waits for real work on a Vulkan device under every plan.
//!
//! ```text
//! cargo run --release --features vulkan --example vulkan_wait [-- PART_OF_A_DEVICE_NAME]
//! ```
//!
//! The work is a chain of fills that ends in a readback; the caller checks what came back. A program with
//! command buffers of its own queues them by `VulkanStream::submit` instead. Lavapipe, Mesa's device in
//! software, serves where no GPU is; its work then runs on the cores that the waits are measured on.

use gpu_async_reactor::backend::vulkan::VulkanDevice;
use gpu_async_reactor::host::{Runtime, thread_cpu_time};
use gpu_async_reactor::{Clock, Result};
use std::process::ExitCode;

const PLANS: [&str; 6] = [
    "block",
    "poll",
    "flag:park_us=50,backstop_us=1000",
    "spin:backstop_us=1000",
    "spin:backstop_us=1000+predict:margin_us=300,min_sleep_us=100,max_sleep_us=1000000,window=4",
    "poll+predict:margin_us=300,min_sleep_us=100,max_sleep_us=1000000,window=4",
];
const WAITS: u32 = 30;
const BYTES: usize = 8 << 20;

fn main() -> ExitCode {
    let done = run();
    if let Err(error) = &done {
        eprintln!("error: {error}");
    }
    ExitCode::from(u8::from(done.is_err()))
}

fn run() -> Result<()> {
    let mut builder = VulkanDevice::builder().timestamps(true);
    if let Some(name) = std::env::args().nth(1) {
        builder = builder.named(name);
    }
    let device = builder.open()?;
    let caps = device.caps();
    println!("{}, stores land: {:?}", device.name(), caps.store);
    println!("{:>9} {:>9} {:>6} {:>6}  plan", "work us", "late us", "CPU %", "calls");
    for plan in PLANS {
        // The device rings the doorbell behind each store; the runtime watches it for all streams.
        let runtime = Runtime::builder(plan, "gpu-reactor")
            .doorbell(device.doorbell()?)
            .device(caps.clone())
            .build()?;
        let stream = device.stream_on(runtime.doorbell())?;
        let buffer = device.buffer(BYTES)?;
        let mut pinned = device.pinned(4096)?;
        let port = runtime.port(&stream);
        let (mut work, mut late) = (Vec::new(), Vec::new());
        let (mut cpu, mut waited_ns) = (0, 0);
        let calls = stream.calls().total();
        for value in 0..WAITS {
            // The device works ...
            let start = port.mark()?;
            stream.fill(&buffer, value, 8)?;
            let readback = stream.read_back::<u32>(&buffer, BYTES - 4096, 1024, pinned)?;
            // ... and meanwhile this task waits. Others of the runtime would run.
            let cpu_before = thread_cpu_time();
            let ticket = readback.ticket();
            let waited = runtime.block_on(runtime.wait("fill", &mut port.at(ticket)))??;
            let resumed = runtime.clock().monotonic_ns();
            cpu +=
                thread_cpu_time().zip(cpu_before).map_or(0, |(after, before)| after.0 - before.0);
            waited_ns += waited.elapsed.0;
            let landed = readback.try_read().expect("the wait ended well");
            assert!(landed.iter().all(|&number| number == value), "the device did the work");
            pinned = landed.into_buffer();
            let instant = |number| stream.completed_at(number);
            if let (Some(began), Some(ended)) =
                (instant(start.number())?, instant(ticket.number())?)
            {
                work.push(ended.since(began).as_us());
                late.push(resumed.since(ended).0);
            }
        }
        let calls = (stream.calls().total() - calls) as f64 / f64::from(WAITS);
        let label = runtime.plans().label();
        let late = median(&mut late) as f64 / 1000.0;
        let share = 100.0 * cpu as f64 / waited_ns.max(1) as f64;
        println!("{:>9} {late:>9.1} {share:>6.1} {calls:>6.0}  {label}", median(&mut work));
    }
    let held = device.close()?;
    assert_eq!(held, 0, "everything was dropped");
    Ok(())
}

fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
