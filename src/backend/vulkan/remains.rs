//! What a dropped stream leaves behind: everything that its last submission may still use.
//!
//! ```text
//! stream dropped -> settling --counter reached last-----> slot, commands: used again; semaphore destroyed
//!                            --word missing then--------> slot retired (counted), the rest as above
//!                            --numbers used up----------> slot put aside (counted), the rest as above
//!                            --device lost--------------> leaked (counted), slot retired
//! ```
//!
//! The device looks at a few of these whenever it makes a stream or a buffer, and at all of them when it is
//! closed. A look is one call of `vkGetSemaphoreCounterValue`, which does not wait.

use super::buffer::DeviceMemory;
use super::commands::CommandSet;
use super::gpu::Gpu;
use super::record::LAST_NUMBER;
use crate::backend::lease::Reclaim;
use crate::core::doorbell::Doorbell;
use crate::core::error::Result;
use crate::core::line::SharedLine;
use crate::core::pool::{SlotLease, SlotPool};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::vk;

/// The buffers that waited on streams that are settled. Dropping it drops them, which runs destructors of
/// the program: it comes after every lock was released.
#[derive(Default)]
pub(super) struct Reclaimed(Vec<Reclaim>);

impl Drop for Reclaimed {
    fn drop(&mut self) {
        for reclaim in &self.0 {
            // The semaphore has passed the last number of the stream, and so every mark on it.
            reclaim.finish(|_| Ok(true));
        }
    }
}

/// A slot that has issued more than this is not used again: a stream wants numbers to last a while.
const LAST_REUSED: u64 = LAST_NUMBER - (1 << 24);

pub(super) struct Remains {
    pub(super) lease: SlotLease,
    pub(super) commands: CommandSet,
    pub(super) semaphore: vk::Semaphore,
    /// The last number that was submitted.
    pub(super) last: u64,
    /// The last number whose store was queued.
    pub(super) marked: u64,
    pub(super) uses: VecDeque<(u64, Arc<DeviceMemory>)>,
    /// Buffers of leases that were dropped before the stream was.
    pub(super) reclaim: Option<Reclaim>,
    /// Its line may still be rung.
    pub(super) doorbell: Option<Doorbell>,
}

impl Remains {
    /// Whether the device is done with all of it.
    pub(super) fn settled(&self, gpu: &Gpu) -> Result<bool> {
        let _calling = gpu.ready("settle")?;
        // SAFETY: the semaphore is one of this device and is destroyed by `reuse` alone, which takes
        // all of this.
        let value = unsafe { gpu.counter(self.semaphore, || self.last) }?;
        Ok(value >= self.last)
    }

    /// Takes it apart: the slot goes to the pool or to those that are used up, the commands are
    /// returned.
    ///
    /// # Safety
    ///
    /// It is settled.
    pub(super) unsafe fn reuse<M>(
        mut self,
        gpu: &Gpu,
        slots: &mut SlotPool<M>,
        exhausted: &mut Vec<SlotLease>,
        reclaimed: &mut Reclaimed,
    ) -> CommandSet
    where
        M: FnMut() -> Result<SharedLine>,
    {
        // SAFETY: every submission that signals the semaphore is complete, and the stream, the only one
        // who asked and waited, is gone.
        unsafe { gpu.device.destroy_semaphore(self.semaphore, None) };
        self.commands.settle(self.last);
        reclaimed.0.extend(self.reclaim);
        let line = (**self.lease.line()).as_ref();
        let slot = self.lease.slot();
        let word = line.load(slot);
        if word < self.marked {
            // Against all promises; so it may still land.
            slots.retire(self.lease);
        } else if self.last > LAST_REUSED {
            exhausted.push(self.lease);
        } else {
            if word < self.last {
                // The last submissions had no mark. The device's stores have all landed, so the word is
                // the host's to write: it says what the semaphore has said.
                line.store(slot, self.last);
            }
            slots.release(self.lease);
        }
        self.commands
    }

    /// Gives it up: nobody can tell any more whether the device is done with it. The memory stays.
    pub(super) fn leak<M>(self, slots: &mut SlotPool<M>)
    where
        M: FnMut() -> Result<SharedLine>,
    {
        slots.retire(self.lease);
        // Dropping the list leaks and counts what waits there.
        drop(self.reclaim);
        core::mem::forget((self.commands, self.uses, self.doorbell));
    }
}
