//! The device: its lines, its listener, its counts.

use super::stream::MetalStream;
use crate::backend::lease::{LeaseCounts, LeaseStats, Reclaim};
use crate::core::doorbell::Doorbell;
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::line::SharedLine;
use crate::core::plan::DeviceCaps;
use crate::core::pool::{SlotLease, SlotPool, SlotStats};
use crate::fork::{Birth, Own};
use alloc::string::ToString;
use alloc::sync::Arc;
use core::fmt;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::{
    MTLCommandQueue, MTLCreateSystemDefaultDevice, MTLDevice, MTLSharedEvent,
    MTLSharedEventListener,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many unfinished command buffers a queue may have that is made by [`MetalDevice::stream`].
pub const QUEUE_LENGTH: usize = 1024;

// "MTLCreateSystemDefaultDevice" says that a program on macOS which uses it links CoreGraphics.
#[cfg(target_os = "macos")]
#[link(name = "CoreGraphics", kind = "framework")]
unsafe extern "C" {}

/// A device of Metal's. Clones are handles of the same one.
#[derive(Clone)]
pub struct MetalDevice(Arc<Shared>);

pub(super) type RawDevice = Retained<ProtocolObject<dyn MTLDevice>>;
pub(super) type RawQueue = Retained<ProtocolObject<dyn MTLCommandQueue>>;
pub(super) type RawEvent = Retained<ProtocolObject<dyn MTLSharedEvent>>;

/// Slots of lines in this process's memory, which the listener's thread writes.
type Slots = SlotPool<fn() -> Result<SharedLine>>;

pub(super) struct Shared {
    objects: Own<Objects>,
    /// Forgotten in a forked child, as a thread that is not there may have been changing it.
    pool: Own<Mutex<Slots>>,
    leases: Arc<LeaseCounts>,
}

/// Forgotten in a forked child.
struct Objects {
    device: RawDevice,
    listener: Retained<MTLSharedEventListener>,
}

impl MetalDevice {
    /// The system's default device.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorCode::Unsupported) where there is none.
    pub fn system_default() -> Result<Self> {
        let device = MTLCreateSystemDefaultDevice().ok_or_else(|| {
            Error::new(ErrorCode::Unsupported, ["Metal", "the system has no default device"])
        })?;
        Ok(Self::new(device))
    }

    /// `device`, kept by this and by all streams made of it.
    #[must_use]
    pub fn new(device: RawDevice) -> Self {
        let objects = Objects { device, listener: MTLSharedEventListener::new() };
        MetalDevice(Arc::new(Shared {
            objects: Own::new(objects),
            pool: Own::new(Mutex::new(SlotPool::default())),
            leases: Arc::default(),
        }))
    }

    /// Metal's own.
    #[must_use]
    pub fn raw(&self) -> &ProtocolObject<dyn MTLDevice> {
        self.0.device()
    }

    /// A stream over a new command queue of at most [`QUEUE_LENGTH`] unfinished command buffers.
    ///
    /// # Errors
    ///
    /// A [`Backend`](ErrorCode::Backend) error where Metal makes no queue or event;
    /// [`Forked`](ErrorCode::Forked).
    pub fn stream(&self) -> Result<MetalStream> {
        self.0.check_fork("stream")?;
        let queue = self.raw().newCommandQueueWithMaxCommandBufferCount(QUEUE_LENGTH);
        let queue = queue.ok_or_else(|| nil("newCommandQueueWithMaxCommandBufferCount"))?;
        self.stream_over(queue, None)
    }

    /// A stream over `queue`, which rings `doorbell`, if any, after each store of a word.
    ///
    /// Several streams may share a queue. Each waits for what was committed to the queue before its
    /// marks, and knows the errors of what was committed through itself.
    ///
    /// # Errors
    ///
    /// [`ForeignContext`](ErrorCode::ForeignContext) where the queue is of another device; otherwise
    /// as [`stream`](Self::stream).
    pub fn stream_over(&self, queue: RawQueue, doorbell: Option<&Doorbell>) -> Result<MetalStream> {
        self.0.check_fork("stream")?;
        if !core::ptr::eq(&*queue.device(), self.raw()) {
            return Err(Error::new(ErrorCode::ForeignContext, ["stream", "queue"]));
        }
        let event = self.raw().newSharedEvent().ok_or_else(|| nil("newSharedEvent"))?;
        let lease = self.0.slots().acquire()?;
        let reclaim = Reclaim::new(self.0.leases.clone());
        Ok(MetalStream::new(self.0.clone(), queue, event, lease, doorbell.cloned(), reclaim))
    }

    /// Metal's devices write no word that the program could watch; a thread of the system's does it for
    /// them.
    #[must_use]
    pub fn caps(&self) -> DeviceCaps {
        let why = "Metal has no command that stores a word behind other work; \
            a listener of the shared event stores it, from a thread of the system";
        DeviceCaps { store: Err(why.to_string()) }
    }

    pub(super) fn birth(&self) -> Birth {
        self.0.objects.birth()
    }

    /// What became of the slots. Takes a lock; nothing, in a forked child.
    #[must_use]
    pub fn slots(&self) -> SlotStats {
        if self.birth().is_forked() {
            return SlotStats::default();
        }
        self.0.slots().stats()
    }

    /// What became of the buffers that were leased on its streams.
    #[must_use]
    pub fn lease_stats(&self) -> LeaseStats {
        self.0.leases.get()
    }
}

impl Shared {
    pub(super) fn device(&self) -> &ProtocolObject<dyn MTLDevice> {
        &self.objects.device
    }

    pub(super) fn listener(&self) -> &MTLSharedEventListener {
        &self.objects.listener
    }

    pub(super) fn check_fork(&self, call: &str) -> Result<()> {
        self.objects.birth().check(call)
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the slot of a stream back. `failed`: its last number may never come.
    pub(super) fn give_back(&self, lease: SlotLease, failed: bool) {
        let mut slots = self.slots();
        if failed { slots.retire(lease) } else { slots.release(lease) }
    }
}

/// The error of a call that returned nothing.
#[cold]
pub(super) fn nil(call: &str) -> Error {
    Error::backend(call, "nil")
}

impl fmt::Debug for MetalDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetalDevice").field("leases", &self.lease_stats()).finish_non_exhaustive()
    }
}
