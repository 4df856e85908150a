//! In what the two vendors differ.

use crate::refusal::Refusal;

/// What a test driver tells the fake device about its vendor.
pub struct Rules {
    /// The entry points, by name.
    pub entries: &'static [&'static str],
    /// The vendor's number of a refusal.
    pub code: fn(Refusal) -> i32,
    /// Attributes of a device and their values. Others are unknown.
    pub attributes: &'static [(i32, i32)],
    /// The attribute that says that host memory has one address on host and device.
    pub unified: i32,
    /// What the driver answers when asked for its version, unless told otherwise.
    pub version: i32,
    /// Whether a thread has a current device, whose context is always there, instead of a stack of
    /// contexts, and whether the first call initialises.
    pub by_device: bool,
    /// Whether the status of an event that was never recorded is success.
    pub unrecorded_is_ready: bool,
    /// Whether a host function may call entry points. Where not, it is refused and logged.
    pub host_functions_may_call: bool,
}
