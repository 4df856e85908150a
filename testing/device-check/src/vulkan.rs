//! A Vulkan device.

use crate::cases::{Cases, seen, why};
use crate::samples::{every_plan, latency, many_streams, own_point};
use gpu_async_reactor::DeviceStream;
use gpu_async_reactor::backend::vulkan::{VulkanDevice, VulkanStream};

const BYTES: usize = 8 << 20;

/// The cases.
pub fn run(cases: &mut Cases) {
    let device = match VulkanDevice::open() {
        Ok(device) => device,
        Err(error) => return cases.skip("everything", &error.to_string()),
    };
    let buffer = match device.buffer(BYTES) {
        Ok(buffer) => buffer,
        Err(error) => return cases.fail("device memory", &error.to_string()),
    };
    cases.case("the start-up probe's store lands", || {
        device.caps().store?;
        seen(device.name())
    });
    let fill = |stream: &VulkanStream, value: u8| {
        stream.fill(&buffer, u32::from(value), 8).map(drop).map_err(why)
    };
    cases.case("every plan ends when the work is done", || {
        every_plan(&device.stream().map_err(why)?, fill, |stream, value| {
            let pinned = device.pinned(4096).map_err(why)?;
            let copied = stream.read_back::<u32>(&buffer, 0, 1024, pinned).map_err(why)?;
            stream.synchronize().map_err(why)?;
            let landed = copied.try_read().map_err(|not_yet| format!("{not_yet:?}"))?;
            match landed.iter().position(|word| *word != u32::from(value)) {
                None => Ok(()),
                Some(at) => Err(format!("word {at} is {} instead of {value}", landed[at])),
            }
        })
    });
    cases.case("a wait ends with its own mark", || {
        own_point(&device.stream().map_err(why)?, |stream| fill(stream, 1))
    });
    cases
        .case("what a mark costs, and who knows first", || latency(&device.stream().map_err(why)?));
    cases.case("a thousand streams", || many_streams(1000, || device.stream().map_err(why)));
    drop(buffer);
    cases.case("a close frees everything", || match device.close().map_err(why)? {
        0 => seen(format!("{:?}", device.stats())),
        held => Err(format!("{held} are held: {:?}", device.stats())),
    });
}
