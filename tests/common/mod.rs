//! What tests over the software device share.
#![allow(dead_code, reason = "each test binary uses its own part of it")]

use gpu_async_reactor::backend::software::{SoftwareDevice, SoftwareStream};
use gpu_async_reactor::{DeviceStream, Error, ErrorCode, OwnedDescriptor, reached};
use std::thread;

pub fn device() -> SoftwareDevice {
    SoftwareDevice::new().unwrap()
}

/// Whether the word of `number` is there.
pub fn seen(stream: &SoftwareStream, number: u64) -> bool {
    reached((**stream.line()).as_ref(), stream.slot(), number)
}

/// The descriptor of `target`, which outlives the stream.
pub fn descriptor(stream: &SoftwareStream, target: u64) -> OwnedDescriptor {
    OwnedDescriptor { line: stream.line().clone(), slot: stream.slot(), target }
}

/// Waits for what is sure to come.
pub fn wait_for(what: impl Fn() -> bool) {
    while !what() {
        thread::yield_now();
    }
}

/// Whether `error` is the device's status `status`: a number and a name.
pub fn is_fault(error: &Error, status: &str) -> bool {
    error.code() == ErrorCode::Backend && error.args()[1] == status
}

/// Every method answers with the status, and does so again.
pub fn assert_faulted(stream: &SoftwareStream, status: &str) {
    for _ in 0..3 {
        assert!(is_fault(&stream.query().unwrap_err(), status));
        assert!(is_fault(&stream.query_mark(1).unwrap_err(), status));
        assert!(is_fault(&stream.synchronize().unwrap_err(), status));
        assert!(is_fault(&stream.synchronize_mark(1).unwrap_err(), status));
        assert!(is_fault(&stream.mark().unwrap_err(), status));
        assert!(is_fault(&stream.run(|| {}).unwrap_err(), status));
    }
}
