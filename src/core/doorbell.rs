//! A doorbell: one more line that is rung after a store elsewhere, so that a waiter that can watch
//! a single line hears of stores into any number of them.
//!
//! Whoever stores into a slot then stores a never-repeated number into the doorbell, in that order.
//! Word 0 belongs to the host, which adds to it; devices store into the other words, each stream
//! into the word it was bound to when it was made, with numbers drawn from one host counter that
//! lives outside the line. Two devices may share a word and their stores may land in either order,
//! so a change is "not what the snapshot shows", never "greater".
//!
//! # The interleaving that must not lose a wake
//!
//! ```text
//! waiter:  snapshot doorbell | declare itself idle | look at slots, ready set, timers | idle while doorbell == snapshot
//! device:  ........................ store slot, store doorbell ..........................
//! ```
//!
//! A doorbell store after the snapshot makes the line differ from it, and the idle ends. One before
//! the snapshot was seen by the snapshot's acquire load, hence the slot's store, which precedes it,
//! is seen by the look that follows. There is no third place.

use super::line::{CompletionLine, LINE_WORDS, SharedLine, Slot};
use super::sync::{AtomicU64, Ordering, fence};
use alloc::sync::Arc;
use core::fmt;

/// A line that is rung after stores into other lines. Clones ring the same line.
#[derive(Clone)]
pub struct Doorbell(Arc<Inner>);

struct Inner {
    line: SharedLine,
    /// The number that a device stores next. Not on the line: a device writes whole words there.
    next_number: AtomicU64,
    next_slot: AtomicU64,
    /// How many of the rings of word 0 were made for a wake alone, with no store before them.
    wakes: AtomicU64,
}

/// The words of a doorbell as they were at one time.
pub type DoorbellSnapshot = [u64; LINE_WORDS];

impl Doorbell {
    /// A doorbell in host memory. Two allocations.
    #[must_use]
    pub fn new() -> Self {
        Doorbell::over(CompletionLine::shared())
    }

    /// A doorbell over `line`, for example a page that a backend has mapped for its device. The
    /// line must serve nothing else, and no other doorbell.
    #[must_use]
    pub fn over(line: SharedLine) -> Self {
        Doorbell(Arc::new(Inner {
            line,
            next_number: AtomicU64::new(1),
            next_slot: AtomicU64::new(0),
            wakes: AtomicU64::new(0),
        }))
    }

    /// Rings from the host: adds to word 0, with release ordering. Never a system call.
    #[inline]
    pub fn ring(&self) {
        self.line().words[0].fetch_add(1, Ordering::Release);
    }

    /// Rings from the host to end an idle although no slot was stored into: an executor's wake. It is
    /// counted before the ring.
    #[inline]
    pub(crate) fn ring_for_wake(&self) {
        self.0.wakes.fetch_add(1, Ordering::Relaxed);
        self.ring();
    }

    /// The words, and how many of the host's rings were made after a store, as far as they show it:
    /// those in word 0 less the wakes.
    ///
    /// A wake may be counted and not rung yet, so that the number is too small by one until it rings. It
    /// is never too large: the words are read first, and a ring that they show was counted before
    /// it. So a ring after a store makes the number grow, if not at once then when the wake rings.
    #[inline]
    pub(crate) fn snapshot_with_stores(&self) -> (DoorbellSnapshot, u64) {
        let words = self.snapshot();
        let wakes = self.0.wakes.load(Ordering::Relaxed);
        (words, words[0].wrapping_sub(wakes))
    }

    /// The line, for a device to store into and a monitor to watch.
    #[inline]
    #[must_use]
    pub fn line(&self) -> &CompletionLine {
        (*self.0.line).as_ref()
    }

    /// The line, kept alive by the returned handle.
    #[must_use]
    pub fn shared_line(&self) -> SharedLine {
        self.0.line.clone()
    }

    /// A number that no device has stored here yet. A device stores it after the slot's number.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.0.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// The word that one more stream is bound to: the words of devices in turn. Streams may share
    /// one, since no number repeats.
    #[must_use]
    pub fn bind_stream(&self) -> Slot {
        let turn = self.0.next_slot.fetch_add(1, Ordering::Relaxed);
        let index = 1 + (turn % (LINE_WORDS as u64 - 1)) as usize;
        Slot::ALL[index]
    }

    /// The words now: relaxed loads and one acquire fence after them, which orders like acquire
    /// loads and leaves the loads free to overlap.
    #[inline]
    #[must_use]
    pub fn snapshot(&self) -> DoorbellSnapshot {
        // The line is asked for once: it is reached through a vtable.
        let line = self.line();
        let snapshot = core::array::from_fn(|index| line.words[index].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        snapshot
    }

    /// Whether any word differs from `snapshot`: eight loads of one cache line, and an acquire
    /// fence if one does.
    #[inline]
    #[must_use]
    pub fn changed_since(&self, snapshot: &DoorbellSnapshot) -> bool {
        line_differs(self.line(), snapshot)
    }

    /// Whether both ring the same line.
    #[must_use]
    pub fn same_as(&self, other: &Doorbell) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Whether a word of `line` differs from `snapshot`. What was stored before the ring that changed
/// it is visible then.
#[inline]
pub(crate) fn line_differs(line: &CompletionLine, snapshot: &DoorbellSnapshot) -> bool {
    let words = line.words.iter().zip(snapshot);
    let differs = words
        .fold(0, |differs, (word, seen)| differs | (word.load(Ordering::Relaxed) ^ *seen))
        != 0;
    if differs {
        fence(Ordering::Acquire);
    }
    differs
}

impl Default for Doorbell {
    fn default() -> Self {
        Doorbell::new()
    }
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doorbell").field("words", &self.snapshot()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_number_that_lands_late_is_a_change_too() {
        let bell = Doorbell::new();
        let word = bell.bind_stream();
        let (early, late) = (bell.next_number(), bell.next_number());
        bell.line().store(word, late);
        let snapshot = bell.snapshot();
        assert!(!bell.changed_since(&snapshot));
        bell.line().store(word, early);
        assert!(bell.changed_since(&snapshot));
    }

    #[test]
    fn streams_are_never_bound_to_the_word_of_the_host() {
        let bell = Doorbell::new();
        assert!((0..100).all(|_| bell.bind_stream().index() != 0));
    }

    #[test]
    fn clones_ring_the_same_line() {
        let bell = Doorbell::new();
        let snapshot = bell.snapshot();
        bell.clone().ring();
        assert!(bell.changed_since(&snapshot));
        assert!(bell.same_as(&bell.clone()) && !bell.same_as(&Doorbell::new()));
    }
}
