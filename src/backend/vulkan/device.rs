//! The device: its lines and slots, its streams, its end.

use super::buffer::{PinnedBuffer, Recycler, VulkanBuffer};
use super::commands::CommandSet;
use super::gpu::Gpu;
use super::issue::{Bell, StreamCore};
use super::open::{Owned, VulkanDeviceBuilder};
use super::pages::Pages;
use super::queue::VulkanQueue;
use super::remains::{Reclaimed, Remains};
use super::status;
use super::stream::VulkanStream;
use crate::backend::lease::{LeaseCounts, LeaseStats};
use crate::core::doorbell::Doorbell;
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::line::{SharedLine, reached};
use crate::core::plan::DeviceCaps;
use crate::core::pool::{DRAIN_LOOKS, SlotLease, SlotPool, SlotStats};
use crate::core::port::DeviceStream;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::vk;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long the start-up probe waits for its store, in nanoseconds.
const PROBE_NS: u64 = 5_000_000_000;

/// Devices of this process that were dropped without being closed.
static LEAKED_DEVICES: AtomicUsize = AtomicUsize::new(0);

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
/// In a child process every call answers `Forked`, and dropping makes no Vulkan call.
#[derive(Clone)]
pub struct VulkanDevice {
    shared: Arc<Shared>,
}

type LineMaker = Box<dyn FnMut() -> Result<SharedLine> + Send>;

/// What handles and streams share.
pub(super) struct Shared {
    pub(super) gpu: Arc<Gpu>,
    pages: Arc<Pages>,
    recycler: Arc<Recycler>,
    leases: Arc<LeaseCounts>,
    /// Objects are made and destroyed under this lock.
    state: Mutex<State>,
    /// Of dropped streams. Its lock is held for a push or a swap, never for a Vulkan call.
    left: Mutex<Vec<Remains>>,
    /// Streams that are not dropped.
    streams: AtomicUsize,
    leaked: AtomicUsize,
    closing: AtomicBool,
    /// Held by one `close` at a time, which may destroy what another one would still wait for.
    ending: Mutex<()>,
}

struct State {
    slots: SlotPool<LineMaker>,
    /// Of dropped streams, ready to be used again.
    commands: Vec<CommandSet>,
    /// Slots whose numbers are used up, which no stream gets any more.
    exhausted: Vec<SlotLease>,
    phase: Phase,
}

