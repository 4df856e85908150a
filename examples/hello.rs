//! The shortest program that awaits a device and does something else meanwhile. `fill.rs` says more.

use gpu_async_reactor::backend::software::SoftwareDevice;
use gpu_async_reactor::host::Runtime;
use gpu_async_reactor::{DurNs, Result, yield_now};
use std::cell::Cell;
use std::rc::Rc;

async fn other_work(rounds: Rc<Cell<u64>>) {
    loop {
        rounds.set(rounds.get() + 1);
        yield_now().await;
    }
}

fn main() -> Result<()> {
    let runtime = Runtime::new("spin:backstop_us=1000", "gpu-reactor")?;
    let stream = SoftwareDevice::new()?.stream_on(runtime.doorbell())?;
    let rounds = Rc::new(Cell::new(0));
    runtime.spawn(other_work(rounds.clone()));

    stream.delay(DurNs::from_ms(2))?; // the device works
    let mut port = runtime.port(stream);
    let waited = runtime.block_on(runtime.wait("step", &mut port))??;
    println!("done after {}, with {} rounds of other work", waited.elapsed, rounds.get());
    println!("{}", runtime.stats());
    Ok(())
}
