//! The embedded software device: what the others are compared with.

use crate::cases::{Cases, seen, why};
use crate::samples::{every_plan, latency, many_streams, own_point};
use gpu_async_reactor::DurNs;
use gpu_async_reactor::backend::software::{SoftwareDevice, SoftwareStream};

/// The cases.
pub fn run(cases: &mut Cases) {
    let device = match SoftwareDevice::new() {
        Ok(device) => device,
        Err(error) => return cases.fail("start the workers", &error.to_string()),
    };
    cases.case("the start-up probe's store lands", || {
        device.caps().store?;
        seen("on a worker thread")
    });
    let delay = |stream: &SoftwareStream| stream.delay(DurNs::from_us(500)).map_err(why);
    cases.case("every plan ends when the work is done", || {
        let stream = device.stream().map_err(why)?;
        every_plan(&stream, |stream, _| delay(stream), |_, _| Ok(()))
    });
    cases
        .case("a wait ends with its own mark", || own_point(&device.stream().map_err(why)?, delay));
    cases
        .case("what a mark costs, and who knows first", || latency(&device.stream().map_err(why)?));
    cases.case("a thousand streams", || many_streams(1000, || device.stream().map_err(why)));
}
