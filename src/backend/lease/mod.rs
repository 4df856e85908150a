//! Buffers that a device is using: out of the host's reach until the device is done with them.
//!
//! A [`Lease`] takes a [`DeviceBuffer`] away from the program for as long as work that was queued
//! with its address may run, and hands it back once the stream's status says that the mark behind
//! that work is done. The word alone never does: it may come before the status, and after a fault
//! it may come although the work did not end. A [`Readback`] is a lease whose work is a copy to the
//! program, read as a slice afterwards.
//!
//! # The way of a buffer
//!
//! ```text
//!         Lease::new          try_take, wait: the status says done
//! program ----------> leased ----------------------------------------> program
//!                       |  \
//!                       |   `-- mark refused ----------------------.
//!                  drop |                                          v
//!                       `--> waiting --sweep: the status errs--> leaked
//!                               |
//!                               `----sweep: the status says done--> dropped
//! ```
//!
//! A dropped lease neither blocks, nor frees, nor allocates: the place of its buffer in the
//! [`Reclaim`] list of its stream is the block that the lease was made with. The list is swept by
//! the next lease on the stream, by [`LeaseStream::sweep`], and when the stream goes. A lease that
//! is forgotten frees nothing, and keeps its stream.
//!
//! # Who owns whom
//!
//! A lease holds an `Arc` of its stream, a stream owns its list, and a buffer in the list holds a
//! `Weak` of the stream, of which the status is asked. There is no cycle, and only the stream that a
//! lease was made on can say that it is over.
//!
//! # Memory ordering
//!
//! A buffer is handed back after [`query_mark`](crate::DeviceStream::query_mark) returned `true`,
//! which is an acquire of everything the device wrote before the mark.
//!
//! # Cost
//!
//! One allocation and one mark a lease, one status query for handing the buffer back. Dropping a lease
//! is one compare-and-swap. A new lease looks at the word, and where the oldest waiting number is
//! reached walks the waiting buffers and asks the status of those whose number is there.
#![cfg_attr(feature = "software", doc = "", doc = include_str!("compile_fail.md"))]

mod buffer;
mod held;
#[cfg(all(test, loom))]
mod model;
mod node;
mod not_yet;
mod pinned;
mod readback;
mod reclaim;
mod stats;

pub use buffer::{DeviceBuffer, Plain};
pub use held::{DeviceSide, Lease};
pub use not_yet::{NotYet, NotYetReason};
pub use pinned::PinnedBuffer;
pub use readback::{Landed, Readback};
pub use reclaim::Reclaim;
#[cfg(any(feature = "cuda", feature = "hip"))]
pub(in crate::backend) use reclaim::is_of_the_caller;
pub use stats::{LeaseCounts, LeaseStats};

use crate::core::port::DeviceStream;

/// What a [`Lease`] asks of the stream that uses its buffer: the status of a mark, also after the
/// program has dropped its handle of the stream.
///
/// Whoever queues work with the address of a leased buffer relies on this stream's
/// [`query_mark`](DeviceStream::query_mark): that it answers `true` only once all that was queued
/// before the mark is done.
pub trait LeaseStream: DeviceStream + Send + Sync + 'static {
    /// Where buffers wait whose lease was dropped early. It is this stream's own.
    fn reclaim(&self) -> &Reclaim;

    /// Asks the status of every waiting buffer: drops what the device is done with, leaks and counts
    /// what stands behind an error. Returns how many it dropped.
    ///
    /// A panic of a buffer's destructor is contained and counted
    /// ([`panicked`](LeaseStats::panicked)). Costs one status query where all are done or none is, and
    /// otherwise one for each halving of the numbers between the first and the last of them.
    fn sweep(&self) -> usize {
        self.reclaim().sweep()
    }
}
