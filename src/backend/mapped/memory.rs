//! Memory of the device's own: what fills and copies work on.
//!
//! A convenience for programs that have none from elsewhere: the device's memory is usually the business of
//! the program's own library, whose addresses [`Stream::read_back`](super::Stream::read_back) takes.
//!
//! # When a block is used again
//!
//! Freeing device memory may synchronise, so a block goes back to its context when it is dropped. It is handed
//! out again only once the marks behind all its uses were reached, which its descriptors tell without a call.

use super::calls::Interface;
use super::context::Context;
use super::home::Home;
use super::lock;
use super::pool::{Pool, serves};
use super::stream::Stream;
use crate::backend::lease::{DeviceBuffer, Lease, Plain, Readback};
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::line::OwnedDescriptor;
use crate::core::port::DeviceStream;
use alloc::{sync::Arc, vec::Vec};
use core::cell::Cell;
use core::fmt;
use core::ops::Range;
use core::ptr;
use std::sync::Mutex;

/// What a block is rounded up to.
const GRAIN: usize = 4096;

/// Device memory of one context. The program cannot reach it but by copies.
///
/// Dropping it makes no driver call: the memory goes back to its device, and is used again once the work that
/// was queued on it is done.
pub struct DeviceMemory<A: Interface> {
    block: Block,
    bytes: usize,
    context: Arc<Context<A>>,
    uses: Mutex<Uses>,
}

#[derive(Clone, Copy)]
pub(super) struct Block {
    address: u64,
    bytes: usize,
}

/// The marks behind the last uses, one for each slot at most: that of a larger number speaks for it.
#[derive(Default)]
pub(super) struct Uses(Vec<OwnedDescriptor>);

impl Uses {
    fn add(&mut self, used: OwnedDescriptor) {
        let place = |of: &OwnedDescriptor| (ptr::from_ref((*of.line).as_ref()).addr(), of.slot);
        if let Some(known) = self.0.iter_mut().find(|known| place(known) == place(&used)) {
            known.target = known.target.max(used.target);
            return;
        }
        self.0.retain(|known| !known.is_complete());
        self.0.push(used);
    }

    fn are_over(&self) -> bool {
        self.0.iter().all(OwnedDescriptor::is_complete)
    }
}

/// The blocks of one context, each with its last uses.
pub(super) type MemoryPool = Pool<(Block, Uses)>;

impl MemoryPool {
    /// Frees what nobody uses. Returns how many blocks were freed, and how many the driver did not
    /// free.
    ///
    /// # Safety
    ///
    /// The context has settled since the last use of a free block was queued.
    pub(super) unsafe fn free_memory<A: Interface>(&self, home: &Home<A>) -> (usize, usize) {
        self.free_unused(|(block, _)| {
            let free = |api: &A| {
                // SAFETY: from `allocate_device` of this context, taken out of the list, so freed once;
                // its owner is gone, and the device does not use it, by this function's contract.
                unsafe { api.free_device(block.address) }
            };
            home.counted(home.within("free device memory", free))
        })
    }
}

/// The place of a block that serves for `bytes` and whose uses are over.
fn unused(free: &[(Block, Uses)], bytes: usize) -> Option<usize> {
    free.iter().position(|(block, uses)| serves(block.bytes, bytes) && uses.are_over())
}

impl<A: Interface> DeviceMemory<A> {
    pub(super) fn allocate(context: Arc<Context<A>>, bytes: usize) -> Result<Self> {
        let rounded = bytes.max(1).checked_next_multiple_of(GRAIN).ok_or_else(|| {
            let what = alloc::format!("device memory of {bytes} bytes");
            Error::new(ErrorCode::Unsupported, [what.as_str(), "too large"])
        })?;
        let block = match context.memory.take(|free| unused(free, rounded)) {
            Some((block, _)) => block,
            None => {
                let allocate = |api: &A| api.allocate_device(rounded);
                let address = context.home.within("device memory", allocate)?;
                Block { address, bytes: rounded }
            }
        };
        context.memory.used();
        Ok(DeviceMemory { block, bytes, context, uses: Mutex::default() })
    }

    /// The device's address of the first byte. Work of the program's own on it must be behind a mark of a
    /// stream of this crate's, through [`used_by`](Self::used_by), before the memory is dropped.
    #[must_use]
    pub fn device_address(&self) -> u64 {
        self.block.address
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

    /// Says that work in front of the mark of `number` on `stream` uses the memory. In a forked child, whose
    /// memory it is not, it does nothing.
    pub fn used_by(&self, stream: &Stream<A>, number: u64) {
        if self.context.home.is_forked() {
            // The lock may be held by a thread that this process does not have.
            return;
        }
        let (line, slot) = (stream.line().clone(), stream.slot());
        lock(&self.uses).add(OwnedDescriptor { line, slot, target: number });
    }

    fn check_range(&self, range: &Range<usize>) {
        let is_within = range.start <= range.end && range.end <= self.bytes;
        assert!(is_within, "bytes {range:?} are not within memory of {} bytes", self.bytes);
    }
}

impl<A: Interface> Stream<A> {
    fn check_own(&self, memory: &DeviceMemory<A>, call: &str) -> Result<()> {
        if Arc::ptr_eq(&self.core.context, &memory.context) {
            return Ok(());
        }
        Err(Error::new(ErrorCode::ForeignContext, [call, "memory"]))
    }

