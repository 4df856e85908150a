//! Waits for work of the embedded software device under every plan.
//!
//! ```text
//! cargo run --release --example software_wait
//! ```

use gpu_async_reactor::backend::software::{SoftwareBuffer, SoftwareDevice, Work};
use gpu_async_reactor::{Doorbell, DurNs, Result};

#[path = "support/plans.rs"]
mod plans;

fn main() -> Result<()> {
    let device = SoftwareDevice::new()?;
    let memory = SoftwareBuffer::new(4096);
    let caps = device.caps();
    println!("software device, stores land: {:?}", caps.store);
    plans::table(
        &caps,
        || Ok(Doorbell::new()),
        |bell| device.stream_on(bell),
        |stream, number| {
            let (to, from) = (memory.clone(), memory.clone());
            let bytes = vec![number as u8; 4096];
            stream.queue(Work::new().delay(DurNs::from_ms(2)).run(move || to.write(0, &bytes)))?;
            Ok(move || {
                let is_written = from.read(|bytes| bytes.iter().all(|byte| *byte == number as u8));
                assert!(is_written, "the device did the work");
                Ok(())
            })
        },
    )
}
