//! What the handles of a device and its streams share: lines, slots, what dropped streams left, the end.
//!
//! # Locks, in the order in which they are taken
//!
//! ```text
//! ending (close) -> state -> left, pages, recycler
//! a stream's own -> the queue's
//! ```
//!
//! `state` is held while objects are made and destroyed; `left` for a push or a swap alone, so that
//! dropping a stream never waits for a Vulkan call. Destructors of the program run with none of
//! them held but `ending`.
//!
//! What a lock guards is forgotten in a forked child: a thread that is not there may have been changing it.

use super::buffer::Recycler;
use super::commands::CommandSet;
use super::device::VulkanStats;
use super::gpu::Gpu;
use super::issue::{Bell, StreamCore};
use super::open::Owned;
use super::pages::Pages;
use super::remains::{Reclaimed, Remains};
use super::status;
use super::stream::VulkanStream;
use crate::backend::lease::LeaseCounts;
use crate::core::doorbell::Doorbell;
use crate::core::error::Result;
use crate::core::line::SharedLine;
use crate::core::pool::{SlotLease, SlotPool};
use crate::fork::Own;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::vk;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Devices of this process that were dropped without being closed.
static LEAKED_DEVICES: AtomicUsize = AtomicUsize::new(0);

type LineMaker = Box<dyn FnMut() -> Result<SharedLine> + Send>;

/// How many they are.
pub(super) fn leaked_devices() -> usize {
    LEAKED_DEVICES.load(Ordering::Relaxed)
}

/// What handles and streams share.
pub(super) struct Shared {
    pub(super) gpu: Arc<Gpu>,
    pub(super) pages: Arc<Pages>,
    pub(super) recycler: Arc<Recycler>,
    leases: Arc<LeaseCounts>,
    /// Objects are made and destroyed under this lock.
    state: Own<Mutex<State>>,
    /// Of dropped streams. Its lock is held for a push or a swap, never for a Vulkan call.
    left: Own<Mutex<Vec<Remains>>>,
    /// Streams that are not dropped.
    streams: AtomicUsize,
    leaked: AtomicUsize,
    closing: AtomicBool,
    /// Held by one `close` at a time, which may destroy what another one would still wait for.
    ending: Mutex<()>,
}

pub(super) struct State {
    pub(super) slots: SlotPool<LineMaker>,
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

impl Shared {
    pub(super) fn new(gpu: Gpu, owned: Option<Owned>) -> Self {
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
        let birth = gpu.birth;
        Shared {
            recycler: Arc::new(Recycler::new(gpu.clone())),
            leases: Arc::default(),
            gpu,
            pages,
            state: Own::of(birth, Mutex::new(state)),
            left: Own::of(birth, Mutex::new(Vec::new())),
            streams: AtomicUsize::new(0),
            leaked: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            ending: Mutex::new(()),
        }
    }

    /// [`VulkanDevice::close`](super::VulkanDevice::close).
    pub(super) fn close(&self) -> Result<usize> {
        self.gpu.birth.check("close")?;
        let _ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        self.closing.store(true, Ordering::Release);
        if let Phase::Closed = self.state().phase {
            return Ok(0);
        }
        // SAFETY: the queue is ours alone for the call.
        let wait = |queue| unsafe { self.gpu.device.queue_wait_idle(queue) };
        let idle = self
            .gpu
            .ready("close")
            .and_then(|_calling| self.gpu.checked("vkQueueWaitIdle", self.gpu.queue.with(wait)));
        let mut reclaimed = Reclaimed::default();
        let mut state = self.state();
        if let Err(error) = idle {
            if self.gpu.is_lost() {
                self.settle(&mut state, usize::MAX, &mut reclaimed);
                state.phase = Phase::Leaked;
            }
            return Err(error);
        }
        // What the program's buffers hold of this device is free only once they are dropped.
        self.settle(&mut state, usize::MAX, &mut reclaimed);
        drop(state);
        drop(reclaimed);
        self.free(&mut self.state())
    }

    /// What the device holds now.
    pub(super) fn stats(&self) -> VulkanStats {
        if self.gpu.birth.is_forked() {
            return VulkanStats::default();
        }
        let (slots, exhausted) = {
            let state = self.state();
            (state.slots.stats(), state.exhausted.len())
        };
        VulkanStats {
            slots,
            exhausted,
            pages: self.pages.count().0,
            streams: self.streams.load(Ordering::Acquire),
            settling: self.left().len(),
            leaked: self.leaked.load(Ordering::Relaxed),
            buffers: self.recycler.used(),
            unused_buffers: self.recycler.kept(),
            leases: self.leases.get(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn left(&self) -> MutexGuard<'_, Vec<Remains>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock under which objects are made, unless the device is closed.
    pub(super) fn open(&self, call: &str) -> Result<MutexGuard<'_, State>> {
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

    pub(super) fn bell(&self, call: &str, doorbell: &Doorbell) -> Result<Bell> {
        let place = self.pages.place_of(doorbell.line());
        let place = place.ok_or_else(|| status::foreign(call, "doorbell"))?;
        Ok(Bell { doorbell: doorbell.clone(), place, slot: doorbell.bind_stream() })
    }

    /// Makes a stream of `lease`, or gives the lease back.
    pub(super) fn stream(
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
    pub(super) fn settle(&self, state: &mut State, looks: usize, reclaimed: &mut Reclaimed) {
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
        let _calling = self.gpu.ready("close")?;
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
