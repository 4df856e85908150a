//! Leases on a Vulkan stream: pinned memory that the device's copies read and write.

use super::buffer::{PinnedBuffer, VulkanBuffer};
use super::issue::Batch;
use super::record::Recorder;
use super::status;
use super::stream::VulkanStream;
use crate::backend::lease::{DeviceBuffer, DeviceSide, Lease, LeaseStream, Plain, Readback};
use crate::core::error::Result;
use ash::vk;

impl VulkanStream {
    /// Leases `buffer` to the work that `queue` queues on this stream: [`Lease::new`], whose
    /// obligations are those of the commands that use it. A [`PinnedBuffer`]'s
    /// [`raw`](PinnedBuffer::raw) handle is asked for before it is leased.
    ///
    /// # Errors
    ///
    /// As [`Lease::new`].
    pub fn lease<B: DeviceBuffer, T>(
        &self,
        buffer: B,
        queue: impl FnOnce(DeviceSide) -> Result<T>,
    ) -> Result<(Lease<B>, T)> {
        Lease::new(self.core().clone(), buffer, queue)
    }

    /// Queues a copy of `count` numbers of `from`, from byte `at` on, to the beginning of `into`, to be read once
    /// it is done.
    ///
    /// # Errors
    ///
    /// [`ForeignContext`](crate::ErrorCode::ForeignContext) for a buffer of another device, and then nothing
    /// was queued; those of [`submit`](Self::submit) and of recording, after which the buffer waits behind
    /// what may be queued, or is leaked and counted.
    ///
    /// # Panics
    ///
    /// Where `count` numbers are not there in `from`, or do not fit into `into`.
    pub fn read_back<T: Plain>(
        &self,
        from: &VulkanBuffer,
        at: usize,
        count: usize,
        into: PinnedBuffer,
    ) -> Result<Readback<T, PinnedBuffer>> {
        let bytes = bytes_of::<T>(count);
        self.check_pair("read_back", from, at, bytes, &into)?;
        let region = region(at, 0, bytes);
        let (source, target) = (from.raw(), into.raw());
        Readback::new(self.core().clone(), into, count, |_| {
            self.copy_region("read_back", from, (source, target), region)
        })
    }

    /// The same of a buffer of the program's own, from byte `at` on.
    ///
    /// # Safety
    ///
    /// `from` is a buffer of this device with `TRANSFER_SRC` usage, exclusive to this queue's family or shared
    /// with it, that is long enough, lives until the copy is done, and is written meanwhile by nothing
    /// but work before it on this queue.
    ///
    /// # Errors
    ///
    /// As [`read_back`](Self::read_back).
    ///
    /// # Panics
    ///
    /// Where `count` numbers do not fit into `into`.
    pub unsafe fn read_back_raw<T: Plain>(
        &self,
        from: vk::Buffer,
        at: u64,
        count: usize,
        into: PinnedBuffer,
    ) -> Result<Readback<T, PinnedBuffer>> {
        if !into.is_of(self.core().shared().recycler()) {
            return Err(status::foreign("read_back", "buffer"));
        }
        let region = vk::BufferCopy::default().src_offset(at).size(bytes_of::<T>(count) as u64);
        let target = into.raw();
        Readback::new(self.core().clone(), into, count, |_| {
            let work = move |recorder: &Recorder<'_>| {
                if region.size > 0 {
                    recorder.copy(from, target, region);
                }
            };
            let batch = Batch { work: Some(&work), ..Batch::default() };
            // SAFETY: the source is as the caller promised; the target is leased, as long as the region
            // (`Readback::new` checked), and another buffer, since a pinned one is in nobody else's hands.
            unsafe { self.core().enqueue("read_back", batch) }.map(drop)
        })
    }

    /// Queues a copy of the whole of `from` to `to`, from byte `at` on. The buffer is leased until the copy is
    /// done.
    ///
    /// # Errors
    ///
    /// As [`read_back`](Self::read_back).
    ///
    /// # Panics
    ///
    /// Where `from` does not fit into `to` at `at`.
    pub fn upload(
        &self,
        from: PinnedBuffer,
        to: &VulkanBuffer,
        at: usize,
    ) -> Result<Lease<PinnedBuffer>> {
        let bytes = from.bytes();
        self.check_pair("upload", to, at, bytes, &from)?;
        let region = region(0, at, bytes);
        let (source, target) = (from.raw(), to.raw());
        let queue = |_| self.copy_region("upload", to, (source, target), region);
        Ok(self.lease(from, queue)?.0)
    }

    /// Drops the buffers of dropped leases that the device is done with: [`LeaseStream::sweep`].
    pub fn sweep(&self) -> usize {
        self.core().sweep()
    }

    /// Checks that `bytes` from `at` on are there in `buffer`, and that both are of this device.
    fn check_pair(
        &self,
        call: &str,
        buffer: &VulkanBuffer,
        at: usize,
        bytes: usize,
        pinned: &PinnedBuffer,
    ) -> Result<()> {
        let recycler = self.core().shared().recycler();
        if !buffer.memory().is_of(recycler) || !pinned.is_of(recycler) {
            return Err(status::foreign(call, "buffer"));
        }
        let there = at.checked_add(bytes).is_some_and(|end| end <= buffer.len());
        assert!(there, "{call}: {bytes} bytes from {at} on, of a buffer of {}", buffer.len());
        Ok(())
    }

    fn copy_region(
        &self,
        call: &'static str,
        buffer: &VulkanBuffer,
        (source, target): (vk::Buffer, vk::Buffer),
        region: vk::BufferCopy,
    ) -> Result<()> {
        let work = move |recorder: &Recorder<'_>| {
            if region.size > 0 {
                recorder.copy(source, target, region);
            }
        };
        let uses = [buffer.memory()];
        let batch = Batch { work: Some(&work), uses: &uses, ..Batch::default() };
        // SAFETY: the region lies within both, which are two buffers of this device; the device's is kept by
        // the stream and the pinned one by its lease, whose mark comes behind this.
        unsafe { self.core().enqueue(call, batch) }.map(drop)
    }
}

fn bytes_of<T>(count: usize) -> usize {
    count.checked_mul(size_of::<T>()).expect("the numbers fit the address space")
}

fn region(from: usize, to: usize, bytes: usize) -> vk::BufferCopy {
    vk::BufferCopy::default().src_offset(from as u64).dst_offset(to as u64).size(bytes as u64)
}
