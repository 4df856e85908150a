//! The software device: worker threads that run in-order streams, for programs on machines without
//! a GPU and for testing how a program takes a device's faults.
//!
//! It is a device like any other: real threads, real memory, real time, seen through
//! [`DeviceStream`](crate::DeviceStream). What it adds is a public way to make it fail, since a
//! real device cannot be asked to: sticky [`Fault`]s, work that [`Hang`]s, stores that are lost,
//! late or early ([`StoreFault`]), and status queries that fail or never answer ([`QueryFault`]).
//!
//! A fault is of one stream unless it says otherwise ([`Fault::of_the_device`]). A program that is to run
//! on CUDA should be tested with faults of the device, since there every stream has them; what it
//! does then is in `docs/recovery.md`.
//!
//! ```
//! use gpu_async_reactor::backend::software::{SoftwareDevice, Work};
//! use gpu_async_reactor::{DeviceStream, DurNs};
//!
//! let device = SoftwareDevice::new()?;
//! let stream = device.stream()?;
//! stream.queue(Work::new().delay(DurNs::from_us(300)).run(|| println!("on the device")))?;
//! let number = stream.mark()?;
//! stream.synchronize_mark(number)?;
//! assert!(stream.query_mark(number)?);
//! # Ok::<(), gpu_async_reactor::Error>(())
//! ```
//!
//! # The way of a piece of work
//!
//! ```text
//! queue()/mark() -> the stream's queue -> scheduler -> a worker -> word, doorbell, status
//!   stream.rs         queue.rs            worker.rs     run.rs      run.rs, status.rs
//! ```
//!
//! # Memory ordering
//!
//! A mark is three release stores in this order: the word, the doorbell, the status. A host that
//! has seen one of them with an acquire load sees what the work before the mark wrote. The status
//! comes last, as that of an event recorded behind a store does: a query can answer "pending"
//! shortly after the word was seen, and never "done" shortly before it. A sticky fault is visible
//! before any word that is stored after it.
//!
//! The two status queries agree: after a query of a mark said done, so does the query of everything,
//! if nothing was queued after the mark, and the other way round.
//!
//! # Cost
//!
//! A worker with nothing to do sleeps in the kernel at no CPU. Before the end of a delay one worker
//! spins (see [`SoftwareDeviceBuilder::spin_before`]). A status query is a few loads and one
//! counter, without a lock. Queueing takes the stream's lock, and the scheduler's where the stream
//! was idle; waking a sleeping worker then is a system call.
#![deny(unsafe_code)]

mod buffer;
mod device;
mod fault;
#[allow(unsafe_code, reason = "copies to and from leased memory, which the lease keeps for them")]
mod lease;
mod queue;
mod run;
mod stamp;
mod status;
mod stream;
mod work;
mod worker;

pub use buffer::SoftwareBuffer;
pub use device::{SoftwareDevice, SoftwareDeviceBuilder};
pub use fault::{Fault, Hang, QueryFault, StoreFault};
pub use stamp::STAMPS_KEPT;
pub use status::DriverCalls;
pub use stream::SoftwareStream;
pub use work::Work;

/// Locks, whoever panicked before: no invariant here is left half done by a panic, since no code
/// of a user runs under a lock of this module, buffers excepted, where it cannot break any.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs a user's code, a destructor included, and says whether it panicked. The worker lives on.
fn contain(code: impl FnOnce()) -> std::thread::Result<()> {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    // Nothing that the code could have left half done is used again: a stream whose work panicked
    // has faulted.
    catch_unwind(AssertUnwindSafe(code))
}
