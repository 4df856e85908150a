//! What the examples `software_wait`, `cuda_wait` and `hip_wait` share: waits for the same work under every plan, and
//! their table.

use gpu_async_reactor::host::{Runtime, thread_cpu_time};
use gpu_async_reactor::{DeviceCaps, DeviceStream, Doorbell, DurNs, Result};

const PLANS: [&str; 6] = [
    "block",
    "poll",
    "flag:park_us=50,backstop_us=1000",
    "spin:backstop_us=1000",
    "spin:backstop_us=1000+predict:margin_us=150,min_sleep_us=100,max_sleep_us=1000000,window=4",
    "poll+predict:margin_us=150,min_sleep_us=100,max_sleep_us=1000000,window=4",
];
const WAITS: u32 = 30;

/// Waits for `work`, which it queues on a stream for each plan, and prints how that went.
///
/// `work` gets the stream and the number of the wait, and queues; what it returns checks the result after the
/// wait.
pub fn table<S: DeviceStream, C: FnOnce() -> Result<()>>(
    caps: &DeviceCaps,
    mut doorbell: impl FnMut() -> Result<Doorbell>,
    mut stream_on: impl FnMut(&Doorbell) -> Result<S>,
    mut work: impl FnMut(&S, u32) -> Result<C>,
) -> Result<()> {
    println!(
        "{:>9} {:>9} {:>6} {:>8} {:>6}  plan",
        "p50 us", "p99 us", "CPU %", "queries", "parks"
    );
    for plan in PLANS {
        // The device rings the doorbell behind each store; the runtime watches it for all streams.
        let runtime = Runtime::builder(plan, "gpu-reactor")
            .doorbell(doorbell()?)
            .device(caps.clone())
            .build()?;
        let stream = stream_on(runtime.doorbell())?;
        let mut port = runtime.port(&stream);
        let mut elapsed = Vec::new();
        let (mut cpu, mut queries, mut parks) = (0, 0, 0);
        for number in 0..WAITS {
            // The device works ...
            let check = work(&stream, number)?;
            // ... and meanwhile this task waits. Others of the runtime would run.
            let before = thread_cpu_time().unwrap_or(DurNs::ZERO);
            let waited = runtime.block_on(runtime.wait("work", &mut port))??;
            cpu += thread_cpu_time().unwrap_or(DurNs::ZERO).0 - before.0;
            elapsed.push(waited.elapsed.0);
            (queries, parks) = (queries + waited.queries, parks + waited.parks);
            check()?;
        }
        let all: u64 = elapsed.iter().sum();
        elapsed.sort_unstable();
        let us = |share: usize| elapsed[(elapsed.len() - 1) * share / 100] as f64 / 1000.0;
        println!(
            "{:>9.1} {:>9.1} {:>6.1} {:>8.1} {:>6.1}  {}",
            us(50),
            us(99),
            100.0 * cpu as f64 / all.max(1) as f64,
            queries as f64 / f64::from(WAITS),
            parks as f64 / f64::from(WAITS),
            runtime.plans().label()
        );
    }
    Ok(())
}
