//! The program's handle of a device.

use super::buffer::{PinnedBuffer, VulkanBuffer};
use super::gpu::Gpu;
use super::open::{Owned, VulkanDeviceBuilder};
use super::queue::VulkanQueue;
use super::remains::Reclaimed;
use super::shared::{self, Shared};
use super::stream::VulkanStream;
use crate::backend::lease::LeaseStats;
use crate::core::doorbell::Doorbell;
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::line::reached;
use crate::core::plan::DeviceCaps;
use crate::core::pool::{DRAIN_LOOKS, SlotStats};
use crate::core::port::DeviceStream;
use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use ash::vk;
use core::fmt;

/// How long the start-up probe waits for its store, in nanoseconds.
const PROBE_NS: u64 = 5_000_000_000;

/// A Vulkan device with one queue. Clones are handles of the same device.
///
/// # Streams of one queue
///
/// All streams submit to the device's one queue, in the order of their calls. A mark is behind
/// everything submitted before it, that of other streams included: it never says done too soon, and
/// it may say done later than a queue of its own would. What is submitted behind a mark does not
/// delay it.
///
/// # Its end
///
/// Dropping it never waits and frees nothing. Dropped without [`close`](Self::close), everything is leaked
/// once the last stream is gone, and counted by [`leaked_devices`](Self::leaked_devices).
///
/// # After a fork
///
/// In a child process every call answers `Forked`, and dropping makes no Vulkan call. A child must not use the
/// [queue](Self::queue)'s lock, nor read lines and pinned buffers of the parent: a driver may keep mapped memory
/// out of children.
#[derive(Clone)]
pub struct VulkanDevice {
    shared: Arc<Shared>,
}

/// What a device holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct VulkanStats {
    /// What became of the slots. Those of `exhausted` count as leased.
    pub slots: SlotStats,
    /// Slots whose numbers are used up.
    pub exhausted: usize,
    /// Pages of lines, 4096 bytes each.
    pub pages: usize,
    /// Streams in use.
    pub streams: usize,
    /// Dropped streams whose last number has not been seen yet.
    pub settling: usize,
    /// Dropped streams of a lost device, whose memory and objects are leaked.
    pub leaked: usize,
    /// Buffers in use, and those that a stream still uses after they were dropped.
    pub buffers: usize,
    /// Allocations that nobody uses, kept for the next buffers: at most 64 beside what was in use at one time.
    pub unused_buffers: usize,
    /// What became of leased buffers.
    pub leases: LeaseStats,
}

/// The handles of a device that a program made itself.
pub struct RawDevice {
    /// The instance.
    pub instance: ash::Instance,
    /// One of its physical devices, of Vulkan 1.2 or later.
    pub physical_device: vk::PhysicalDevice,
    /// A device of that one, made with the feature `timelineSemaphore`.
    pub device: ash::Device,
    /// A queue of the device that can transfer: every graphics or compute queue can.
    pub queue: vk::Queue,
    /// The family of the queue.
    pub queue_family: u32,
    /// The lock under which the program uses the queue; none where it leaves the queue to this
    /// backend or goes through [`VulkanDevice::queue`].
    pub lock: Option<Arc<dyn super::QueueLock>>,
}

impl VulkanDevice {
    /// The first suitable device of the system's loader, the fastest kind first: discrete, integrated,
    /// virtual, software.
    ///
    /// # Errors
    ///
    /// As [`VulkanDeviceBuilder::open`].
    pub fn open() -> Result<Self> {
        Self::builder().open()
    }

    /// Sets a device up.
    #[must_use]
    pub fn builder() -> VulkanDeviceBuilder {
        VulkanDeviceBuilder::new()
    }

