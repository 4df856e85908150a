//! What this machine offers, and the devices of this build.

use gpu_async_reactor::backend::software::SoftwareDevice;
use gpu_async_reactor::host::{StdClock, StdIdle};
use gpu_async_reactor::{DeviceCaps, HostCaps};

/// What this host offers to wait plans.
#[must_use]
pub fn host() -> HostCaps {
    StdIdle::probe(StdClock::new()).1
}

/// What the software device offers, by one real store.
#[must_use]
pub fn software_device() -> DeviceCaps {
    match SoftwareDevice::new() {
        Ok(device) => device.caps(),
        Err(error) => DeviceCaps { store: Err(error.to_string()) },
    }
}
