//! The embedded software device, which takes the time it is told to.

use super::{Subject, WorkStream};
use gpu_async_reactor::backend::software::{SoftwareDevice, SoftwareStream};
use gpu_async_reactor::{DeviceCaps, Doorbell, DurNs, MonoNs, Result};

/// A device of threads.
pub struct Software(SoftwareDevice);

impl Software {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// That the system refuses a thread.
    pub fn open() -> Result<Self> {
        SoftwareDevice::new().map(Software)
    }
}

impl Subject for Software {
    type Stream = SoftwareStream;

    fn caps(&self) -> DeviceCaps {
        self.0.caps()
    }

    fn doorbell(&self) -> Result<Option<Doorbell>> {
        Ok(None)
    }

    fn stream_on(&self, doorbell: &Doorbell) -> Result<SoftwareStream> {
        self.0.stream_on(doorbell)
    }
}

impl WorkStream for SoftwareStream {
    fn work(&self, length: DurNs) -> Result<()> {
        self.delay(length)
    }

    fn completed_at(&self, number: u64) -> Result<MonoNs> {
        Ok(self.stamp_of(number).expect("the status said done, which comes after the note"))
    }

    fn driver_calls(&self) -> u64 {
        self.calls().total()
    }
}
