//! Buffers that a device is using: out of the host's reach until the device is done with them.

use crate::core::port::DeviceStream;
use core::ptr::NonNull;

mod reclaim;

pub use reclaim::{LeaseStats, Reclaim};

/// Memory that a device may read or write while the host has no access.
///
/// # Safety
///
/// The memory at [`address`](Self::address), [`bytes`](Self::bytes) long, is valid for reads and
/// writes of any thread, does not move when the value moves, and is freed or used again by nothing
/// but the value's own destructor. Nobody else holds a reference into it.
pub unsafe trait DeviceBuffer: Send + 'static {
    /// The host's address of the first byte.
    fn address(&self) -> NonNull<u8>;

    /// How many bytes there are.
    fn bytes(&self) -> usize;
}

/// What a [`Lease`] asks of the stream that uses its buffer: the status of a mark, also after the
/// program has dropped its handle of the stream.
pub trait LeaseStream: DeviceStream + Send + Sync + 'static {
    /// Where buffers wait whose lease was dropped early.
    fn reclaim(&self) -> &Reclaim;
}
