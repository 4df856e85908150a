//! Three waits for a device and a task that works meanwhile, on one thread.
//!
//! ```text
//! cargo run --release --example fill
//! ```
//!
//! The device is the embedded software device, so that this runs anywhere; a stream of a GPU takes
//! its place without any other change.

use gpu_async_reactor::backend::software::{SoftwareDevice, SoftwareStream};
use gpu_async_reactor::host::{StdClock, StdIdle};
use gpu_async_reactor::{
    Clock, Doorbell, DurNs, Error, Executor, JoinHandle, Reactor, ReactorPort, Result, WaitPlan,
    wait, yield_now,
};

/// One step: work of `work_ms` on a stream, and the wait for its end.
async fn step(
    name: &str,
    work_ms: u64,
    stream: SoftwareStream,
    plan: &WaitPlan,
    reactor: &Reactor<'static, StdClock>,
) -> Result<()> {
    stream.delay(DurNs::from_ms(work_ms))?;

    // While this line waits, the thread does whatever else is ready.
    let waited = wait(plan, None, &mut ReactorPort::new(stream, reactor), reactor).await?;

    println!("{name:<8} {work_ms:>3} ms of work, seen after {:>6} us", waited.elapsed.as_us());
    Ok(())
}

/// Counts primes until it is told that nobody waits any more, and gives way after each thousand numbers.
async fn count_primes_until(done: impl Fn() -> bool) -> (u64, u64) {
    let is_prime = |n: u64| n > 1 && (2..).take_while(|d| d * d <= n).all(|d| n % d != 0);
    let (mut tested, mut primes) = (0, 0);
    while !done() {
        primes += (tested..tested + 1_000).filter(|&n| is_prime(n)).count() as u64;
        tested += 1_000;
        yield_now().await;
    }
    (tested, primes)
}

fn main() -> Result<()> {
    // How a wait is spent: read the word that the device stores behind its work, and ask the driver
    // once a millisecond, since a device that has failed stores nothing.
    let plan = WaitPlan::parse("spin:backstop_us=1000")?;

    // The device rings the doorbell after each store. The reactor watches it for all streams.
    let clock = StdClock::new();
    let doorbell = Doorbell::new();
    let reactor = Reactor::with_doorbell(clock, &doorbell);
    let device = SoftwareDevice::new()?;

    let work = [("prefill", 40), ("decode", 10), ("sample", 2)];
    let mut executor = Executor::new();
    let mut steps = Vec::new();
    for (name, work_ms) in work {
        let stream = device.stream_on(&doorbell)?;
        steps.push(executor.spawn(step(name, work_ms, stream, &plan, &reactor)));
    }
    let main = async {
        let counted = count_primes_until(|| steps.iter().all(JoinHandle::is_finished)).await;
        for step in steps {
            step.await??; // that of the task, then that of its wait
        }
        Ok::<_, Error>(counted)
    };

    // Runs everything until the main task is over. Were nothing ready, the thread would idle by this.
    let (mut idle, _) = StdIdle::probe(clock);
    let began = clock.monotonic_ns();
    let (counted, stats) = executor.run_until(&reactor, &mut idle, DurNs::from_ms(1), main)?;
    let (tested, primes) = counted?;

    let took = clock.monotonic_ns().since(began);
    println!("meanwhile {primes} primes below {tested}, in {took}");
    println!("{} task switches, {} without anything to do", stats.polls, DurNs(stats.idle_ns));
    Ok(())
}
