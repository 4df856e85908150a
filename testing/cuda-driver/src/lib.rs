//! A test driver with the ABI and the soname of NVIDIA's `libcuda.so.1`, over the fake device of
//! [`driver_core`].
//!
//! Source of every name, number and layout: `cuda.h` of CUDA 12.9 and 13.5, which agree on what is
//! used here. The entry points are those that the header's macros lead to without the per-thread
//! default stream (`cuCtxCreate` is `cuCtxCreate_v2`, and so on).
//!
//! The memory operations of the first kind (without `_v2`) are there as well. They ask the attributes
//! `CAN_USE_STREAM_MEM_OPS_V1` and `CAN_USE_64_BIT_STREAM_MEM_OPS_V1`, those of the second kind
//! `CAN_USE_64_BIT_STREAM_MEM_OPS` where they store 64 bits, and answer `NOT_SUPPORTED` without.
#![cfg(target_os = "linux")]

mod batch;
mod entries;
mod layout;
mod rules;
mod status;

pub use entries::*;
pub use layout::{MemoryBarrierParams, Params, WriteValueParams};
pub use rules::{ENTRIES, attribute, driver};

driver_core::control!(rules::driver);
