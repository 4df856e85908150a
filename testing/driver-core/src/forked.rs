//! Calls in a forked child.
//!
//! The child has none of the driver's threads, and its lock may be held by one that is gone. So a
//! call there takes no lock: it counts itself in a page that parent and children share, where the
//! parent's log finds it.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// How many entry points a driver can have.
const PLACES: usize = 1024;

pub(crate) struct Forked {
    entries: &'static [&'static str],
    /// The process that the driver was made in.
    parent: AtomicI32,
    shared: &'static [AtomicU32; PLACES],
}

impl Forked {
    pub(crate) fn new(entries: &'static [&'static str]) -> Self {
        assert!(entries.len() <= PLACES, "a place for each entry point");
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let bytes = size_of::<[AtomicU32; PLACES]>();
        // SAFETY: a new mapping at an address of the kernel's choice, which takes nobody's memory.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        assert!(page != libc::MAP_FAILED, "a page shared with forked children");
        // SAFETY: the mapping is that long, page-aligned, all zero, which is a valid value of these
        // atomics, and never unmapped.
        let shared = unsafe { &*page.cast::<[AtomicU32; PLACES]>() };
        Forked { entries, parent: AtomicI32::new(process()), shared }
    }

    pub(crate) fn is_child(&self) -> bool {
        self.parent.load(Ordering::Relaxed) != process()
    }

    pub(crate) fn log(&self, entry: &str) {
        if let Some(place) = self.entries.iter().position(|known| *known == entry) {
            self.shared[place].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The violations so far, and none of them again.
    pub(crate) fn take(&self) -> Vec<String> {
        let counts = self.entries.iter().zip(self.shared);
        let counts = counts.map(|(entry, count)| (entry, count.swap(0, Ordering::Relaxed)));
        let called = counts.filter(|(_, count)| *count > 0);
        called
            .map(|(entry, count)| format!("{entry}: called {count} x in a forked child"))
            .collect()
    }
}

fn process() -> i32 {
    // SAFETY: it has no precondition and cannot fail.
    unsafe { libc::getpid() }
}
