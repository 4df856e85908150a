//! Await GPU work as a word of memory that the device writes behind it.
#![cfg_attr(all(feature = "std", feature = "software"), doc = "", doc = include_str!("../README.md"))]
#![no_std]

#[cfg(not(target_has_atomic = "64"))]
compile_error!("gpu-async-reactor needs 64-bit atomics: a completion word is an AtomicU64");

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

#[cfg(all(feature = "std", target_has_atomic = "64"))]
pub mod backend;
#[cfg(target_has_atomic = "64")]
mod contain;
#[cfg(target_has_atomic = "64")]
mod core;
#[cfg(all(any(feature = "cuda", feature = "hip", feature = "vulkan"), target_has_atomic = "64"))]
#[allow(unsafe_code, reason = "registers a handler with the system")]
mod exit;
#[cfg(all(feature = "std", target_has_atomic = "64"))]
mod fork;
#[cfg(all(feature = "std", target_has_atomic = "64"))]
pub mod host;
#[cfg(all(feature = "std", target_has_atomic = "64"))]
mod monotonic;
#[cfg(all(feature = "serde", target_has_atomic = "64"))]
mod serde_text;

/// Everything but the compile error above: where it stands, it stands alone.
macro_rules! where_a_word_is_atomic {
    ($($export:item)*) => { $(#[cfg(target_has_atomic = "64")] $export)* };
}

where_a_word_is_atomic! {
    pub use crate::core::doorbell::{Doorbell, DoorbellSnapshot};
    pub use crate::core::error::{Error, ErrorCode, Result};
    pub use crate::core::estimate::{Outcome, PointEstimate, PointTable};
    pub use crate::core::executor::{Executor, JoinHandle, RunStats, Spawner, YieldNow, yield_now};
    pub use crate::core::fallback::Link;
    pub use crate::core::idle::Idle;
    pub use crate::core::line::{
        CompletionLine, LINE_WORDS, MemoryDescriptor, OwnedDescriptor, SharedLine, Slot, reached,
    };
    pub use crate::core::plan::{
        BANDS_MAX, Capability, DeadlinePlan, DeviceCaps, FALLBACKS, Fallback, HostCaps, Park, ParkKind,
        Resolved, ResolvedBands, StepRows, WINDOW_MAX, WaitBands, WaitPlan,
    };
    pub use crate::core::pool::{DRAIN_LOOKS, SlotLease, SlotPool, SlotStats};
    pub use crate::core::port::{
        CompletionPort, DeviceStream, End, ReactorPort, SpinEnd, Spun, ThreadPort, Ticket, WaitError,
        Waited, run_inline, wait, wait_until,
    };
    pub use crate::core::reactor::{Alarmed, Reactor, Ready, Turn};
    pub use crate::core::setting::{
        Declared, ExecutorCaps, ExecutorKind, ExecutorNeed, Setting, Strictness, resolve,
    };
    pub use crate::core::time::{Clock, DurNs, ManualClock, MonoNs, Timer};
}
