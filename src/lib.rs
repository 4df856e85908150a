//! Await GPU work as a word of memory that the device writes behind it.
#![no_std]

#[cfg(not(target_has_atomic = "64"))]
compile_error!("gpu-async-reactor needs 64-bit atomics: a completion word is an AtomicU64");

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

#[cfg(feature = "software")]
pub mod backend;
mod core;
#[cfg(feature = "std")]
pub mod host;
#[cfg(feature = "std")]
mod monotonic;

pub use crate::core::doorbell::{Doorbell, DoorbellSnapshot};
pub use crate::core::error::{Error, ErrorCode, Result};
pub use crate::core::estimate::Outcome;
pub use crate::core::idle::Idle;
pub use crate::core::line::{
    CompletionLine, LINE_WORDS, MemoryDescriptor, OwnedDescriptor, SharedLine, Slot, reached,
};
pub use crate::core::plan::{DeadlinePlan, Park, WaitPlan};
pub use crate::core::pool::{DRAIN_LOOKS, SlotLease, SlotPool, SlotStats};
pub use crate::core::port::{CompletionPort, DeviceStream, run_inline};
pub use crate::core::time::{Clock, DurNs, ManualClock, MonoNs, Timer};
