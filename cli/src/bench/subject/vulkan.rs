//! A Vulkan device, which has no delay: it fills memory, as often as takes the asked time.
//!
//! # How work gets its length
//!
//! A piece of work is a number of fills of the same buffer, one behind the other. What one fill takes is
//! measured by the device's own clock when the device is opened, for a size of which some hundred fit into the
//! asked work; the shortest work is one fill. A device that speeds up or slows down afterwards works
//! longer or shorter than asked. That changes the load and no lateness, which is counted from the end.
//!
//! # The instant of completion
//!
//! The device writes its own time at each mark, behind the work and before the store of the word
//! (`vkCmdWriteTimestamp`), and `VK_EXT_calibrated_timestamps` says when that was on the host's clock. The
//! comparison of the two clocks is off by what the driver calls the deviation, at most some microseconds.
//! A watching thread would take a core from what is measured, and see the store rather than the end.

use super::{Subject, WorkStream};
use gpu_async_reactor::backend::vulkan::{VulkanBuffer, VulkanDevice, VulkanStream};
use gpu_async_reactor::{
    DeviceCaps, DeviceStream, Doorbell, DurNs, Error, MonoNs, Result, SharedLine, Slot,
};

/// The sizes of a fill that are tried, in bytes: the first, and the largest.
const SIZES: (usize, usize) = (64 << 10, 64 << 20);
/// How many fills a piece of work should have at least.
const FILLS: u64 = 128;
/// How long the fills of a measurement last at least. A device in software loses its core now and then, so
/// that many short measurements find its speed sooner than a few long ones.
const MEASURED: DurNs = DurNs::from_us(500);
/// How many of them there are.
const MEASUREMENTS: u32 = 20;
/// The most fills in a measurement, and in a piece of work.
const MOST: u64 = 1 << 20;

/// A device, and what a fill takes on it.
pub struct Vulkan {
    device: VulkanDevice,
    /// None only while it is dropped.
    buffer: Option<VulkanBuffer>,
    /// In nanoseconds.
    fill: f64,
}

impl Vulkan {
    /// Opens the first suitable device, and measures fills for work of `length`. Takes some 100 ms.
    ///
    /// # Errors
    ///
    /// The device's, and that it cannot tell its time.
    pub fn open(length: DurNs) -> Result<Self> {
        let device = VulkanDevice::builder().timestamps(true).open()?;
        let mut size = SIZES.0;
        loop {
            let buffer = device.buffer(size)?;
            let fill = measure(&device, &buffer)?;
            if fill * (FILLS as f64) >= length.0 as f64 || size >= SIZES.1 {
                return Ok(Vulkan { device, buffer: Some(buffer), fill });
            }
            // A small fill is all overhead, so that each size is measured.
            size *= 2;
        }
    }

    /// The name of the device.
    #[must_use]
    pub fn name(&self) -> &str {
        self.device.name()
    }
}

/// Nanoseconds a fill, the least of all measurements.
fn measure(device: &VulkanDevice, buffer: &VulkanBuffer) -> Result<f64> {
    let stream = device.stream()?;
    let mut times = 16;
    let mut best = f64::INFINITY;
    let mut measured = 0;
    while measured < MEASUREMENTS {
        let took = took(&stream, buffer, times)?;
        if took < MEASURED && u64::from(times) < MOST {
            times *= 2;
            continue;
        }
        best = best.min(took.0 as f64 / f64::from(times));
        measured += 1;
    }
    Ok(best.max(1.0))
}

/// What `times` fills take between two marks.
fn took(stream: &VulkanStream, buffer: &VulkanBuffer, times: u32) -> Result<DurNs> {
    let before = stream.mark()?;
    stream.fill(buffer, 1, times)?;
    let after = stream.mark()?;
    stream.synchronize_mark(after)?;
    Ok(completed(stream, after)?.since(completed(stream, before)?))
}

fn completed(stream: &VulkanStream, number: u64) -> Result<MonoNs> {
    let missing = || Error::backend("completed_at", "the device wrote no time at this mark");
    stream.completed_at(number)?.ok_or_else(missing)
}

impl Subject for Vulkan {
    type Stream = VulkanWork;

    fn caps(&self) -> DeviceCaps {
        self.device.caps()
    }

    fn doorbell(&self) -> Result<Option<Doorbell>> {
        self.device.doorbell().map(Some)
    }

    fn stream_on(&self, doorbell: &Doorbell) -> Result<VulkanWork> {
        let stream = self.device.stream_on(doorbell)?;
        let buffer = self.buffer.clone().expect("the device is not being dropped");
        Ok(VulkanWork { stream, buffer, fill: self.fill })
    }
}

impl Drop for Vulkan {
    /// Waits for what still runs after an error, and frees the device.
    fn drop(&mut self) {
        self.buffer = None;
        // What fails or is held now ends with the process.
        let _ = self.device.close();
    }
}

/// A stream that fills its buffer.
pub struct VulkanWork {
    stream: VulkanStream,
    buffer: VulkanBuffer,
    fill: f64,
}

impl WorkStream for VulkanWork {
    fn work(&self, length: DurNs) -> Result<()> {
        let times = (length.0 as f64 / self.fill).round().clamp(1.0, MOST as f64);
        self.stream.fill(&self.buffer, 1, times as u32).map(drop)
    }

    fn completed_at(&self, number: u64) -> Result<MonoNs> {
        completed(&self.stream, number)
    }

    fn driver_calls(&self) -> u64 {
        self.stream.calls().total()
    }
}

impl DeviceStream for VulkanWork {
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

    fn mark(&self) -> Result<u64> {
        self.stream.mark()
    }

    fn query_mark(&self, number: u64) -> Result<bool> {
        self.stream.query_mark(number)
    }

    fn synchronize_mark(&self, number: u64) -> Result<()> {
        self.stream.synchronize_mark(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shortest of many pieces of work of `asked`, on a device opened for it.
    fn shortest(asked: DurNs) -> Result<DurNs> {
        let device = Vulkan::open(asked)?;
        let doorbell = device.doorbell()?.expect("it rings its own alone");
        let stream = device.stream_on(&doorbell)?;
        let took = |length| -> Result<DurNs> {
            let before = stream.mark()?;
            stream.work(length)?;
            let after = stream.mark()?;
            stream.synchronize_mark(after)?;
            Ok(stream.completed_at(after)?.since(stream.completed_at(before)?))
        };
        assert!(took(DurNs(1))? > DurNs::ZERO, "one fill at least");
        (0..50).try_fold(DurNs(u64::MAX), |least, _| Ok(least.min(took(asked)?)))
    }

    #[test]
    fn work_takes_about_as_long_as_was_asked() {
        let asked = DurNs::from_ms(2);
        if let Err(error) = Vulkan::open(asked) {
            let required = std::env::var("GPU_REQUIRE_VULKAN").is_ok_and(|value| value == "1");
            assert!(!required, "GPU_REQUIRE_VULKAN=1: {error}");
            return println!("skipped: {error}");
        }
        // The best of many: a device in software may lose its core while its fills are measured.
        let measured = (0..20).map(|_| shortest(asked).unwrap());
        let close = |least: &DurNs| (asked.0 / 2..=asked.0 * 3 / 2).contains(&least.0);
        assert!({ measured }.any(|least| close(&least)));
    }
}
