//! What the examples `cuda_wait` and `hip_wait` share: a chain of fills, whose result the caller checks.

use super::plans;
use gpu_async_reactor::Result;
use gpu_async_reactor::backend::mapped::{Device, Interface};

const BYTES: usize = 64 << 20;
const FILLS: u32 = 16;

/// Waits for fills of `device`'s memory under every plan, and closes it.
pub fn wait_for_fills<A: Interface>(device: &Device<A>) -> Result<()> {
    println!("stores land: {:?}, by {:?}", device.caps().store, device.store_form());
    let memory = device.memory(BYTES)?;
    plans::table(
        &device.caps(),
        || device.doorbell(),
        |bell| device.stream_on(bell),
        |stream, number| {
            let value = number as u8;
            stream.fill(&memory, value, FILLS)?;
            let pinned = device.pinned(4096)?;
            let copied = stream.copy_back::<u8, _>(&memory, BYTES - 4096..BYTES, pinned)?;
            Ok(move || {
                let landed = copied.try_read().expect("the wait was for what came behind it");
                assert!(landed.iter().all(|byte| *byte == value), "the device did the work");
                Ok(())
            })
        },
    )?;
    drop(memory);
    let report = device.close()?;
    assert_eq!((report.held, report.leaked), (0, 0), "everything was dropped: {report:?}");
    Ok(())
}
