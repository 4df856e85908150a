//! The program's handle of a stream.

use super::buffer::VulkanBuffer;
use super::issue::{Batch, StreamCore};
use super::record::Recorder;
use super::status;
use super::submission::Submission;
use crate::core::error::{Error, Result};
use crate::core::port::{DeviceStream, forward_stream};
use crate::core::time::MonoNs;
use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::Ordering;

/// A sequence of submissions to a [`VulkanDevice`](super::VulkanDevice)'s queue, with a timeline semaphore
/// and a slot of its own.
///
/// `Send` and `Sync`: any thread may queue and ask.
///
/// # Numbers
///
/// Each submission has a number, which is the value of the stream's timeline semaphore once it is done. A
/// mark stores its number into the word as well. The word is a hint: `query_mark` asks the semaphore.
/// Numbers end at 2^32 - 1, since the word is written in 8 bytes that may land as two halves, the upper of
/// which must stay zero. Then every submission answers [`SlotExhausted`](crate::ErrorCode::SlotExhausted);
/// a new stream goes on, after 12 hours at 100,000 submissions a second.
///
/// # Status
///
/// `query` and `query_mark` are a `vkGetSemaphoreCounterValue`, `synchronize` and `synchronize_mark` a
/// `vkWaitSemaphores`. After the device was lost each answers with the error of the loss, without a Vulkan
/// call and whatever the semaphore says.
///
/// # Memory ordering
///
/// A mark makes what was written before it, by any stage, visible to the host before it stores the word. A
/// submission without a mark does not, unless its own commands end with a barrier to `HOST`.
///
/// # Dropping it
///
/// Never waits and makes no Vulkan call. Its slot, semaphore and command buffers go to the device, which uses
/// them again once the last number was reached.
pub struct VulkanStream {
    core: Arc<StreamCore>,
}

/// How often Vulkan was called for a stream.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VulkanCalls {
    /// `vkGetSemaphoreCounterValue`.
    pub queries: u64,
    /// `vkQueueSubmit`.
    pub submits: u64,
    /// `vkWaitSemaphores`.
    pub waits: u64,
}

impl VulkanCalls {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.queries + self.submits + self.waits
    }
}

impl VulkanStream {
    pub(super) fn new(core: Arc<StreamCore>) -> Self {
        VulkanStream { core }
    }

    pub(super) fn core(&self) -> &Arc<StreamCore> {
        &self.core
    }

    /// Queues command buffers of the program's own and returns their number, which `query` and
    /// `query_mark` cover. The word passes this number over.
    ///
    /// # Errors
    ///
    /// That of `vkQueueSubmit`: for lack of memory nothing was queued and the stream goes on; any other one
    /// loses the device, since what was queued is then unknown.
    /// [`SlotExhausted`](crate::ErrorCode::SlotExhausted), [`Closed`](crate::ErrorCode::Closed) and
    /// [`Forked`](crate::ErrorCode::Forked).
    ///
    /// # Safety
    ///
    /// What `vkQueueSubmit` asks for: the command buffers and semaphores are of this device and valid for
    /// its queue, and they, and all that the commands use, live until the number is reached, or for ever
    /// where an error other than these codes and lack of memory came back. Host memory that the commands
    /// use is not touched by the host until then.
    pub unsafe fn submit(&self, work: &Submission<'_>) -> Result<u64> {
        let batch = Batch { program: *work, ..Batch::default() };
        // SAFETY: promised by the caller; nothing else is recorded.
        unsafe { self.core.enqueue("submit", batch) }
    }

    /// The same with a mark behind it, in one `vkQueueSubmit`.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit), and those of recording the mark.
    ///
    /// # Safety
    ///
    /// As [`submit`](Self::submit).
    pub unsafe fn submit_and_mark(&self, work: &Submission<'_>) -> Result<u64> {
        let batch = Batch { program: *work, mark: true, ..Batch::default() };
        // SAFETY: promised by the caller; the mark uses what the stream keeps.
        unsafe { self.core.enqueue("submit_and_mark", batch) }
    }