    /// Queues `times` fills of `memory` with `value`, one behind the other, and a mark behind them, whose
    /// number it returns.
    ///
    /// # Errors
    ///
    /// The driver's status; [`ForeignContext`](ErrorCode::ForeignContext) for another device's memory;
    /// [`Captured`](ErrorCode::Captured), [`Closed`](ErrorCode::Closed) or [`Forked`](ErrorCode::Forked).
    pub fn fill(&self, memory: &DeviceMemory<A>, value: u8, times: u32) -> Result<u64> {
        self.check_own(memory, "fill")?;
        let core = &self.core;
        let (to, bytes) = (memory.block.address, memory.bytes);
        let is_asked = Cell::new(false);
        let queued = core.enqueue("fill", |api| {
            is_asked.set(true);
            // SAFETY: the stream is live, as long as its core is; the memory is that long, and stays until
            // the mark behind this is reached, or the context has settled.
            (0..times).try_for_each(|_| unsafe { api.fill(core.handle, to, value, bytes) })
        });
        if let (Err(refused), false) = (&queued, is_asked.get()) {
            return Err(refused.clone());
        }
        // Also where only part of it was queued.
        let marked = self.mark_use_of(memory);
        queued.and(marked)
    }

    /// A mark behind the use of `memory`. Without one nobody knows the end before a close.
    fn mark_use_of(&self, memory: &DeviceMemory<A>) -> Result<u64> {
        let marked = self.mark();
        memory.used_by(self, *marked.as_ref().unwrap_or(&u64::MAX));
        marked
    }

    /// Queues a copy of the bytes `range` of `memory` to the beginning of `into`, to be read as `T`s once it
    /// is done.
    ///
    /// # Errors
    ///
    /// As [`fill`](Self::fill). The buffer comes back to nobody then: it waits behind what may be queued, or is
    /// leaked and counted.
    ///
    /// # Panics
    ///
    /// Where `range` is not within the memory, is no whole number of `T`s, or does not fit into `into`.
    pub fn copy_back<T: Plain, B: DeviceBuffer>(
        &self,
        memory: &DeviceMemory<A>,
        range: Range<usize>,
        into: B,
    ) -> Result<Readback<T, B>> {
        self.check_own(memory, "copy_back")?;
        memory.check_range(&range);
        assert!(
            range.len() % size_of::<T>() == 0,
            "bytes {range:?} are no whole number of elements"
        );
        let from = memory.block.address + range.start as u64;
        // SAFETY: the memory is that long, and stays until the mark behind this is reached. Other streams
        // may write it meanwhile, which makes other numbers of it and nothing else: they are plain.
        let copied = unsafe { self.read_back(from, range.len() / size_of::<T>(), into) }?;
        memory.used_by(self, copied.ticket().number());
        Ok(copied)
    }

    /// Queues a copy of the whole of `from` to `memory`, from byte `at` on. The buffer is leased until the copy
    /// is done.
    ///
    /// # Errors
    ///
    /// As [`copy_back`](Self::copy_back).
    ///
    /// # Panics
    ///
    /// Where `from` does not fit into the memory at `at`.
    pub fn upload<B: DeviceBuffer>(
        &self,
        from: B,
        memory: &DeviceMemory<A>,
        at: usize,
    ) -> Result<Lease<B>> {
        self.check_own(memory, "upload")?;
        memory.check_range(&(at..at.saturating_add(from.bytes())));
        let core = &self.core;
        let to = memory.block.address + at as u64;
        let is_asked = Cell::new(false);
        let leased = self.lease(from, |from| {
            core.enqueue("upload", |api| {
                is_asked.set(true);
                // SAFETY: the stream is live, as long as its core is. `to` is that long, as checked above, and
                // stays until the mark behind this is reached; `from` is leased to this copy until then.
                unsafe { api.copy_to_device(core.handle, to, from.address(), from.bytes()) }
            })
        });
        match leased {
            Ok((lease, ())) => {
                memory.used_by(self, lease.ticket().number());
                Ok(lease)
            }
            Err(error) => {
                if is_asked.get() {
                    // The copy may be on its way. The error that is reported is the first one.
                    let _ = self.mark_use_of(memory);
                }
                Err(error)
            }
        }
    }
}

impl<A: Interface> Drop for DeviceMemory<A> {
    fn drop(&mut self) {
        if self.context.home.is_forked() {
            // The lock may be held by a thread that this process does not have.
            return;
        }
        let uses = core::mem::take(&mut *lock(&self.uses));
        self.context.memory.give_back((self.block, uses));
    }
}

impl<A: Interface> fmt::Debug for DeviceMemory<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceMemory")
            .field("address", &format_args!("{:#x}", self.block.address))
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::line::{CompletionLine, Slot};

    #[test]
    fn uses_in_flight_are_one_for_each_slot_and_over_with_the_last_number() {
        let (line, mut uses) = (CompletionLine::shared(), Uses::default());
        for target in 1..=1000 {
            for slot in [Slot::ALL[0], Slot::ALL[1]] {
                uses.add(OwnedDescriptor { line: line.clone(), slot, target });
            }
        }
        uses.add(OwnedDescriptor { line: line.clone(), slot: Slot::ALL[0], target: 3 });
        assert_eq!(uses.0.len(), 2);
        (*line).as_ref().store(Slot::ALL[0], 999);
        (*line).as_ref().store(Slot::ALL[1], 1000);
        assert!(!uses.are_over());
        (*line).as_ref().store(Slot::ALL[0], 1000);
        assert!(uses.are_over());
    }
}
