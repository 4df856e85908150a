//! What the backends share whose device writes words in page-locked host memory, by memory
//! operations of its streams: `cuda` and `hip`.
//!
//! A [`Device`] is a context of a [`Driver`]; it has pages of completion lines, a pool of events and
//! of pinned buffers, and makes [`Stream`]s. The two ports of this crate do the waiting. What is a
//! vendor's own is behind [`Interface`]: one driver call each, no state.
//!
//! # Memory
//!
//! Nothing is freed under a store that may be on its way, and no destructor makes a driver call
//! that can synchronise: what is dropped goes back to its context, and [`Device::close`] frees it
//! once what was queued is done. What cannot be freed then is counted.

mod alike;
mod asleep;
mod calls;
mod context;
mod device;
mod driver;
mod events;
mod gate;
mod handle;
mod home;
mod host_function;
mod lease;
mod library;
mod memory;
mod page;
mod pinned;
mod pool;
mod probe;
mod retired;
mod store;
mod stream;

#[cfg(feature = "cuda")]
pub(in crate::backend) use alike::EVENT_DISABLE_TIMING;
pub(in crate::backend) use alike::{
    Alike, CAPTURE_MODE_RELAXED, EVENT_BLOCKING_SYNC, Handle, INVALID_VALUE, Names,
};
pub use calls::Interface;
pub(in crate::backend) use calls::{Calls, HostFunction};
pub(in crate::backend) use context::Ownership;
pub use device::{CloseReport, Device, DeviceStats, StreamOwner};
pub use driver::Driver;
pub(in crate::backend) use driver::Opened;
pub use handle::{Created, StreamHandle};
pub use host_function::HostFunctionPort;
pub(in crate::backend) use library::{Library, entry_points};
pub use memory::DeviceMemory;
pub use page::{MappedLine, PAGE_BYTES};
pub use pinned::PinnedBuffer;
pub use store::{Form, Width};
pub(in crate::backend) use store::{Forms, Store, halves};
pub use stream::{Stream, StreamCalls};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also where a thread panicked with the lock held: each change under a lock is complete.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
