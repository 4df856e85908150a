//! Completion lines in mapped pages.
//!
//! A page is 4096 bytes, 64 lines, with a buffer and memory of its own that nothing else shares. A
//! line keeps its page. A line that nobody holds any more is handed out again; a page is freed by
//! `close` alone, and only once none of its lines is held.
//!
//! # Memory ordering
//!
//! The host reads words through [`CompletionLine`], whose words are atomics. The device's write is no
//! atomic operation of Rust's memory model; what makes it visible is that the memory is
//! `HOST_COHERENT` and that the commands behind the store make `TRANSFER_WRITE` available to
//! `HOST_READ`. On hosts of this crate an aligned 4-byte device write is seen whole. Of an 8-byte one
//! nobody promises that, which is why numbers stay within 32 bits: see [`stream`](super::VulkanStream).

use super::gpu::Gpu;
use super::memory::{Allocation, PAGE, Use};
use crate::core::error::Result;
use crate::core::line::{CompletionLine, SharedLine};
use crate::fork::Own;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::vk;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

const LINE: usize = size_of::<CompletionLine>();
const LINES: usize = PAGE as usize / LINE;
const _: () = assert!(LINES == 64, "a page's free lines are the bits of one word");

/// The pages of a device.
pub(super) struct Pages {
    gpu: Arc<Gpu>,
    list: Own<Mutex<Vec<Arc<Page>>>>,
}

struct Page {
    memory: Allocation,
    /// A bit for each line that nobody holds.
    free: AtomicU64,
}

/// A line of a page.
struct MappedLine {
    page: Arc<Page>,
    index: usize,
}

/// Where the device finds a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) buffer: vk::Buffer,
    /// Of the line, in bytes.
    pub(super) offset: u64,
}

impl Pages {
    pub(super) fn new(gpu: Arc<Gpu>) -> Self {
        let list = Own::of(gpu.birth, Mutex::new(Vec::new()));
        Pages { gpu, list }
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Page>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line that nobody holds, all zero. Costs a look at each page, or the making of one.
    ///
    /// # Errors
    ///
    /// Those of an allocation, where a new page was needed.
    pub(super) fn line(&self) -> Result<SharedLine> {
        let mut list = self.list();
        for page in list.iter() {
            if let Some(index) = page.take() {
                return Ok(Arc::new(MappedLine { page: page.clone(), index }));
            }
        }
        let memory = Allocation::new(&self.gpu, PAGE, Use::HostReads)?;
        let aligned = memory.address().addr().get() % LINE == 0;
        assert!(aligned, "minMemoryMapAlignment is at least 64");
        let page = Arc::new(Page { memory, free: AtomicU64::new(!1) });
        list.push(page.clone());
        Ok(Arc::new(MappedLine { page, index: 0 }))
    }

    /// Where the device finds `line`, if it lies in one of these pages.
    pub(super) fn place_of(&self, line: &CompletionLine) -> Option<Place> {
        let address = core::ptr::from_ref(line).addr();
        self.list().iter().find_map(|page| {
            let offset = address.checked_sub(page.memory.address().addr().get())? as u64;
            (offset < PAGE).then_some(Place { buffer: page.memory.buffer, offset })
        })
    }

    /// How many pages there are, and how many of them have a line that somebody holds.
    pub(super) fn count(&self) -> (usize, usize) {
        let list = self.list();
        (list.len(), list.iter().filter(|page| page.is_held()).count())
    }

    /// Frees the pages of which nobody holds a line; says how many are left.
    ///
    /// # Safety
    ///
    /// No submission that is not complete stores into a line that nobody holds.
    pub(super) unsafe fn free_unheld(&self) -> usize {
        let mut list = self.list();
        for page in core::mem::take(&mut *list) {
            match Arc::try_unwrap(page) {
                // SAFETY: nobody holds a line of it, so nobody reads it, and that the device does not
                // write it is promised by the caller.
                Ok(page) => unsafe { page.memory.destroy(&self.gpu) },
                Err(page) => list.push(page),
            }
        }
        list.len()
    }
}

impl Page {
    /// The index of a line that nobody holds, which is held and zero from now on.
    fn take(&self) -> Option<usize> {
        // Only `take` clears bits, and its callers hold the lock of the list.
        let free = self.free.load(Ordering::Acquire);
        if free == 0 {
            return None;
        }
        let index = free.trailing_zeros() as usize;
        self.free.fetch_and(!(1 << index), Ordering::Relaxed);
        for word in &self.line(index).words {
            word.store(0, Ordering::Relaxed);
        }
        Some(index)
    }

    fn is_held(&self) -> bool {
        self.free.load(Ordering::Relaxed) != u64::MAX
    }

    fn line(&self, index: usize) -> &CompletionLine {
        assert!(index < LINES);
        // SAFETY: the page is mapped for as long as it lives, and aligned to a line (checked when it was
        // made); the index is within it. It was zeroed, and any bytes are a valid line, whose words
        // are atomics: other threads and the device may write them at any time.
        unsafe { self.memory.address().cast::<CompletionLine>().add(index).as_ref() }
    }
}

impl AsRef<CompletionLine> for MappedLine {
    fn as_ref(&self) -> &CompletionLine {
        self.page.line(self.index)
    }
}

impl Drop for MappedLine {
    fn drop(&mut self) {
        // Nobody stores into it any more: a stream that may still do so keeps its line, or leaks it.
        self.page.free.fetch_or(1 << self.index, Ordering::Release);
    }
}