    /// A device over handles of the program's own. Queries the physical device and makes no object.
    ///
    /// # Errors
    ///
    /// [`SymbolMissing`](ErrorCode::SymbolMissing) where the device lacks a function of Vulkan 1.2, and
    /// [`Unsupported`](ErrorCode::Unsupported) where the physical device is older than that.
    ///
    /// # Safety
    ///
    /// - The handles are valid and belong together as [`RawDevice`] says.
    /// - The program destroys none of them before [`close`](Self::close) has returned `Ok(0)`, and never
    ///   where it did not: streams, lines, buffers and everything that was dropped before use them.
    /// - Nobody uses the queue, also for `vkDeviceWaitIdle`, without the lock: the one lent, or else
    ///   that of [`VulkanQueue::with`].
    pub unsafe fn from_raw(raw: RawDevice) -> Result<Self> {
        let RawDevice { instance, physical_device, device, queue, queue_family, lock } = raw;
        // SAFETY: the physical device is one of the instance, as the caller promised.
        let properties = unsafe { instance.get_physical_device_properties(physical_device) };
        super::open::check_version(&properties)?;
        let queue = VulkanQueue::new(queue, queue_family, lock);
        // SAFETY: promised by the caller.
        let gpu = unsafe { Gpu::new(instance, physical_device, device, queue, None) }?;
        Ok(VulkanDevice::over(gpu, None))
    }

    pub(super) fn over(gpu: Gpu, owned: Option<Owned>) -> Self {
        VulkanDevice { shared: Arc::new(Shared::new(gpu, owned)) }
    }

    /// A new stream that rings no doorbell. 1,000 of them are normal.
    ///
    /// Costs a timeline semaphore, and a command pool unless a dropped stream left one; looks at up to
    /// 32 dropped streams.
    ///
    /// # Errors
    ///
    /// Those of the Vulkan calls, and that the device is lost, closed or of the parent process.
    pub fn stream(&self) -> Result<VulkanStream> {
        self.make_stream("stream", None)
    }

    /// A new stream that rings `doorbell`, one of [`doorbell`](Self::doorbell), behind every store of a
    /// word.
    ///
    /// # Errors
    ///
    /// As [`stream`](Self::stream); [`ForeignContext`](ErrorCode::ForeignContext) for a doorbell that does
    /// not lie in memory of this device.
    pub fn stream_on(&self, doorbell: &Doorbell) -> Result<VulkanStream> {
        self.make_stream("stream_on", Some(doorbell))
    }

    fn make_stream(&self, call: &str, doorbell: Option<&Doorbell>) -> Result<VulkanStream> {
        let shared = &self.shared;
        let _calling = shared.gpu.ready(call)?;
        let bell = doorbell.map(|bell| shared.bell(call, bell)).transpose()?;
        let mut reclaimed = Reclaimed::default();
        let mut state = shared.open(call)?;
        shared.settle(&mut state, DRAIN_LOOKS, &mut reclaimed);
        let lease = state.slots.acquire()?;
        shared.stream(&mut state, lease, bell)
    }

    /// A doorbell in memory of this device, for streams of this device and for hosts.
    ///
    /// # Errors
    ///
    /// Those of the Vulkan calls, where a new page was needed.
    pub fn doorbell(&self) -> Result<Doorbell> {
        let _calling = self.shared.gpu.ready("doorbell")?;
        let _state = self.shared.open("doorbell")?;
        Ok(Doorbell::over(self.shared.pages.line()?))
    }

    /// Device memory of at least `bytes`.
    ///
    /// # Errors
    ///
    /// Those of the Vulkan calls, and a [`Backend`](ErrorCode::Backend) error for more than any heap of memory
    /// has.
    pub fn buffer(&self, bytes: usize) -> Result<VulkanBuffer> {
        let _calling = self.shared.gpu.ready("buffer")?;
        let mut reclaimed = Reclaimed::default();
        let mut state = self.shared.open("buffer")?;
        self.shared.settle(&mut state, DRAIN_LOOKS, &mut reclaimed);
        VulkanBuffer::new(&self.shared.recycler, bytes)
    }

