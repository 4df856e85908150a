//! What is AMD's own about the device.

use crate::entries::ENTRIES;
use crate::status;
use driver_core::{
    Breaks, Driver, GreenStream, LastError, Rules, SleepingFlags, Traits, UnknownStream,
};

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
    host_functions_may_call: true,
    traits,
};

/// `HIP_VERSION` of a release: 10,000,000 times the major plus 100,000 times the minor number.
const fn release(major: i32, minor: i32) -> i32 {
    major * 10_000_000 + minor * 100_000
}

/// Source: AMD's runtime (`hipamd/src`) at the tags of ROCm 5.7, 6.0 to 6.3 and 7.x.
fn traits(version: i32) -> Traits {
    let is = |major, minor| version >= release(major, minor);
    Traits {
        // `hip_event.cpp`: `hipEventQuery` and `hipEventSynchronize` read the stream of the last record.
        event_reads_its_stream: true,
        // From 6.2 on, until the query was told from a captured event (ROCm/rocm-systems 3169).
        event_query_breaks_capture: is(6, 2) && !is(7, 2),
        event_wait_breaks_capture: !is(7, 2),
        // `hip_device_runtime.cpp` from 6.2 on: `CHECK_SUPPORTED_DURING_CAPTURE`.
        context_wait_breaks: if is(6, 2) { Breaks::All } else { Breaks::ByMode },
        // `hip::isValid` until 6.x; 7.x follows the pointer.
        unknown_stream: if is(7, 0) {
            UnknownStream::Followed
        } else {
            UnknownStream::ContextDestroyed
        },
        // `Event::synchronize`: 7.x compares the flags with hipEventBlockingSync.
        sleeping_flags: if is(7, 0) {
            SleepingFlags::BlockingAlone
        } else {
            SleepingFlags::WithBlocking
        },
        // `HIP_RETURN` of `hip_internal.hpp`.
        last_error: if is(7, 0) { LastError::Failures } else { LastError::EachCall },
        green_stream: GreenStream::Unsupported,
        // `hipStreamQuery` of the null stream: `WaitActiveStreams`.
        legacy_query_queues_marker: true,
    }
}

/// The device of this library.
pub fn driver() -> &'static Driver {
    Driver::of_library(&RULES)
}
