//! Command buffers of a program's own, and what they wait for and signal.

use alloc::vec::Vec;
use ash::vk;
use core::fmt;

/// What [`VulkanStream::submit`](super::VulkanStream::submit) queues: one batch of command buffers.
///
/// Empty, it is a point of the stream and no work. Semaphores may be binary or timeline ones; the
/// values of binary ones are ignored.
#[derive(Clone, Copy, Default)]
pub struct Submission<'a> {
    /// Executed in this order.
    pub command_buffers: &'a [vk::CommandBuffer],
    /// Semaphores to wait for before these stages: the semaphore, its value, the stages that wait.
    pub waits: &'a [(vk::Semaphore, u64, vk::PipelineStageFlags)],
    /// Semaphores to signal behind the batch, and their values.
    pub signals: &'a [(vk::Semaphore, u64)],
}

impl<'a> Submission<'a> {
    /// Of command buffers alone.
    #[must_use]
    pub fn of(command_buffers: &'a [vk::CommandBuffer]) -> Self {
        Submission { command_buffers, ..Submission::default() }
    }

    /// The waits as Vulkan takes them; without an allocation where there are none.
    pub(super) fn unzipped_waits(
        &self,
    ) -> (Vec<vk::Semaphore>, Vec<u64>, Vec<vk::PipelineStageFlags>) {
        let mut all = (Vec::new(), Vec::new(), Vec::new());
        for &(semaphore, value, stage) in self.waits {
            all.0.push(semaphore);
            all.1.push(value);
            all.2.push(stage);
        }
        all
    }
}

impl fmt::Debug for Submission<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submission")
            .field("command_buffers", &self.command_buffers.len())
            .field("waits", &self.waits.len())
            .field("signals", &self.signals.len())
            .finish()
    }
}
