//! A global allocator that counts what the calling thread asks for.
//!
//! The counters are thread-local cells without a destructor, so that counting itself neither
//! allocates nor costs an atomic operation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counted.
pub struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static GROWTHS: Cell<u64> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<i64> = const { Cell::new(0) };
}

/// What a piece of work asked of the allocator.
#[derive(Clone, Copy, Debug)]
pub struct Allocated {
    /// Calls that allocate anew.
    pub calls: u64,
    /// Calls that grow what was allocated: a table that doubles.
    pub growths: u64,
    /// The most bytes in use at a time, beyond what was in use before.
    pub peak_bytes: u64,
}

/// Counts what `work` allocates on this thread.
pub fn count(work: impl FnOnce()) -> Allocated {
    let (calls, growths, live) = (CALLS.get(), GROWTHS.get(), LIVE_BYTES.get());
    PEAK_BYTES.set(live);
    work();
    let peak_bytes = (PEAK_BYTES.get() - live) as u64;
    Allocated { calls: CALLS.get() - calls, growths: GROWTHS.get() - growths, peak_bytes }
}

fn grew(bytes: i64) {
    let live = LIVE_BYTES.get() + bytes;
    LIVE_BYTES.set(live);
    PEAK_BYTES.set(PEAK_BYTES.get().max(live));
}

// SAFETY: every call is passed on to `System` with its arguments unchanged, and what it returns is
// returned; the counting beside it neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        grew(layout.size() as i64);
        // SAFETY: the caller's promises for `alloc` are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        grew(-(layout.size() as i64));
        // SAFETY: as the caller promises, `memory` came from this allocator, hence from `System`,
        // with this layout.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        GROWTHS.set(GROWTHS.get() + 1);
        grew(size as i64 - layout.size() as i64);
        // SAFETY: as for `dealloc`, and the caller promises that `size` is not 0 and fits.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_the_peak_are_counted() {
        let counted = count(|| {
            drop(std::hint::black_box(Box::new([0u8; 100])));
            drop(std::hint::black_box(Box::new([0u8; 50])));
        });
        assert_eq!((counted.calls, counted.peak_bytes), (2, 100));
    }
}
