//! The queue and its one lock.
//!
//! A `VkQueue` is externally synchronized: "host access to queue must be externally synchronized"
//! stands at `vkQueueSubmit` and `vkQueueWaitIdle` (Vulkan specification, "Threading Behavior"). All
//! submissions of this backend therefore go through [`VulkanQueue::with`], and a program that
//! submits by itself does so too, or lends the lock under which it already submits.

use alloc::sync::Arc;
use ash::vk;
use core::fmt;
use std::sync::{Mutex, PoisonError};

/// A lock that keeps all other users of a queue away.
///
/// Lent to [`VulkanDevice::from_raw`](super::VulkanDevice::from_raw) by a program that submits to the
/// queue under a lock of its own.
///
/// # Safety
///
/// [`locked`](Self::locked) runs what it is given while no other thread runs what it gave to a lock
/// of the same queue, nor uses the queue in any other way: two submissions at once are undefined behaviour.
/// A panic in it is allowed.
pub unsafe trait QueueLock: Send + Sync {
    /// Runs `critical` once, on this thread, while nobody else uses the queue.
    ///
    /// It is called with a lock of the stream held, and never from within itself. `critical` makes
    /// one Vulkan call, takes no other lock and does not panic. A lock that panics after it ran it loses the
    /// device, since what was queued is then unknown.
    fn locked(&self, critical: &mut dyn FnMut());
}

// SAFETY: the guard is held while it runs, and a poisoned mutex excludes as a whole one does.
unsafe impl<T: Send> QueueLock for Mutex<T> {
    fn locked(&self, critical: &mut dyn FnMut()) {
        let _guard = self.lock().unwrap_or_else(PoisonError::into_inner);
        critical();
    }
}

/// A queue of a device, and the lock under which it is used.
#[derive(Clone)]
pub struct VulkanQueue {
    raw: vk::Queue,
    family: u32,
    lock: Arc<dyn QueueLock>,
}

impl VulkanQueue {
    pub(super) fn new(raw: vk::Queue, family: u32, lock: Option<Arc<dyn QueueLock>>) -> Self {
        let lock = lock.unwrap_or_else(|| Arc::new(Mutex::new(())));
        VulkanQueue { raw, family, lock }
    }

    /// The family of the queue.
    #[must_use]
    pub fn family(&self) -> u32 {
        self.family
    }

    /// Runs `work` with the raw queue under the lock: submissions, presentation, waits for idle.
    ///
    /// Every stream of the device waits for `work` to return before it can queue anything; status
    /// queries and blocking waits do not. `work` must not use a stream of this device, which would
    /// take the same lock and so never return.
    ///
    /// # Panics
    ///
    /// Where a lent [`QueueLock`] did not run what it was given.
    pub fn with<T>(&self, work: impl FnOnce(vk::Queue) -> T) -> T {
        let (mut work, mut done) = (Some(work), None);
        self.lock.locked(&mut || {
            if let Some(work) = work.take() {
                done = Some(work(self.raw));
            }
        });
        done.expect("a queue lock runs what it is given")
    }
}

impl fmt::Debug for VulkanQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VulkanQueue").field("raw", &self.raw).field("family", &self.family).finish()
    }
}
