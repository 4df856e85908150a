//! The shortest program that awaits a device and does something else meanwhile. `fill.rs` says more.

use gpu_async_reactor::backend::software::SoftwareDevice;
use gpu_async_reactor::host::{StdClock, StdIdle};
use gpu_async_reactor::{DurNs, Executor, Reactor, ReactorPort, Result, WaitPlan, wait, yield_now};
use std::cell::Cell;

async fn other_work(rounds: &Cell<u64>) {
    loop {
        rounds.set(rounds.get() + 1);
        yield_now().await;
    }
}

fn main() -> Result<()> {
    let plan = WaitPlan::parse("spin:backstop_us=1000")?;
    let reactor = Reactor::new(StdClock::new());
    let (mut idle, _) = StdIdle::probe(StdClock::new());
    let stream = SoftwareDevice::new()?.stream()?;

    let rounds = Cell::new(0);
    let mut executor = Executor::new();
    executor.spawn(other_work(&rounds));

    stream.delay(DurNs::from_ms(2))?; // the device works
    let mut port = ReactorPort::new(stream, &reactor);
    let done = wait(&plan, None, &mut port, &reactor);
    let (waited, _) = executor.run_until(&reactor, &mut idle, DurNs::from_ms(1), done)?;
    println!("done after {}, with {} rounds of other work", waited?.elapsed, rounds.get());
    Ok(())
}
