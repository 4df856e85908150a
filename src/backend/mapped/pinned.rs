//! Page-locked buffers of a context.
//!
//! Allocating and freeing page-locked memory takes the driver long and may synchronise, so a
//! buffer goes back to its context when it is dropped, for the next one of about its size.

use super::calls::{Interface, Mapping};
use super::context::Context;
use super::home::Home;
use super::page::PAGE_BYTES;
use super::pool::{Pool, serves};
use crate::backend::lease::DeviceBuffer;
use crate::core::error::{Error, ErrorCode, Result};
use alloc::sync::Arc;
use core::fmt;
use core::ptr::NonNull;

/// Page-locked host memory that the device can access: what asynchronous copies need.
///
/// Its owner has it to itself. To let the device use it, put it into a
/// [`Lease`](crate::backend::lease::Lease).
///
/// Dropping it makes no driver call: the memory goes back to its device.
pub struct PinnedBuffer<A: Interface> {
    block: Block,
    bytes: usize,
    context: Arc<Context<A>>,
}

/// Memory of the driver's, whole pages of it.
#[derive(Clone, Copy)]
pub(super) struct Block {
    mapping: Mapping,
    bytes: usize,
}

// SAFETY: the memory is host memory that every thread may access; the block is its one owner.
unsafe impl Send for Block {}
// SAFETY: as for `Send`: access goes through the references that the owner's borrow allows.
unsafe impl Sync for Block {}

/// The buffers' blocks of one context.
pub(super) type PinnedPool = Pool<Block>;

impl PinnedPool {
    /// Frees what nobody uses. Returns how many blocks were freed, and how many the driver did not
    /// free: they are leaked.
    ///
    /// # Safety
    ///
    /// The context has settled since the last use of a free block was queued.
    pub(super) unsafe fn free_pinned<A: Interface>(&self, home: &Home<A>) -> (usize, usize) {
        self.free_unused(|block| {
            // SAFETY: from `allocate` of this context, taken out of the list, so freed once; its
            // buffer is gone, and the device does not use it, by this function's contract.
            let result = home.within("free a buffer", |api| unsafe { api.free(block.mapping) });
            home.counted(result)
        })
    }
}

/// The place of the smallest block that serves for `bytes`.
fn smallest(free: &[Block], bytes: usize) -> Option<usize> {
    let fits = free.iter().enumerate().filter(|(_, block)| serves(block.bytes, bytes));
    fits.min_by_key(|(_, block)| block.bytes).map(|(at, _)| at)
}

impl<A: Interface> PinnedBuffer<A> {
    pub(super) fn allocate(context: Arc<Context<A>>, bytes: usize) -> Result<Self> {
        let rounded = bytes.max(1).checked_next_multiple_of(PAGE_BYTES).ok_or_else(|| {
            let what = alloc::format!("a pinned buffer of {bytes} bytes");
            Error::new(ErrorCode::Unsupported, [what.as_str(), "too large"])
        })?;
        let block = match context.pinned.take(|free| smallest(free, rounded)) {
            Some(block) => block,
            None => {
                let mapping = context.home.within("pinned", |api| api.allocate(rounded))?;
                // SAFETY: fresh memory of that length, known to nobody else.
                unsafe { mapping.host.as_ptr().write_bytes(0, rounded) };
                Block { mapping, bytes: rounded }
            }
        };
        context.pinned.used();
        Ok(PinnedBuffer { block, bytes, context })
    }

    /// The device's address of the first byte.
    #[must_use]
    pub fn device_address(&self) -> u64 {
        self.block.mapping.device
    }
}

// SAFETY: the memory is valid for any thread, stays until the context is closed, which frees only
// what is not in use, and does not move with the value. It goes back to the pool, to be used again,
// in the destructor only. It was zeroed before its first use. References come from this trait's own
// methods only, which borrow the value.
unsafe impl<A: Interface> DeviceBuffer for PinnedBuffer<A> {
    fn address(&self) -> NonNull<u8> {
        self.block.mapping.host
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<A: Interface> Drop for PinnedBuffer<A> {
    fn drop(&mut self) {
        if self.context.home.is_forked() {
            // The lock may be held by a thread that this process does not have.
            return;
        }
        self.context.pinned.give_back(self.block);
    }
}

impl<A: Interface> fmt::Debug for PinnedBuffer<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedBuffer")
            .field("host", &self.block.mapping.host)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
