//! Completion lines, their slots, and descriptors of what to wait for.
//!
//! A completion line is 64 bytes that a device writes and the host reads. Each of its eight words
//! is a slot. Exactly one issuer uses a slot at a time and queues stores of strictly increasing
//! numbers into it, the first being 1; a word of `n` therefore says that everything queued before
//! the store of `n` is done, and so for every smaller number.
//!
//! # Memory ordering
//!
//! A device's store is a release: what the device wrote before it is visible to a host that has
//! seen the number with [`reached`], whose load is an acquire.

use super::sync::{AtomicU64, Ordering};
use alloc::sync::Arc;
use core::fmt;

/// How many words, and so slots, a line has.
pub const LINE_WORDS: usize = 8;

/// Eight 64-bit words on one 64-byte cache line, written by devices and read by hosts.
#[repr(C, align(64))]
#[derive(Default, Debug)]
pub struct CompletionLine {
    /// The words, each a slot. 0 has completed nothing.
    pub words: [AtomicU64; LINE_WORDS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<CompletionLine>() == 64 && align_of::<CompletionLine>() == 64);

impl CompletionLine {
    /// A line in host memory that lives as long as somebody uses it. One allocation.
    #[must_use]
    pub fn shared() -> SharedLine {
        Arc::new(CompletionLine::default())
    }

    /// Stores `number` into `slot`, as a device would: a release store.
    pub fn store(&self, slot: Slot, number: u64) {
        self.words[slot.index()].store(number, Ordering::Release);
    }

    /// The word of `slot`: an acquire load.
    #[must_use]
    pub fn load(&self, slot: Slot) -> u64 {
        self.words[slot.index()].load(Ordering::Acquire)
    }
}

impl AsRef<CompletionLine> for CompletionLine {
    fn as_ref(&self) -> &CompletionLine {
        self
    }
}

/// A line that lives as long as somebody uses it: host memory or a backend's mapped page.
pub type SharedLine = Arc<dyn AsRef<CompletionLine> + Send + Sync>;

/// One word of a line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(u8);

impl Slot {
    /// The slots of a line, in order.
    pub const ALL: [Slot; LINE_WORDS] =
        [Slot(0), Slot(1), Slot(2), Slot(3), Slot(4), Slot(5), Slot(6), Slot(7)];

    /// The slot of word `index`; `None` from [`LINE_WORDS`] on.
    #[must_use]
    pub const fn new(index: usize) -> Option<Slot> {
        if index < LINE_WORDS { Some(Slot::ALL[index]) } else { None }
    }

    /// The index of the word, `0..LINE_WORDS`.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Whether the word of `slot` is `target` or more: one acquire load. A word may skip numbers.
#[inline]
#[must_use]
pub fn reached(line: &CompletionLine, slot: Slot, target: u64) -> bool {
    line.words[slot.index()].load(Ordering::Acquire) >= target
}

/// What to wait for on a borrowed line: complete once the word of `slot` is `target` or more.
#[derive(Clone, Copy)]
pub struct MemoryDescriptor<'l> {
    line: &'l CompletionLine,
    slot: Slot,
    target: u64,
}

impl<'l> MemoryDescriptor<'l> {
    /// A descriptor of `target` on `slot` of `line`. A target of 0 is complete from the start.
    #[must_use]
    pub const fn new(line: &'l CompletionLine, slot: Slot, target: u64) -> Self {
        MemoryDescriptor { line, slot, target }
    }

    /// The line.
    #[must_use]
    pub const fn line(&self) -> &'l CompletionLine {
        self.line
    }

    /// The slot of the line.
    #[must_use]
    pub const fn slot(&self) -> Slot {
        self.slot
    }

    /// The number waited for.
    #[must_use]
    pub const fn target(&self) -> u64 {
        self.target
    }

    /// Whether the number was reached: one acquire load.
    #[inline]
    #[must_use]
    pub fn is_complete(&self) -> bool {
        reached(self.line, self.slot, self.target)
    }
}

impl fmt::Debug for MemoryDescriptor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDescriptor")
            .field("line", &core::ptr::from_ref(self.line))
            .field("slot", &self.slot)
            .field("target", &self.target)
            .finish()
    }
}

/// What to wait for on a line that the descriptor keeps alive.
#[derive(Clone)]
pub struct OwnedDescriptor {
    /// The line.
    pub line: SharedLine,
    /// The slot of the line.
    pub slot: Slot,
    /// The number waited for.
    pub target: u64,
}

impl OwnedDescriptor {
    /// The same descriptor over the borrowed line.
    #[must_use]
    pub fn as_borrowed(&self) -> MemoryDescriptor<'_> {
        MemoryDescriptor::new((*self.line).as_ref(), self.slot, self.target)
    }

    /// Whether the number was reached: one acquire load.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.as_borrowed().is_complete()
    }
}

impl fmt::Debug for OwnedDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_borrowed().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_may_skip_numbers_and_zero_has_completed_nothing() {
        let line = CompletionLine::default();
        let slot = Slot::new(3).unwrap();
        assert!(!reached(&line, slot, 1));
        line.store(slot, 7);
        assert!(reached(&line, slot, 5) && reached(&line, slot, 7));
        assert!(!reached(&line, slot, 8));
        assert!(!reached(&line, Slot::ALL[2], 1), "a slot says nothing of its neighbours");
    }

    #[test]
    fn only_the_words_of_a_line_are_slots() {
        assert!(Slot::new(LINE_WORDS).is_none());
        assert!(Slot::ALL.iter().enumerate().all(|(at, slot)| slot.index() == at));
    }

    #[test]
    fn an_owned_descriptor_keeps_its_line() {
        let line = CompletionLine::shared();
        let descriptor = OwnedDescriptor { line: line.clone(), slot: Slot::ALL[0], target: 1 };
        (*line).as_ref().store(Slot::ALL[0], 1);
        drop(line);
        assert!(descriptor.is_complete());
    }
}
