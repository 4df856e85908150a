//! What is AMD's own about the device.

use crate::entries::ENTRIES;
use crate::status;
use driver_core::{Driver, Rules};

/// Attributes by their numbers in `hipDeviceAttribute_t`.
pub mod attribute {
    /// `hipDeviceAttributeCanMapHostMemory`
    pub const CAN_MAP_HOST_MEMORY: i32 = 3;
    /// `hipDeviceAttributeUnifiedAddressing`
    pub const UNIFIED_ADDRESSING: i32 = 85;
    /// `hipDeviceAttributeCanUseStreamWaitValue`
    pub const CAN_USE_STREAM_WAIT_VALUE: i32 = 10013;
}

/// Flags of `hipHostMalloc`.
pub mod host_flag {
    /// `hipHostMallocPortable`
    pub const PORTABLE: u32 = 0x1;
    /// `hipHostMallocMapped`
    pub const MAPPED: u32 = 0x2;
    /// `hipHostMallocWriteCombined`
    pub const WRITE_COMBINED: u32 = 0x4;
    /// `hipHostMallocNumaUser`
    pub const NUMA_USER: u32 = 0x2000_0000;
    /// `hipHostMallocCoherent`
    pub const COHERENT: u32 = 0x4000_0000;
    /// `hipHostMallocNonCoherent`
    pub const NON_COHERENT: u32 = 0x8000_0000;
}

/// Flags of `hipEventCreateWithFlags`.
pub mod event_flag {
    /// `hipEventBlockingSync`
    pub const BLOCKING_SYNC: u32 = 0x1;
    /// `hipEventDisableTiming`
    pub const DISABLE_TIMING: u32 = 0x2;
    /// `hipEventInterprocess`
    pub const INTERPROCESS: u32 = 0x4;
    /// `hipEventDisableSystemFence`
    pub const DISABLE_SYSTEM_FENCE: u32 = 0x2000_0000;
    /// `hipEventReleaseToDevice`
    pub const RELEASE_TO_DEVICE: u32 = 0x4000_0000;
    /// `hipEventReleaseToSystem`
    pub const RELEASE_TO_SYSTEM: u32 = 0x8000_0000;
}

static RULES: Rules = Rules {
    entries: ENTRIES,
    code: status::code,
    attributes: &[
        (attribute::CAN_MAP_HOST_MEMORY, 1),
        // hipDeviceAttributeComputeMode: default.
        (6, 0),
        // hipDeviceAttributeIntegrated
        (16, 0),
        // hipDeviceAttributeComputeCapabilityMajor, hipDeviceAttributeComputeCapabilityMinor
        (23, 9),
        (61, 0),
        // hipDeviceAttributePciBusId, hipDeviceAttributePciDeviceId, hipDeviceAttributePciDomainID
        (67, 1),
        (68, 0),
        (69, 0),
        // Without it the device's addresses are not the host's: the stricter case.
        (attribute::UNIFIED_ADDRESSING, 0),
        // hipDeviceAttributeMemoryPoolsSupported
        (88, 0),
        (attribute::CAN_USE_STREAM_WAIT_VALUE, 1),
        // hipDeviceAttributeFineGrainSupport
        (10016, 1),
    ],
    unified: attribute::UNIFIED_ADDRESSING,
    // HIP_VERSION of 6.3.0.
    version: 60_300_000,
    by_device: true,
    unrecorded_is_ready: false,
    host_functions_may_call: true,
};

/// The device of this library.
pub fn driver() -> &'static Driver {
    Driver::of_library(&RULES)
}
