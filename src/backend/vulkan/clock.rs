//! The device's time of a mark, on the process's monotonic clock.
//!
//! A timestamp is written by the device once everything before it is done. It counts ticks of the
//! device since some time of its own; `vkGetCalibratedTimestampsEXT` tells both clocks at one
//! instant, from which the age of a timestamp gives its time on the host's clock.
//!
//! Only where that instant can be told on `CLOCK_MONOTONIC`, which is the process's clock on Linux.

use super::status;
use crate::core::error::Result;
use crate::core::time::MonoNs;
use ash::{ext, vk};

/// How many of a stream's last numbers keep their timestamp.
pub const TIMESTAMPS_KEPT: u32 = 256;

/// The device's clock, as the host can ask for it.
pub(super) struct DeviceClock {
    calls: ext::calibrated_timestamps::Device,
    /// Nanoseconds a tick.
    period: f64,
    /// The bits of a timestamp that count.
    mask: u64,
}

impl DeviceClock {
    /// # Safety
    ///
    /// The device is valid, has `VK_EXT_calibrated_timestamps` enabled with the domains `DEVICE` and
    /// `CLOCK_MONOTONIC`, and its queue writes timestamps of `valid_bits`, more than 0.
    pub(super) unsafe fn new(
        instance: &ash::Instance,
        device: &ash::Device,
        period: f32,
        valid_bits: u32,
    ) -> Self {
        let calls = ext::calibrated_timestamps::Device::new(instance, device);
        DeviceClock { calls, period: f64::from(period), mask: u64::MAX >> (64 - valid_bits) }
    }

    /// The instant of the timestamp `ticks`, which lies in the past.
    pub(super) fn instant_of(&self, ticks: u64) -> Result<MonoNs> {
        let domains = [vk::TimeDomainEXT::DEVICE, vk::TimeDomainEXT::CLOCK_MONOTONIC]
            .map(|domain| vk::CalibratedTimestampInfoEXT::default().time_domain(domain));
        // SAFETY: both domains can be asked for, as `new` was promised.
        let now = unsafe { self.calls.get_calibrated_timestamps(&domains) };
        let (now, _) =
            now.map_err(|result| status::error("vkGetCalibratedTimestampsEXT", result))?;
        Ok(MonoNs(now[1].saturating_sub(self.age_ns(now[0], ticks))))
    }

    /// How long before `now` a timestamp was written; both may have wrapped.
    fn age_ns(&self, now: u64, ticks: u64) -> u64 {
        age_ns(now, ticks, self.mask, self.period)
    }
}

fn age_ns(now: u64, ticks: u64, mask: u64, period: f64) -> u64 {
    let age = now.wrapping_sub(ticks) & mask;
    // A device whose clock is read in two pieces may tell a now shortly before the timestamp.
    if age > mask / 2 { 0 } else { (age as f64 * period) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_counts_across_the_wrap_and_is_never_negative() {
        assert_eq!(age_ns(1_000, 400, u64::MAX, 1.0), 600);
        assert_eq!(age_ns(5, 0xffff_fff0, 0xffff_ffff, 2.0), 42);
        assert_eq!(age_ns(100, 101, u64::MAX, 1.0), 0);
    }
}
