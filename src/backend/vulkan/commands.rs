//! Command buffers of a stream, used again once the device is done with them.
//!
//! A command pool is externally synchronized, and so is the recording of its buffers (Vulkan
//! specification, "Command Pools"). Each stream has one, used under the stream's lock; when the stream is
//! gone and its last number was reached, another stream takes it over with all its buffers.
//!
//! A buffer waits with the number of its submission and is recorded again once the counter has
//! passed it. A warm stream that waits for what it queues therefore allocates nothing.

use super::clock::TIMESTAMPS_KEPT;
use super::gpu::Gpu;
use crate::core::error::Result;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use ash::vk;

pub(super) struct CommandSet {
    pool: vk::CommandPool,
    free: Vec<vk::CommandBuffer>,
    /// With their numbers, which increase.
    pending: VecDeque<(u64, vk::CommandBuffer)>,
    /// A timestamp for each of the last numbers, where the device has a clock.
    pub(super) stamps: Option<vk::QueryPool>,
}

impl CommandSet {
    /// # Errors
    ///
    /// Those of the Vulkan calls; nothing is left behind then.
    pub(super) fn new(gpu: &Gpu) -> Result<Self> {
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(gpu.queue.family());
        // SAFETY: the device is valid and the family is that of one of its queues.
        let pool = unsafe { gpu.device.create_command_pool(&info, None) };
        let pool = gpu.checked("vkCreateCommandPool", pool)?;
        let mut set = CommandSet { pool, free: Vec::new(), pending: VecDeque::new(), stamps: None };
        if gpu.clock.is_some() {
            let info = vk::QueryPoolCreateInfo::default()
                .query_type(vk::QueryType::TIMESTAMP)
                .query_count(TIMESTAMPS_KEPT);
            // SAFETY: the device is valid; timestamps need no feature.
            let stamps = unsafe { gpu.device.create_query_pool(&info, None) };
            match gpu.checked("vkCreateQueryPool", stamps) {
                Ok(stamps) => set.stamps = Some(stamps),
                Err(error) => {
                    // SAFETY: just made here; nothing uses it.
                    unsafe { set.destroy(gpu) };
                    return Err(error);
                }
            }
        }
        Ok(set)
    }

    /// A buffer that the device does not use. `completed` says what the counter has reached; it is
    /// asked where all buffers may still be in use.
    pub(super) fn take(
        &mut self,
        gpu: &Gpu,
        known: u64,
        completed: impl FnOnce() -> Result<u64>,
    ) -> Result<vk::CommandBuffer> {
        self.settle(known);
        if self.free.is_empty() && !self.pending.is_empty() {
            self.settle(completed()?);
        }
        if let Some(buffer) = self.free.pop() {
            return Ok(buffer);
        }
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: the pool is of this device and is used under the stream's lock alone.
        let buffers = unsafe { gpu.device.allocate_command_buffers(&info) };
        Ok(gpu.checked("vkAllocateCommandBuffers", buffers)?[0])
    }

    /// `buffer` was submitted with `number`.
    pub(super) fn submitted(&mut self, number: u64, buffer: vk::CommandBuffer) {
        self.pending.push_back((number, buffer));
    }

    /// `buffer` was not submitted.
    pub(super) fn give_back(&mut self, buffer: vk::CommandBuffer) {
        self.free.push(buffer);
    }

    /// The recording of `buffer` failed: it may still be recording, in which state it must not be begun
    /// anew (`vkBeginCommandBuffer`), or be invalid.
    pub(super) fn discard(&mut self, gpu: &Gpu, buffer: vk::CommandBuffer) {
        // SAFETY: the buffer is of this pool, which the stream's lock guards, and was never submitted since
        // it was taken, hence not pending.
        unsafe { gpu.device.free_command_buffers(self.pool, &[buffer]) };
    }

    /// The counter has reached `completed`.
    pub(super) fn settle(&mut self, completed: u64) {
        while let Some(&(number, buffer)) = self.pending.front() {
            if number > completed {
                return;
            }
            self.pending.pop_front();
            self.free.push(buffer);
        }
    }

    /// How many buffers there are, free ones and others.
    #[cfg(test)]
    pub(super) fn buffers(&self) -> usize {
        self.free.len() + self.pending.len()
    }

    /// Frees everything.
    ///
    /// # Safety
    ///
    /// `gpu` made it, and every submission of its buffers is complete.
    pub(super) unsafe fn destroy(self, gpu: &Gpu) {
        // SAFETY: promised by the caller. The buffers are freed with their pool.
        unsafe {
            gpu.device.destroy_command_pool(self.pool, None);
            if let Some(stamps) = self.stamps {
                gpu.device.destroy_query_pool(stamps, None);
            }
        }
    }
}
