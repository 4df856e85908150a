//! Copies on Apple's GPU, awaited and read back. On other systems it says that there is none.
//!
//! `cargo run --example metal_wait --features metal`

#[cfg(target_vendor = "apple")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use gpu_async_reactor::backend::lease::DeviceBuffer;
    use gpu_async_reactor::backend::metal::{MetalBuffer, MetalDevice};
    use gpu_async_reactor::host::{StdClock, StdIdle};
    use gpu_async_reactor::{HostCaps, ThreadPort, WaitPlan, run_inline};

    let device = MetalDevice::system_default()?;
    let stream = device.stream()?;
    let clock = StdClock::new();
    let (idle, host): (StdIdle, HostCaps) = StdIdle::probe(clock);
    // No word is written by the device, so this runs as `poll`, and says why.
    let plan = WaitPlan::parse("spin:backstop_us=500")?.resolve_on(&host, &device.caps());
    println!("{}", plan.label());
    if let Some(warning) = &plan.warning {
        println!("{warning}");
    }

    let mut source = MetalBuffer::new(&device, 4096)?;
    for (at, word) in source.as_mut_slice::<u32>().iter_mut().enumerate() {
        *word = at as u32;
    }
    let into = MetalBuffer::new(&device, 4096)?;
    let readback = stream.read_back::<u32>(&source.raw(), 0..4096, into)?;
    let ticket = readback.ticket();
    let mut port = ThreadPort::new(&stream, idle);
    let (landed, waited) =
        run_inline(readback.wait(&plan.plan, None, &mut port.at(ticket), &clock))??;
    println!("{} words after {}, by {:?}", landed.len(), waited.elapsed, waited.end);
    assert!(landed.iter().enumerate().all(|(at, &word)| word == at as u32));
    Ok(())
}

#[cfg(not(target_vendor = "apple"))]
fn main() {
    println!("no Metal: this is no system of Apple's");
}
