//! What is recorded: the store of a number behind everything, and the simple pieces of work.
//!
//! # The order of a mark
//!
//! ```text
//! everything queued before
//!   barrier ALL_COMMANDS -> TRANSFER, HOST       what was written is visible to the host as well
//! the slot's word: vkCmdUpdateBuffer, 8 bytes
//!   barrier TRANSFER -> TRANSFER, HOST           where a doorbell is bound: who hears it finds the word
//! the doorbell's word: vkCmdUpdateBuffer, 4 bytes
//!   barrier TRANSFER -> HOST                     the words are visible to the host
//! the semaphore is signalled to the number
//! ```
//!
//! The first synchronization scope of a barrier is everything earlier in submission order on the
//! queue, whoever submitted it (Vulkan specification, "Pipeline Barriers", "Submission order").
//! Signalling a semaphore makes nothing visible to the host, hence the HOST stage. Nor does a barrier between
//! two stores on the device alone, which says nothing of the order in which the host sees them ("Memory
//! Dependencies", memory domain operations).
//!
//! # Why the doorbell's number is stored by its lower half
//!
//! An 8-byte update may land as two halves. A slot's number is at most 32 bits wide, so its upper half
//! stores zero over zero and no torn value exists. A doorbell's number is not bounded. Stored whole,
//! near a change of its upper half a waiter could take a snapshot of a mixture that is the very
//! number that lands next, and then see no change. Its lower half alone is 4 bytes, which land at
//! once. It differs from all that were stored within the last 2^32 rings, and a waiter compares
//! with a snapshot no longer than until the first difference, so that a change shows as long as
//! fewer than 2^32 rings lie between two looks. A lower half of zero is passed over: the word may never
//! have been rung.

use super::gpu::Gpu;
use super::pages::Place;
use crate::core::doorbell::Doorbell;
use crate::core::error::Result;
use crate::core::line::Slot;
use ash::vk;

/// The largest number that a slot's word takes without its upper half.
pub(super) const LAST_NUMBER: u64 = u32::MAX as u64;

/// One mark.
pub(super) struct Mark {
    pub(super) line: Place,
    pub(super) slot: Slot,
    pub(super) number: u64,
    /// The doorbell's line and word, and what is stored there.
    pub(super) bell: Option<(Place, Slot, u32)>,
    /// Where the device's time is written.
    pub(super) stamp: Option<(vk::QueryPool, u32)>,
}

/// The next number for a ring of `bell`: a lower half that is not zero.
pub(super) fn next_ring(bell: &Doorbell) -> u32 {
    loop {
        if let Some(half) = ring(bell.next_number()) {
            return half;
        }
    }
}

/// What is stored for the doorbell's `number`, if anything.
fn ring(number: u64) -> Option<u32> {
    Some(number as u32).filter(|&half| half != 0)
}

/// Where the device finds the word of `slot`, in bytes.
fn word(line: Place, slot: Slot) -> u64 {
    line.offset + 8 * slot.index() as u64
}

/// Where it finds the lower half of that word. Devices have the byte order of their host (Vulkan
/// specification, "Host Environment").
fn lower_half(line: Place, slot: Slot) -> u64 {
    word(line, slot) + if cfg!(target_endian = "big") { 4 } else { 0 }
}

/// A buffer in which commands are recorded, between its begin and its end.
pub(super) struct Recorder<'g> {
    gpu: &'g Gpu,
    buffer: vk::CommandBuffer,
}

impl<'g> Recorder<'g> {
    /// Begins to record.
    ///
    /// # Safety
    ///
    /// `buffer` is of a pool of this device that only the caller uses and that may reset single
    /// buffers; no submission of it is pending and it is not being recorded.
    pub(super) unsafe fn begin(gpu: &'g Gpu, buffer: vk::CommandBuffer) -> Result<Self> {
        let info = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: promised by the caller; beginning a recorded buffer resets it.
        let begun = unsafe { gpu.device.begin_command_buffer(buffer, &info) };
        gpu.checked("vkBeginCommandBuffer", begun)?;
        Ok(Recorder { gpu, buffer })
    }

    /// Ends the recording.
    pub(super) fn end(self) -> Result<()> {
        // SAFETY: the buffer is being recorded, outside of a render pass, by this thread alone.
        let ended = unsafe { self.gpu.device.end_command_buffer(self.buffer) };
        self.gpu.checked("vkEndCommandBuffer", ended)
    }

