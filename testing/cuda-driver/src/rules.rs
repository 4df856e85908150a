//! What is NVIDIA's own about the device.

use driver_core::{
    Breaks, Driver, GreenStream, LastError, Refusal, Rules, SleepingFlags, Traits, UnknownStream,
};

/// Attributes by their numbers in `CUdevice_attribute`.
pub mod attribute {
    /// `CAN_MAP_HOST_MEMORY`
    pub const CAN_MAP_HOST_MEMORY: i32 = 19;
    /// `TCC_DRIVER`
    pub const TCC_DRIVER: i32 = 35;
    /// `UNIFIED_ADDRESSING`
    pub const UNIFIED_ADDRESSING: i32 = 41;
    /// `CAN_USE_STREAM_MEM_OPS_V1`
    pub const MEM_OPS_V1: i32 = 92;
    /// `CAN_USE_64_BIT_STREAM_MEM_OPS_V1`
    pub const MEM_OPS_64_V1: i32 = 93;
    /// `MEMORY_POOLS_SUPPORTED`
    pub const MEMORY_POOLS: i32 = 115;
    /// `CAN_USE_64_BIT_STREAM_MEM_OPS`
    pub const MEM_OPS_64: i32 = 122;
}

static RULES: Rules = Rules {
    entries: ENTRIES,
    code: Refusal::code,
    attributes: &[
        // COMPUTE_MODE: default.
        (20, 0),
        // PCI_BUS_ID, PCI_DEVICE_ID, PCI_DOMAIN_ID
        (33, 1),
        (34, 0),
        (50, 0),
        // COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR
        (75, 9),
        (76, 0),
        (attribute::CAN_MAP_HOST_MEMORY, 1),
        (attribute::TCC_DRIVER, 0),
        // Without it the device's addresses are not the host's: the stricter case.
        (attribute::UNIFIED_ADDRESSING, 0),
        (attribute::MEM_OPS_V1, 0),
        (attribute::MEM_OPS_64_V1, 0),
        (attribute::MEMORY_POOLS, 0),
        (attribute::MEM_OPS_64, 1),
    ],
    unified: attribute::UNIFIED_ADDRESSING,
    version: 12090,
    by_device: false,
    host_functions_may_call: false,
    traits,
};

/// Sources: `cuda.h` of 12.9 and 13.5 at the entry points, and "Prohibited and Unhandled Operations" of
/// stream capture in the CUDA Programming Guide.
fn traits(version: i32) -> Traits {
    Traits {
        event_reads_its_stream: false,
        event_query_breaks_capture: false,
        event_wait_breaks_capture: false,
        // "It is also invalid to query the execution status of or synchronize a broader handle which
        // encompasses an active stream capture, such as a device or context handle": in any mode.
        context_wait_breaks: Breaks::OfContext,
        unknown_stream: UnknownStream::InvalidHandle,
        // `cuEventSynchronize`: without CU_EVENT_BLOCKING_SYNC the thread busy-waits.
        sleeping_flags: SleepingFlags::WithBlocking,
        last_error: LastError::None,
        // `cuStreamGetCtx`: not supported in 12.x; in 13.x that of `cuCtxFromGreenCtx`.
        green_stream: if version < 13_000 {
            GreenStream::Unsupported
        } else {
            GreenStream::ContextOfItsOwn
        },
        legacy_query_queues_marker: false,
    }
}

pub use crate::entries::ENTRIES;

/// The device of this library.
pub fn driver() -> &'static Driver {
    Driver::of_library(&RULES)
}