    /// Pinned host memory of `bytes`.
    ///
    /// # Errors
    ///
    /// As [`buffer`](Self::buffer).
    pub fn pinned(&self, bytes: usize) -> Result<PinnedBuffer> {
        let _calling = self.shared.gpu.ready("pinned")?;
        let mut reclaimed = Reclaimed::default();
        let mut state = self.shared.open("pinned")?;
        self.shared.settle(&mut state, DRAIN_LOOKS, &mut reclaimed);
        PinnedBuffer::new(&self.shared.recycler, bytes)
    }

    /// Whether a store behind work really lands: makes a stream, queues one, and looks for it once the
    /// semaphore says done. Waits for at most 5 s.
    #[must_use]
    pub fn caps(&self) -> DeviceCaps {
        let store = self.stream().and_then(|stream| self.probe_store(&stream));
        DeviceCaps { store: store.map_err(|error| error.to_string()) }
    }

    fn probe_store(&self, stream: &VulkanStream) -> Result<()> {
        let number = stream.mark()?;
        if !stream.core().wait_slice("caps", number, PROBE_NS)? {
            return Err(Error::backend("caps", "a store behind no work was not done within 5 s"));
        }
        if reached((**stream.line()).as_ref(), stream.slot(), number) {
            return Ok(());
        }
        let name = &self.shared.gpu.name;
        Err(Error::new(ErrorCode::StoreMissing, [format!("vkCmdUpdateBuffer on {name}")]))
    }

    /// Waits until the queue is idle, refuses what comes later, and frees what nobody holds any more.
    ///
    /// Says how many streams, buffers and pages of lines the program still holds. They stay valid, can
    /// be asked, and queue nothing; a page with a retired slot, whose store never landed, counts for ever.
    /// Once they are dropped a further call frees the rest; with the answer 0
    /// everything is freed, and so are the device and the instance, where
    /// [`open`](VulkanDeviceBuilder::open) made them: what the program made by [`raw`](Self::raw) must be
    /// destroyed by then.
    ///
    /// Not to be called by the destructor of a leased buffer, which this may run.
    ///
    /// # Errors
    ///
    /// That of `vkQueueWaitIdle`. A lost device is leaked with everything on it, since nobody can tell
    /// what it still does, and every call answers with its loss.
    pub fn close(&self) -> Result<usize> {
        self.shared.close()
    }

    /// What the device holds now. No Vulkan call.
    #[must_use]
    pub fn stats(&self) -> VulkanStats {
        self.shared.stats()
    }

    /// How many devices of this process were dropped without being closed, or lost, and leaked.
    #[must_use]
    pub fn leaked_devices() -> usize {
        shared::leaked_devices()
    }

    /// The name of the physical device.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.gpu.name
    }

    /// The queue, and the lock under which it is used.
    #[must_use]
    pub fn queue(&self) -> &VulkanQueue {
        &self.shared.gpu.queue
    }

    /// The device, for a program that records and allocates by itself. It is destroyed by
    /// [`close`](Self::close), where this backend made it.
    #[must_use]
    pub fn raw(&self) -> &ash::Device {
        &self.shared.gpu.device
    }

    /// The instance, of which the same holds.
    #[must_use]
    pub fn raw_instance(&self) -> &ash::Instance {
        &self.shared.gpu.instance
    }

    /// The physical device.
    #[must_use]
    pub fn raw_physical_device(&self) -> vk::PhysicalDevice {
        self.shared.gpu.physical
    }

    /// A stream whose slot goes on from `issued`.
    #[cfg(test)]
    pub(super) fn stream_from(&self, issued: u64) -> Result<VulkanStream> {
        let line = self.shared.pages.line()?;
        let slot = crate::core::line::Slot::ALL[0];
        (*line).as_ref().store(slot, issued);
        let mut state = self.shared.open("stream_from")?;
        let lease = state.slots.adopt(line, slot)?;
        self.shared.stream(&mut state, lease, None)
    }
}

impl fmt::Debug for VulkanDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VulkanDevice")
            .field("name", &self.name())
            .field("lost", &self.shared.gpu.is_lost())
            .field("closing", &self.shared.is_closing())
            .finish_non_exhaustive()
    }
}