    /// The store of a number.
    pub(super) fn mark(&self, mark: &Mark) {
        use vk::{AccessFlags as Access, PipelineStageFlags as Stage};
        if let Some((pool, query)) = mark.stamp {
            // SAFETY: the query is one of the pool's, a pool of timestamps of this device, and outside of
            // a render pass. It is written once after each reset, in submission order.
            unsafe {
                self.gpu.device.cmd_reset_query_pool(self.buffer, pool, query, 1);
                let stage = Stage::BOTTOM_OF_PIPE;
                self.gpu.device.cmd_write_timestamp(self.buffer, stage, pool, query);
            }
        }
        let store = (Stage::TRANSFER, Access::TRANSFER_WRITE);
        // The next store comes after the host can see what was written before it.
        let next = (store.0 | Stage::HOST, store.1 | Access::HOST_READ);
        self.barrier((Stage::ALL_COMMANDS, Access::MEMORY_WRITE), next);
        self.update(mark.line, word(mark.line, mark.slot), &mark.number.to_ne_bytes());
        if let Some((line, slot, half)) = mark.bell {
            self.barrier(store, next);
            self.update(line, lower_half(line, slot), &half.to_ne_bytes());
        }
        self.barrier(store, (Stage::HOST, Access::HOST_READ));
    }

    /// `times` fills of all `bytes` of `buffer` with `value`, one behind the other.
    pub(super) fn fill(&self, buffer: vk::Buffer, bytes: u64, value: u32, times: u32) {
        self.behind_everything();
        for turn in 0..times {
            if turn > 0 {
                self.behind_everything();
            }
            // SAFETY: the buffer is of this device with TRANSFER_DST usage, the range is all of it, its
            // length a multiple of 4, and the recording is outside of a render pass.
            unsafe { self.gpu.device.cmd_fill_buffer(self.buffer, buffer, 0, bytes, value) };
        }
    }

    /// A copy between two buffers of this device that do not overlap, visible to the host after it.
    pub(super) fn copy(&self, from: vk::Buffer, to: vk::Buffer, region: vk::BufferCopy) {
        use vk::{AccessFlags as Access, PipelineStageFlags as Stage};
        self.behind_everything();
        // SAFETY: both buffers are of this device with the usages of a copy, and the region lies within
        // both, as the caller has checked; the recording is outside of a render pass.
        unsafe { self.gpu.device.cmd_copy_buffer(self.buffer, from, to, &[region]) };
        self.barrier((Stage::TRANSFER, Access::TRANSFER_WRITE), (Stage::HOST, Access::HOST_READ));
    }

    /// What follows is a transfer behind everything before it, and sees what that wrote.
    fn behind_everything(&self) {
        use vk::{AccessFlags as Access, PipelineStageFlags as Stage};
        self.barrier(
            (Stage::ALL_COMMANDS, Access::MEMORY_WRITE),
            (Stage::TRANSFER, Access::TRANSFER_READ | Access::TRANSFER_WRITE),
        );
    }

    fn update(&self, line: Place, at: u64, bytes: &[u8]) {
        // SAFETY: the buffer is of this device with TRANSFER_DST usage, `at` and the length are multiples
        // of 4 within one line of it, and the recording is outside of a render pass.
        unsafe { self.gpu.device.cmd_update_buffer(self.buffer, line.buffer, at, bytes) };
    }

    fn barrier(
        &self,
        (from, written): (vk::PipelineStageFlags, vk::AccessFlags),
        (to, used): (vk::PipelineStageFlags, vk::AccessFlags),
    ) {
        let memory = [vk::MemoryBarrier::default().src_access_mask(written).dst_access_mask(used)];
        let none = vk::DependencyFlags::empty();
        // SAFETY: the stages are ones that every queue has, and the accesses belong to them; the recording is
        // outside of a render pass.
        unsafe {
            self.gpu.device.cmd_pipeline_barrier(self.buffer, from, to, none, &memory, &[], &[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::line::CompletionLine;

    #[test]
    fn a_ring_whose_lower_half_is_zero_is_passed_over() {
        let bell = Doorbell::over(CompletionLine::shared());
        assert_eq!((next_ring(&bell), next_ring(&bell)), (1, 2));
        let rings = [1 << 32, (1 << 32) + 1, u64::from(u32::MAX), 7 << 32].map(ring);
        assert_eq!(rings, [None, Some(1), Some(u32::MAX), None]);
    }

    #[test]
    fn the_device_finds_each_word_of_a_line() {
        let line = Place { buffer: vk::Buffer::null(), offset: 128 };
        assert_eq!(word(line, Slot::ALL[0]), 128);
        assert_eq!(word(line, Slot::ALL[7]), 184);
        let half = lower_half(line, Slot::ALL[2]);
        let number = (1_u64 << 40 | 7).to_ne_bytes();
        let at = (half - word(line, Slot::ALL[2])) as usize;
        assert_eq!(number[at..at + 4], 7_u32.to_ne_bytes());
    }
}
