//! Buffers of the program: device memory, and pinned memory that the host sees.
//!
//! Dropping one makes no Vulkan call. Its memory goes to the device's [`Recycler`] and is handed out
//! again, or freed: when the device is closed, or when another buffer is made that it does not serve and too
//! many such are kept or memory is short.

use super::gpu::Gpu;
use super::memory::{Allocation, PAGE, Use, too_long};
use crate::backend::lease::DeviceBuffer;
use crate::core::error::Result;
use crate::fork::Own;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::vk;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many allocations that nobody uses are kept before the making of another one frees the oldest.
const KEPT: usize = 64;

/// Memory that nobody uses, and the count of what somebody does.
pub(super) struct Recycler {
    gpu: Arc<Gpu>,
    /// The oldest first. The device uses none of it: streams and leases keep what it does, and so must the
    /// program for its own commands. The lock is held for no Vulkan call.
    unused: Own<Mutex<Vec<Allocation>>>,
    used: AtomicUsize,
}

impl Recycler {
    pub(super) fn new(gpu: Arc<Gpu>) -> Self {
        let unused = Own::of(gpu.birth, Mutex::new(Vec::new()));
        Recycler { gpu, unused, used: AtomicUsize::new(0) }
    }

    fn unused(&self) -> MutexGuard<'_, Vec<Allocation>> {
        self.unused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At least `bytes` for `kind`: what was used before, if it is not more than twice that.
    fn take(self: &Arc<Self>, bytes: usize, kind: Use) -> Result<DeviceMemory> {
        let pages = (bytes as u64).max(1).checked_next_multiple_of(PAGE);
        let bytes = pages.ok_or_else(|| too_long(bytes))?;
        let serves = |old: &Allocation| old.bytes >= bytes && old.bytes / 2 <= bytes;
        let fits = |old: &Allocation| old.kind == kind && serves(old);
        let old = {
            let mut unused = self.unused();
            unused.iter().position(fits).map(|at| unused.remove(at))
        };
        let allocation = match old {
            Some(old) => old,
            None => self.make(bytes, kind)?,
        };
        self.used.fetch_add(1, Ordering::Relaxed);
        Ok(DeviceMemory { allocation: Some(allocation), recycler: self.clone() })
    }

    /// A new allocation. What nobody uses makes room for it: the oldest where many are kept, or else buffers
    /// that grow bit by bit would leave all the smaller ones behind, and everything where memory is short.
    fn make(&self, bytes: u64, kind: Use) -> Result<Allocation> {
        let surplus = {
            let mut unused = self.unused();
            (unused.len() >= KEPT).then(|| unused.remove(0))
        };
        if let Some(surplus) = surplus {
            // SAFETY: it was made by this device, nobody holds it, and the device does not use it.
            unsafe { surplus.destroy(&self.gpu) };
        }
        let made = Allocation::new(&self.gpu, bytes, kind);
        let failed = made.as_ref().err().is_some_and(|error| error.status_number().is_some());
        // SAFETY: the device is there, since it has just answered.
        if failed && !self.gpu.is_lost() && unsafe { self.free() } > 0 {
            return Allocation::new(&self.gpu, bytes, kind);
        }
        made
    }

    /// How many allocations somebody holds.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    /// How many allocations nobody holds.
    pub(super) fn kept(&self) -> usize {
        self.unused().len()
    }

    /// Frees what nobody holds, and says how many there were.
    ///
    /// # Safety
    ///
    /// The device is not destroyed. What the program's own commands used of it was kept until they were done.
    pub(super) unsafe fn free(&self) -> usize {
        let unused = core::mem::take(&mut *self.unused());
        let freed = unused.len();
        for allocation in unused {
            // SAFETY: it was made by this device and nobody holds it, hence no reference into it; nor does
            // the device use it.
            unsafe { allocation.destroy(&self.gpu) };
        }
        freed
    }
}

/// An allocation that goes to the recycler when it is dropped.
pub(super) struct DeviceMemory {
    /// None only while it is dropped.
    allocation: Option<Allocation>,
    recycler: Arc<Recycler>,
}

impl DeviceMemory {
    fn allocation(&self) -> &Allocation {
        self.allocation.as_ref().expect("the memory is not being dropped")
    }

    pub(super) fn buffer(&self) -> vk::Buffer {
        self.allocation().buffer
    }

    pub(super) fn is_of(&self, recycler: &Arc<Recycler>) -> bool {
        Arc::ptr_eq(&self.recycler, recycler)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that is not there.
        if self.recycler.gpu.birth.is_forked() {
            return;
        }
        if let Some(allocation) = self.allocation.take() {
            self.recycler.unused().push(allocation);
            self.recycler.used.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Memory of the device, for [`VulkanStream::fill`](super::VulkanStream::fill) and copies. Clones are
/// handles of the same bytes.
///
/// What a stream uses stays until a status or a submission of the stream finds that its semaphore has passed
/// that use, whoever drops it. Its content is undefined at first, and that of an earlier buffer may show.
#[derive(Clone)]
pub struct VulkanBuffer {
    memory: Arc<DeviceMemory>,
    bytes: usize,
}

impl VulkanBuffer {
    pub(super) fn new(recycler: &Arc<Recycler>, bytes: usize) -> Result<Self> {
        let memory = Arc::new(recycler.take(bytes, Use::DeviceOnly)?);
        Ok(VulkanBuffer { memory, bytes })
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The buffer, of storage and transfer usage, at least [`len`](Self::len) bytes long. Whoever uses
    /// it in commands of their own keeps this handle until they are done.
    #[must_use]
    pub fn raw(&self) -> vk::Buffer {
        self.memory.buffer()
    }

    pub(super) fn memory(&self) -> &Arc<DeviceMemory> {
        &self.memory
    }
}

impl fmt::Debug for VulkanBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VulkanBuffer").field("raw", &self.raw()).field("len", &self.bytes).finish()
    }
}

/// Host memory that the device reads and writes: mapped, coherent, and cached where the device has such
/// memory, so that the host reads it at full speed.
///
/// Zero at first, but for bytes of an earlier buffer of the same device that may show. While the
/// device uses it, it belongs in a [`Lease`](crate::backend::lease::Lease); the program reads and writes
/// it by the methods of [`DeviceBuffer`].
pub struct PinnedBuffer {
    memory: DeviceMemory,
    bytes: usize,
}

impl PinnedBuffer {
    pub(super) fn new(recycler: &Arc<Recycler>, bytes: usize) -> Result<Self> {
        Ok(PinnedBuffer { memory: recycler.take(bytes, Use::HostReads)?, bytes })
    }

    /// The buffer, of transfer usage, at least as long as the slice. Using it in commands is unsafe:
    /// the host must not touch this value until they are complete.
    #[must_use]
    pub fn raw(&self) -> vk::Buffer {
        self.memory.buffer()
    }

    pub(super) fn is_of(&self, recycler: &Arc<Recycler>) -> bool {
        self.memory.is_of(recycler)
    }
}

// SAFETY: the mapping is valid for reads and writes of any thread until the destructor hands it to the
// recycler, does not move with the value, and nobody else uses it before. It was zeroed when it was mapped,
// and at least as long. References come from this trait's own methods only, which borrow the value; a
// device is told of the buffer by leases and by unsafe code alone.
unsafe impl DeviceBuffer for PinnedBuffer {
    fn address(&self) -> NonNull<u8> {
        self.memory.allocation().address()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl fmt::Debug for PinnedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedBuffer").field("raw", &self.raw()).field("len", &self.bytes).finish()
    }
}
