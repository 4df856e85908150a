//! The logical device: what every object of this backend holds, and where its loss is remembered.
//!
//! # Loss is sticky
//!
//! The first call that reports `VK_ERROR_DEVICE_LOST` leaves its error here, and from then on every
//! method of every stream answers with it without a driver call. Drivers may go on to answer
//! `VK_SUCCESS` to a question about a semaphore after the loss (Vulkan specification, "Lost Device"),
//! which must not turn a failed wait into a good one.
//!
//! # Nothing is destroyed by a destructor
//!
//! A [`Gpu`] has none: its handles are destroyed by [`VulkanDevice::close`](super::VulkanDevice::close), or
//! leaked.

use super::clock::DeviceClock;
use super::queue::VulkanQueue;
use super::status;
use crate::core::error::{Error, ErrorCode, Result};
use crate::exit::{self, Calling};
use crate::fork::Birth;
use alloc::format;
use alloc::string::String;
use ash::prelude::VkResult;
use ash::vk;
use std::sync::OnceLock;

pub(super) struct Gpu {
    pub(super) instance: ash::Instance,
    pub(super) physical: vk::PhysicalDevice,
    pub(super) device: ash::Device,
    pub(super) queue: VulkanQueue,
    pub(super) memory: vk::PhysicalDeviceMemoryProperties,
    pub(super) name: String,
    /// Where marks take the device's time.
    pub(super) clock: Option<DeviceClock>,
    pub(super) birth: Birth,
    lost: OnceLock<Error>,
}

/// The functions that a device made by a program must have, beside those of Vulkan 1.0.
const NEEDED: [&core::ffi::CStr; 2] = [c"vkGetSemaphoreCounterValue", c"vkWaitSemaphores"];

impl Gpu {
    /// The device of these handles. Asks the physical device for its name and memory.
    ///
    /// # Safety
    ///
    /// The handles are valid and belong together; `device` was made from `physical` of `instance`,
    /// with `timelineSemaphore` enabled, and `queue` is one of its queues. They stay valid as long
    /// as this value is used.
    pub(super) unsafe fn new(
        instance: ash::Instance,
        physical: vk::PhysicalDevice,
        device: ash::Device,
        queue: VulkanQueue,
        clock: Option<DeviceClock>,
    ) -> Result<Self> {
        for name in NEEDED {
            // SAFETY: the device is valid and of this instance; the name ends with a NUL.
            let address = unsafe { instance.get_device_proc_addr(device.handle(), name.as_ptr()) };
            if address.is_none() {
                let name = name.to_string_lossy();
                return Err(Error::new(ErrorCode::SymbolMissing, ["the Vulkan device", &name]));
            }
        }
        // SAFETY: the physical device is one of this instance, which is valid.
        let (memory, properties) = unsafe {
            (
                instance.get_physical_device_memory_properties(physical),
                instance.get_physical_device_properties(physical),
            )
        };
        let name = name_of(&properties);
        let birth = Birth::here();
        // The device is made: what its driver runs at the end of the process is registered before.
        exit::register();
        let lost = OnceLock::new();
        Ok(Gpu { instance, physical, device, queue, memory, name, clock, birth, lost })
    }

    /// Begins `call`, which is over where the result is dropped. Refused in a forked child, while the
    /// process is exiting, and on a lost device with the error of its loss.
    #[inline]
    pub(super) fn ready(&self, call: &str) -> Result<Calling> {
        let calling = exit::calling(self.birth, call)?;
        match self.lost.get() {
            None => Ok(calling),
            Some(error) => Err(error.clone()),
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Makes `error` the answer of everything from now on, unless there is one already.
    pub(super) fn lose(&self, error: Error) -> Error {
        self.lost.get_or_init(|| error).clone()
    }

    /// The result of `call`; a lost device is lost for good.
    #[inline]
    pub(super) fn checked<T>(&self, call: &str, result: VkResult<T>) -> Result<T> {
        result.map_err(|result| self.failed(call, result))
    }

    #[cold]
    pub(super) fn failed(&self, call: &str, result: vk::Result) -> Error {
        let error = status::error(call, result);
        if result == vk::Result::ERROR_DEVICE_LOST { self.lose(error) } else { error }
    }

    /// The counter of a stream's semaphore, which was asked to go no further than `attempted`.
    ///
    /// Some drivers set every counter to its maximum when they lose a device. A value that nobody
    /// asked for is therefore the end of the device and no completion.
    ///
    /// # Errors
    ///
    /// That of `vkGetSemaphoreCounterValue`, and the loss just described.
    ///
    /// # Safety
    ///
    /// `semaphore` is a timeline semaphore of this device and is not destroyed meanwhile.
    pub(super) unsafe fn counter(
        &self,
        semaphore: vk::Semaphore,
        attempted: impl FnOnce() -> u64,
    ) -> Result<u64> {
        const CALL: &str = "vkGetSemaphoreCounterValue";
        // SAFETY: promised by the caller. The call needs no external synchronization.
        let value = unsafe { self.device.get_semaphore_counter_value(semaphore) };
        let value = self.checked(CALL, value)?;
        // Read after the counter: a value that was submitted meanwhile is among the attempted.
        let attempted = attempted();
        if value > attempted {
            let told =
                format!("{value}, beyond the last submitted {attempted}: the device is lost");
            return Err(self.lose(Error::backend(CALL, told)));
        }
        Ok(value)
    }
}

/// The device's name, as its driver gives it.
pub(super) fn name_of(properties: &vk::PhysicalDeviceProperties) -> String {
    let name = properties.device_name_as_c_str().unwrap_or(c"a device without a name");
    name.to_string_lossy().into_owned()
}
