//! Page-locked memory of a context, and the completion lines in it.
//!
//! Lines are handed out once and for all: whoever had one may have left a store behind that is
//! still on its way. Whole pages are freed when the context is closed, has settled, and nobody but
//! the pool holds a line of the page.

use super::calls::{Interface, Mapping};
use super::home::Home;
use crate::backend::mapped::lock;
use crate::core::error::Result;
use crate::core::line::{CompletionLine, SharedLine};
use alloc::{sync::Arc, vec::Vec};
use core::fmt;
use std::sync::Mutex;

/// The bytes of one page of lines: what the vendors round an allocation up to.
pub const PAGE_BYTES: usize = 4096;
const LINES: usize = PAGE_BYTES / size_of::<CompletionLine>();

/// Memory of a driver. It has no destructor: only [`Pages::free_unused`] frees it.
pub(super) struct Page {
    mapping: Mapping,
}

// SAFETY: the memory is host memory that every thread may access; nothing here hands out a
// reference to it but to atomics.
unsafe impl Send for Page {}
// SAFETY: as for `Send`.
unsafe impl Sync for Page {}

/// A completion line in page-locked memory that its device can write.
///
/// It keeps its page: the memory is not freed while a line of it is held.
pub struct MappedLine {
    page: Arc<Page>,
    index: usize,
}

impl MappedLine {
    fn address(&self) -> *mut CompletionLine {
        // SAFETY: the index is below `LINES`, so the offset stays within the page.
        unsafe { self.page.mapping.host.as_ptr().cast::<CompletionLine>().add(self.index) }
    }
}

impl AsRef<CompletionLine> for MappedLine {
    fn as_ref(&self) -> &CompletionLine {
        // SAFETY: the line is within the page, which is mapped while `self.page` is held, and
        // aligned, since pages are. It was zeroed before the first line was made, and a line of
        // zeroes is a value. Host and device access it by whole words, the host by atomics only;
        // a device's store by halves writes each half as a whole, as the format of the word allows.
        unsafe { &*self.address() }
    }
}

impl fmt::Debug for MappedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedLine").field("host", &self.address()).finish()
    }
}

/// The pages of one context.
pub(super) struct Pages<A: Interface> {
    home: Arc<Home<A>>,
    held: Mutex<Held>,
    /// Held by who allocates a page, which the driver may take long for.
    growing: Mutex<()>,
}

#[derive(Default)]
struct Held {
    pages: Vec<Arc<Page>>,
    /// Lines of the last page that were handed out.
    used: usize,
}

impl Held {
    /// The next line of the last page.
    fn next_line(&mut self) -> Option<SharedLine> {
        if self.used == LINES {
            return None;
        }
        let index = self.used;
        let page = self.pages.last()?.clone();
        self.used += 1;
        Some(Arc::new(MappedLine { page, index }))
    }
}

impl<A: Interface> Pages<A> {
    pub(super) fn new(home: Arc<Home<A>>) -> Self {
        let held = Mutex::new(Held { pages: Vec::new(), used: LINES });
        Pages { home, held, growing: Mutex::new(()) }
    }

    /// A line that nobody had before, all zero.
    pub(super) fn line(&self) -> Result<SharedLine> {
        if let Some(line) = lock(&self.held).next_line() {
            return Ok(line);
        }
        let _growing = lock(&self.growing);
        if let Some(line) = lock(&self.held).next_line() {
            return Ok(line);
        }
        // Only who needs a page waits for the driver here.
        let mapping = self.home.within("allocate a page", |api| api.allocate(PAGE_BYTES))?;
        // SAFETY: the page is that long, fresh, and known to nobody else.
        unsafe { mapping.host.as_ptr().write_bytes(0, PAGE_BYTES) };
        let mut held = lock(&self.held);
        held.pages.push(Arc::new(Page { mapping }));
        held.used = 0;
        Ok(held.next_line().expect("a page has lines"))
    }

    /// The device's address of `line`, if it lies in one of these pages.
    pub(super) fn device_address(&self, line: &CompletionLine) -> Option<u64> {
        self.locate(line).map(|(mapping, offset)| mapping.device + offset)
    }

    /// The page that `line` lies in, if it is one of these, and how many bytes behind its beginning.
    pub(super) fn locate(&self, line: &CompletionLine) -> Option<(Mapping, u64)> {
        let address = core::ptr::from_ref(line).addr();
        let held = lock(&self.held);
        held.pages.iter().find_map(|page| {
            let offset = address.checked_sub(page.mapping.host.addr().get())?;
            (offset < PAGE_BYTES).then_some((page.mapping, offset as u64))
        })
    }

    /// How many pages there are.
    pub(super) fn count(&self) -> usize {
        lock(&self.held).pages.len()
    }

    /// Frees the pages of which nobody holds a line. Returns how many were freed, and how many the
    /// driver did not free: they are leaked, and forgotten here.
    ///
    /// # Safety
    ///
    /// The context has settled since the last store was queued into a page that nobody holds.
    pub(super) unsafe fn free_unused(&self) -> (usize, usize) {
        let unused: Vec<Arc<Page>> = {
            let mut held = lock(&self.held);
            // The last page may be one of them, so no more of its lines are handed out.
            held.used = LINES;
            let mut unused = Vec::new();
            for at in (0..held.pages.len()).rev() {
                // Nobody else can come to hold it: only `next_line`, under this lock, makes lines. Not the
                // count alone, which is no acquire of what who held a line did with it.
                if Arc::get_mut(&mut held.pages[at]).is_some() {
                    unused.push(held.pages.remove(at));
                }
            }
            unused
        };
        let mut freed = 0;
        for page in &unused {
            // SAFETY: from `allocate` of this context, taken out of the list, so freed once; held by
            // nobody; no store is queued, by this function's contract.
            let result = self.home.within("free a page", |api| unsafe { api.free(page.mapping) });
            freed += usize::from(self.home.counted(result));
        }
        (freed, unused.len() - freed)
    }
}