    /// Queues `times` fills of `buffer` with `value`, one behind the other, and returns their number. The last
    /// `len % 4` bytes may be filled or not.
    ///
    /// # Errors
    ///
    /// [`ForeignContext`](crate::ErrorCode::ForeignContext) for a buffer of another device; else as
    /// [`submit`](Self::submit), and those of recording.
    pub fn fill(&self, buffer: &VulkanBuffer, value: u32, times: u32) -> Result<u64> {
        self.fill_first(buffer, buffer.len(), value, times)
    }

    /// The same for the first `bytes` of `buffer`, at most its length.
    ///
    /// # Errors
    ///
    /// As [`fill`](Self::fill); a [`Backend`](crate::ErrorCode::Backend) error where they are not there.
    pub fn fill_first(
        &self,
        buffer: &VulkanBuffer,
        bytes: usize,
        value: u32,
        times: u32,
    ) -> Result<u64> {
        self.check("fill", buffer, bytes)?;
        // What is allocated is a whole number of pages, so that the rounded length is there.
        let bytes = (bytes as u64).next_multiple_of(4);
        let raw = buffer.raw();
        let times = if bytes == 0 { 0 } else { times };
        let work = move |recorder: &Recorder<'_>| recorder.fill(raw, bytes, value, times);
        let uses = [buffer.memory()];
        let batch = Batch { work: Some(&work), uses: &uses, ..Batch::default() };
        // SAFETY: the range lies within the buffer, which is of this device and kept by the stream.
        unsafe { self.core.enqueue("fill", batch) }
    }

    /// Queues a copy of the first `bytes` of `from` to those of `to`, and returns its number.
    ///
    /// # Errors
    ///
    /// As [`fill_first`](Self::fill_first), and a [`Backend`](crate::ErrorCode::Backend) error where both
    /// are the same buffer.
    pub fn copy(&self, from: &VulkanBuffer, to: &VulkanBuffer, bytes: usize) -> Result<u64> {
        self.check("copy", from, bytes)?;
        self.check("copy", to, bytes)?;
        if from.raw() == to.raw() {
            return Err(Error::backend("copy", "from a buffer to itself"));
        }
        let region = ash::vk::BufferCopy::default().size(bytes as u64);
        let (source, target) = (from.raw(), to.raw());
        let work = move |recorder: &Recorder<'_>| {
            if region.size > 0 {
                recorder.copy(source, target, region);
            }
        };
        let uses = [from.memory(), to.memory()];
        let batch = Batch { work: Some(&work), uses: &uses, ..Batch::default() };
        // SAFETY: the region lies within both, which are of this device, two, and kept by the stream.
        unsafe { self.core.enqueue("copy", batch) }
    }

    fn check(&self, call: &str, buffer: &VulkanBuffer, bytes: usize) -> Result<()> {
        if !buffer.memory().is_of(self.core.shared().recycler()) {
            return Err(status::foreign(call, "buffer"));
        }
        if bytes > buffer.len() {
            let told = alloc::format!("{bytes} bytes of a buffer of {}", buffer.len());
            return Err(Error::backend(call, told));
        }
        Ok(())
    }

    /// When the device came to the mark of `number`, on the process's monotonic clock: taken by the
    /// device once everything before the mark was done, right before it stored the word.
    ///
    /// None before that, without [`timestamps`](super::VulkanDeviceBuilder::timestamps), for a number
    /// without a mark, and for one that is not among the last [`TIMESTAMPS_KEPT`](super::TIMESTAMPS_KEPT).
    /// As exact as `VK_EXT_calibrated_timestamps` is, which is told both clocks anew each time. Three
    /// Vulkan calls, with the stream's lock held.
    ///
    /// # Errors
    ///
    /// Those of the calls.
    pub fn completed_at(&self, number: u64) -> Result<Option<MonoNs>> {
        self.core.timestamp(number)
    }

    /// How often Vulkan was called through this stream. Recording is not counted.
    #[must_use]
    pub fn calls(&self) -> VulkanCalls {
        let calls = &self.core.calls;
        VulkanCalls {
            queries: calls.queries.load(Ordering::Relaxed),
            submits: calls.submits.load(Ordering::Relaxed),
            waits: calls.waits.load(Ordering::Relaxed),
        }
    }
}

forward_stream!(self: impl[] VulkanStream => self.core);

impl fmt::Debug for VulkanStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VulkanStream").field("slot", &self.slot()).finish_non_exhaustive()
    }
}
