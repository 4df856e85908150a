//! A CUDA or HIP device, which has no delay either: it fills memory, as often as takes the asked time.
//!
//! What one fill takes is measured by the host's clock over some milliseconds of fills when the device is
//! opened. The instant of completion is when the word of the mark was seen by an [`Observer`], a thread of its
//! own that takes a core: these interfaces do not tell an event's time on the host's clock.

use super::observer::Observer;
use super::{Subject, WorkStream, fills};
use gpu_async_reactor::backend::cuda::{Cuda, CudaDriver};
use gpu_async_reactor::backend::hip::{Hip, HipDriver};
use gpu_async_reactor::backend::mapped::{Device, DeviceMemory, Interface, Stream};
use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{
    Clock, DeviceCaps, DeviceStream, Doorbell, DurNs, MonoNs, Result, SharedLine, Slot,
};
use std::sync::Arc;

/// The sizes of a fill that are tried, in bytes: the first, and the largest.
const SIZES: (usize, usize) = (64 << 10, 64 << 20);
/// How many fills a piece of work should have at least.
const FILLS: f64 = 32.0;
/// How long the fills of a measurement last at least.
const MEASURED: DurNs = DurNs::from_ms(4);
/// The most fills in a measurement, and in a piece of work.
const MOST: u32 = 1 << 16;

/// A device, and what a fill takes on it.
pub struct Mapped<A: Interface> {
    device: Device<A>,
    name: String,
    memory: Arc<DeviceMemory<A>>,
    /// In nanoseconds.
    fill: f64,
}

/// A CUDA device.
pub type CudaSubject = Mapped<Cuda>;
/// A HIP device.
pub type HipSubject = Mapped<Hip>;

impl CudaSubject {
    /// Opens device 0 of the system's driver, and measures fills for work of `length`.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn cuda(length: DurNs) -> Result<Self> {
        let driver = CudaDriver::load()?;
        Mapped::measured(driver.device(0)?, driver.device_name(0)?, length)
    }
}

impl HipSubject {
    /// Opens device 0 of the system's runtime, and measures fills for work of `length`.
    ///
    /// # Errors
    ///
    /// The runtime's.
    pub fn hip(length: DurNs) -> Result<Self> {
        let driver = HipDriver::load()?;
        let name = format!("HIP runtime {}", driver.version()?);
        Mapped::measured(driver.device(0)?, name, length)
    }
}

impl<A: Interface> Mapped<A> {
    fn measured(device: Device<A>, name: String, length: DurNs) -> Result<Self> {
        let mut bytes = SIZES.0;
        loop {
            let memory = device.memory(bytes)?;
            let fill = measure(&device, &memory)?;
            if fill * FILLS >= length.0 as f64 || bytes >= SIZES.1 {
                return Ok(Mapped { device, name, memory: Arc::new(memory), fill });
            }
            // A small fill is all overhead, so that each size is measured.
            bytes *= 2;
        }
    }

    /// The name of the device.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Nanoseconds a fill, the least of three measurements.
fn measure<A: Interface>(device: &Device<A>, memory: &DeviceMemory<A>) -> Result<f64> {
    let clock = StdClock::new();
    let stream = device.stream()?;
    let mut times = 4;
    let mut best = f64::INFINITY;
    let mut measured = 0;
    while measured < 3 {
        let started = clock.monotonic_ns();
        stream.fill(memory, 1, times)?;
        stream.synchronize()?;
        let took = clock.monotonic_ns().since(started);
        if took < MEASURED && times < MOST {
            times *= 2;
            continue;
        }
        best = best.min(took.0 as f64 / f64::from(times));
        measured += 1;
    }
    Ok(best.max(1.0))
}

impl<A: Interface> Subject for Mapped<A> {
    type Stream = MappedWork<A>;

    fn caps(&self) -> DeviceCaps {
        self.device.caps()
    }

    fn doorbell(&self) -> Result<Option<Doorbell>> {
        self.device.doorbell().map(Some)
    }

    fn stream_on(&self, doorbell: &Doorbell) -> Result<MappedWork<A>> {
        let stream = self.device.stream_on(doorbell)?;
        let observer = Observer::start(stream.line().clone(), stream.slot())?;
        Ok(MappedWork { stream, observer, memory: self.memory.clone(), fill: self.fill })
    }
}

/// A stream that fills the device's memory.
pub struct MappedWork<A: Interface> {
    stream: Stream<A>,
    observer: Observer,
    memory: Arc<DeviceMemory<A>>,
    fill: f64,
}

impl<A: Interface> WorkStream for MappedWork<A> {
    fn work(&self, length: DurNs) -> Result<()> {
        let times = fills(length, self.fill, MOST)?;
        let number = self.stream.fill(&self.memory, 1, times)?;
        self.observer.expect(number);
        Ok(())
    }

    fn completed_at(&self, number: u64) -> Result<MonoNs> {
        self.observer.came(number)
    }

    fn driver_calls(&self) -> u64 {
        self.stream.calls().total()
    }
}

impl<A: Interface> DeviceStream for MappedWork<A> {
    fn line(&self) -> &SharedLine {
        self.stream.line()
    }

    fn slot(&self) -> Slot {
        self.stream.slot()
    }

    fn query(&self) -> Result<bool> {
        self.stream.query()
    }

    fn synchronize(&self) -> Result<()> {
        self.stream.synchronize()
    }

    fn check_poll(&self) -> Result<()> {
        self.stream.check_poll()
    }

    fn mark(&self) -> Result<u64> {
        let number = self.stream.mark()?;
        self.observer.expect(number);
        Ok(number)
    }

    fn query_mark(&self, number: u64) -> Result<bool> {
        self.stream.query_mark(number)
    }

    fn synchronize_mark(&self, number: u64) -> Result<()> {
        self.stream.synchronize_mark(number)
    }
}
