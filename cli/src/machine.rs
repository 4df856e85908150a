//! What this machine offers, and the devices of this build.

use gpu_async_reactor::backend::software::SoftwareDevice;
use gpu_async_reactor::host::{StdClock, StdIdle};
use gpu_async_reactor::{DeviceCaps, ExecutorCaps, HostCaps};

/// The clock, the idle of a thread of this host, and what was probed for it.
#[must_use]
pub fn host() -> (StdClock, StdIdle, HostCaps) {
    let clock = StdClock::new();
    let (idle, caps) = StdIdle::probe(clock);
    (clock, idle, caps)
}

/// What the software device offers, by one real store.
#[must_use]
pub fn software_device() -> DeviceCaps {
    match SoftwareDevice::new() {
        Ok(device) => device.caps(),
        Err(error) => DeviceCaps { store: Err(error.to_string()) },
    }
}

/// What the executors need: an idle of the standard library parks on a word by a stated policy.
#[must_use]
pub fn executors() -> ExecutorCaps {
    let why = "this build has no host over io_uring".to_string();
    ExecutorCaps { word_wait: Ok(()), io_uring: Err(why) }
}