enum Phase {
    /// What is to be destroyed at the end, where this backend made the device.
    Open(Option<Owned>),
    /// Nothing is left.
    Closed,
    /// The device was lost, and all of it is leaked.
    Leaked,
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
    /// Allocations that nobody uses, kept for the next buffers.
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
        let gpu = Arc::new(gpu);
        let pages = Arc::new(Pages::new(gpu.clone()));
        let make_line: LineMaker = Box::new({
            let pages = pages.clone();
            move || pages.line()
        });
        let state = State {
            slots: SlotPool::new(make_line),
            commands: Vec::new(),
            exhausted: Vec::new(),
            phase: Phase::Open(owned),
        };
        let shared = Shared {
            recycler: Arc::new(Recycler::new(gpu.clone())),
            leases: Arc::default(),
            gpu,
            pages,
            state: Mutex::new(state),
            left: Mutex::new(Vec::new()),
            streams: AtomicUsize::new(0),
            leaked: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            ending: Mutex::new(()),
        };
        VulkanDevice { shared: Arc::new(shared) }
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
        shared.gpu.ready(call)?;
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
        self.shared.gpu.ready("doorbell")?;
        let _state = self.shared.open("doorbell")?;
        Ok(Doorbell::over(self.shared.pages.line()?))
    }

    /// Device memory of at least `bytes`.
    ///
    /// # Errors
    ///
    /// Those of the Vulkan calls.
    pub fn buffer(&self, bytes: usize) -> Result<VulkanBuffer> {
        self.shared.gpu.ready("buffer")?;
        let mut reclaimed = Reclaimed::default();
        let mut state = self.shared.open("buffer")?;
        self.shared.settle(&mut state, DRAIN_LOOKS, &mut reclaimed);
        VulkanBuffer::new(&self.shared.recycler, bytes)
    }

    /// Pinned host memory of `bytes`.
    ///
    /// # Errors
    ///
    /// Those of the Vulkan calls.
    pub fn pinned(&self, bytes: usize) -> Result<PinnedBuffer> {
        self.shared.gpu.ready("pinned")?;
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
    /// # Errors
    ///
    /// That of `vkQueueWaitIdle`. A lost device is leaked with everything on it, since nobody can tell
    /// what it still does, and every call answers with its loss.
    pub fn close(&self) -> Result<usize> {
        let shared = &self.shared;
        shared.gpu.birth.check("close")?;
        let _ending = shared.ending.lock().unwrap_or_else(PoisonError::into_inner);
        shared.closing.store(true, Ordering::Release);
        if let Phase::Closed = shared.state().phase {
            return Ok(0);
        }
        // SAFETY: the queue is ours alone for the call.
        let wait = |queue| unsafe { shared.gpu.device.queue_wait_idle(queue) };
        let idle = shared
            .gpu
            .ready("close")
            .and_then(|()| shared.gpu.checked("vkQueueWaitIdle", shared.gpu.queue.with(wait)));
        let mut reclaimed = Reclaimed::default();
        let mut state = shared.state();
        if let Err(error) = idle {
            if shared.gpu.is_lost() {
                shared.settle(&mut state, usize::MAX, &mut reclaimed);
                state.phase = Phase::Leaked;
            }
            return Err(error);
        }
        // What the program's buffers hold of this device is free only once they are dropped.
        shared.settle(&mut state, usize::MAX, &mut reclaimed);
        drop(state);
        drop(reclaimed);
        shared.free(&mut shared.state())
    }

    /// What the device holds now. No Vulkan call.
    #[must_use]
    pub fn stats(&self) -> VulkanStats {
        let shared = &self.shared;
        if shared.gpu.birth.is_forked() {
            return VulkanStats::default();
        }
        let (slots, exhausted) = {
            let state = shared.state();
            (state.slots.stats(), state.exhausted.len())
        };
        VulkanStats {
            slots,
            exhausted,
            pages: shared.pages.count().0,
            streams: shared.streams.load(Ordering::Acquire),
            settling: shared.left().len(),
            leaked: shared.leaked.load(Ordering::Relaxed),
            buffers: shared.recycler.used(),
            unused_buffers: shared.recycler.kept(),
            leases: shared.leases.get(),
        }
    }

    /// How many devices of this process were dropped without being closed, or lost, and leaked.
    #[must_use]
    pub fn leaked_devices() -> usize {
        LEAKED_DEVICES.load(Ordering::Relaxed)
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

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn left(&self) -> MutexGuard<'_, Vec<Remains>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock under which objects are made, unless the device is closed.
    fn open(&self, call: &str) -> Result<MutexGuard<'_, State>> {
        let state = self.state();
        if self.is_closing() { Err(status::closed(call)) } else { Ok(state) }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(super) fn leases(&self) -> &Arc<LeaseCounts> {
        &self.leases
    }

    pub(super) fn recycler(&self) -> &Arc<Recycler> {
        &self.recycler
    }

    fn bell(&self, call: &str, doorbell: &Doorbell) -> Result<Bell> {
        let place = self.pages.place_of(doorbell.line());
        let place = place.ok_or_else(|| status::foreign(call, "doorbell"))?;
        Ok(Bell { doorbell: doorbell.clone(), place, slot: doorbell.bind_stream() })
    }

    /// Makes a stream of `lease`, or gives the lease back.
    fn stream(
        self: &Arc<Self>,
        state: &mut State,
        lease: SlotLease,
        bell: Option<Bell>,
    ) -> Result<VulkanStream> {
        match self.objects(state, lease.last_issued()) {
            Ok((semaphore, commands)) => {
                let place = self.pages.place_of((**lease.line()).as_ref());
                let place = place.expect("the pool's lines lie in these pages");
                self.streams.fetch_add(1, Ordering::Relaxed);
                let core = StreamCore::new(self.clone(), lease, place, bell, semaphore, commands);
                Ok(VulkanStream::new(Arc::new(core)))
            }
            Err(error) => {
                state.slots.release(lease);
                Err(error)
            }
        }
    }

    fn objects(&self, state: &mut State, issued: u64) -> Result<(vk::Semaphore, CommandSet)> {
        let gpu = &self.gpu;
        let mut kind = vk::SemaphoreTypeCreateInfo::default()
            .semaphore_type(vk::SemaphoreType::TIMELINE)
            .initial_value(issued);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the device is valid, with the feature `timelineSemaphore`.
        let semaphore = unsafe { gpu.device.create_semaphore(&info, None) };
        let semaphore = gpu.checked("vkCreateSemaphore", semaphore)?;
        let commands = state.commands.pop().map_or_else(|| CommandSet::new(gpu), Ok);
        match commands {
            Ok(commands) => Ok((semaphore, commands)),
            Err(error) => {
                // SAFETY: just made here; nothing uses it.
                unsafe { gpu.device.destroy_semaphore(semaphore, None) };
                Err(error)
            }
        }
    }

    /// Takes over what a dropped stream leaves. No Vulkan call.
    pub(super) fn leave(&self, remains: Remains) {
        self.left().push(remains);
        // After it is in the list: who sees no stream finds all that they left.
        self.streams.fetch_sub(1, Ordering::Release);
    }

    /// Looks at up to `looks` dropped streams.
    fn settle(&self, state: &mut State, looks: usize, reclaimed: &mut Reclaimed) {
        let mut looked = core::mem::take(&mut *self.left());
        let rest = looked.split_off(looks.min(looked.len()));
        // The rest comes first next time.
        let mut pending = rest;
        for remains in looked {
            match remains.settled(&self.gpu) {
                Ok(true) => {
                    // SAFETY: it is settled.
                    let commands = unsafe {
                        remains.reuse(&self.gpu, &mut state.slots, &mut state.exhausted, reclaimed)
                    };
                    state.commands.push(commands);
                }
                Err(_) if self.gpu.is_lost() => {
                    self.leaked.fetch_add(1, Ordering::Relaxed);
                    remains.leak(&mut state.slots);
                }
                Ok(false) | Err(_) => pending.push(remains),
            }
        }
        self.left().extend(pending);
    }

    /// Frees what nobody holds; the queue is idle and stays so.
    fn free(&self, state: &mut State) -> Result<usize> {
        // Before the list is looked at, see `leave`. One that was dropped meanwhile waits for another call.
        let streams = self.streams.load(Ordering::Acquire);
        self.gpu.ready("close")?;
        let settling = self.left().len();
        for commands in state.commands.drain(..) {
            // SAFETY: they are of dropped streams that are settled.
            unsafe { commands.destroy(&self.gpu) };
        }
        let buffers = self.recycler.used();
        // SAFETY: the queue is idle and everything that uses memory of this device was queued there.
        unsafe { self.recycler.free() };
        if streams + settling + buffers > 0 {
            return Ok(streams + settling + buffers);
        }
        // The pool's lines are the only ones that nobody else holds, or everything would be freed.
        state.exhausted.clear();
        let gone: LineMaker = Box::new(|| Err(status::closed("line")));
        drop(core::mem::replace(&mut state.slots, SlotPool::new(gone)));
        // SAFETY: the queue is idle.
        let pages = unsafe { self.pages.free_unheld() };
        if pages > 0 {
            return Ok(pages);
        }
        let phase = core::mem::replace(&mut state.phase, Phase::Closed);
        if let Phase::Open(Some(owned)) = phase {
            // SAFETY: everything made here is destroyed, the queue is idle, and nothing can be made any more,
            // since the phase is closed and this is under the lock.
            unsafe { owned.destroy(&self.gpu) };
        }
        Ok(0)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.gpu.birth.is_forked() {
            return;
        }
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The handles have no destructors: what was not freed by `close` is leaked.
        if !matches!(state.phase, Phase::Closed) {
            LEAKED_DEVICES.fetch_add(1, Ordering::Relaxed);
        }
    }
}
