//! A test driver with the ABI and the soname of AMD's `libamdhip64.so.6`, over the fake device of
//! [`driver_core`].
//!
//! Source of every name, number and layout: `hip/hip_runtime_api.h` of HIP 5.7. What versions differ in
//! is in `rules.rs`; the version is that of 6.3 unless it is [set](driver_core::Control::version).
//!
//! What is AMD's own: a thread has a current device instead of a context, the first call
//! initialises, an event remembers the stream of its last record, a thread has a last error, host memory is
//! mapped for every device, and whether the host sees a store before it synchronises depends on the
//! flags of the allocation, and without them on the environment: memory that is not coherent shows
//! what was stored after the next synchronising call only.
#![cfg(target_os = "linux")]

mod entries;
mod rules;
mod status;

pub use entries::*;
pub use rules::{attribute, driver, event_flag, host_flag};

driver_core::control!(rules::driver);
