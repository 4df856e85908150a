//! What a bench measures waits on: a device, its streams, and work of a given length on them.
//!
//! A device is opened once for all plans, and asked once what it offers: the probe is a real store, whose
//! answer does not change.

mod mapped;
mod observer;
mod software;
mod vulkan;

pub use mapped::{CudaSubject, HipSubject};
pub use software::Software;
pub use vulkan::Vulkan;

use gpu_async_reactor::{DeviceCaps, DeviceStream, Doorbell, DurNs, MonoNs, Result};

/// A device that can be told to work for a while.
pub trait Subject {
    /// Its streams.
    type Stream: WorkStream;

    /// What it offers to wait plans, by one real store.
    fn caps(&self) -> DeviceCaps;

    /// A doorbell that it can ring; none where it rings any.
    ///
    /// # Errors
    ///
    /// The device's.
    fn doorbell(&self) -> Result<Option<Doorbell>>;

    /// A stream that rings `doorbell`.
    ///
    /// # Errors
    ///
    /// The device's.
    fn stream_on(&self, doorbell: &Doorbell) -> Result<Self::Stream>;
}

/// A stream that works for a while, and tells when it was done.
pub trait WorkStream: DeviceStream {
    /// Queues work of this length.
    ///
    /// # Errors
    ///
    /// The device's.
    fn work(&self, length: DurNs) -> Result<()>;

    /// When the device came to the mark of `number`, which is done.
    ///
    /// # Errors
    ///
    /// The device's.
    fn completed_at(&self, number: u64) -> Result<MonoNs>;

    /// How often the driver was called.
    fn driver_calls(&self) -> u64;
}
