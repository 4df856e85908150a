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

use gpu_async_reactor::{DeviceCaps, DeviceStream, Doorbell, DurNs, Error, MonoNs, Result};

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

/// How many fills of `fill_ns` make work of `length`: at least one.
///
/// # Errors
///
/// That these are more than `most`, which the device would be done with too soon.
fn fills(length: DurNs, fill_ns: f64, most: u32) -> Result<u32> {
    let fills = (length.0 as f64 / fill_ns).round().max(1.0);
    if fills <= f64::from(most) {
        return Ok(fills as u32);
    }
    let longest = DurNs((fill_ns * f64::from(most)) as u64);
    let told = format!("{length} is too long: the longest on this device is {longest}");
    Err(Error::backend("queue work", told))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_as_many_fills_as_it_takes_and_none_that_would_end_too_soon() {
        assert_eq!(fills(DurNs(1), 1_000.0, 100), Ok(1));
        assert_eq!(fills(DurNs(100_400), 1_000.0, 100), Ok(100));
        let error = fills(DurNs::from_ms(10), 1_000.0, 100).unwrap_err();
        assert!(error.to_string().contains("10 ms is too long"), "{error}");
        assert!(error.to_string().ends_with("the longest on this device is 100 us"), "{error}");
    }
}
