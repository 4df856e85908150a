//! The lines that somebody waits on, and for each of their slots the queue of its targets.
//!
//! Laid out for the scan, which is what a turn does most: the least target of each slot stands in
//! an array beside those of its line's other slots, so that a line costs two cache lines and no
//! branch until a number was reached. A slot with one waiter, the usual case, holds it directly;
//! more of them stand in a heap, whose memory is kept for the next slot that needs one.
//!
//! A borrowed line outlives the reactor, so once seen it keeps its number. An owned line is given
//! up with its last waiter; the caller drops it outside of any borrow, for a line may be anything.

use super::address_map::AddressMap;
use super::heap::{IndexHeap, NOWHERE};
use super::waiters::Waiters;
use crate::core::line::{
    CompletionLine, LINE_WORDS, MemoryDescriptor, OwnedDescriptor, SharedLine, Slot,
};
use crate::core::sync::{Ordering, fence};
use alloc::vec::Vec;
use core::num::NonZeroU32;

/// The least target of a slot that nobody waits on.
const NOBODY: u64 = u64::MAX;
/// Marks a queue code as the number of a heap rather than a waiter.
const HEAP: u32 = 1 << 31;

/// A slot of a line in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotRef(NonZeroU32);

impl SlotRef {
    fn new(line: u32, slot: Slot) -> Self {
        let code = line * LINE_WORDS as u32 + slot.index() as u32 + 1;
        SlotRef(NonZeroU32::new(code).expect("one more than a number"))
    }

    /// A number of its own for every slot.
    pub(super) fn code(self) -> u32 {
        self.0.get()
    }

    fn line(self) -> usize {
        (self.0.get() - 1) as usize / LINE_WORDS
    }

    fn slot(self) -> usize {
        (self.0.get() - 1) as usize % LINE_WORDS
    }

    /// A small number that no other slot of the table has at the time.
    #[cfg_attr(not(feature = "std"), allow(dead_code, reason = "a host's"))]
    pub(crate) fn index(self) -> usize {
        (self.0.get() - 1) as usize
    }
}

/// What a future waits for.
#[derive(Clone, Debug)]
pub(crate) enum Watched<'l> {
    Borrowed(MemoryDescriptor<'l>),
    Owned(OwnedDescriptor),
}

impl Watched<'_> {
    #[inline]
    pub(crate) fn as_descriptor(&self) -> MemoryDescriptor<'_> {
        match self {
            Watched::Borrowed(descriptor) => *descriptor,
            Watched::Owned(descriptor) => descriptor.as_borrowed(),
        }
    }
}

#[derive(Clone)]
pub(crate) enum LineRef<'l> {
    Borrowed(&'l CompletionLine),
    Owned(SharedLine),
    /// A number that stands for no line at present.
    Vacant,
}

impl LineRef<'_> {
    #[inline]
    pub(crate) fn line(&self) -> Option<&CompletionLine> {
        match self {
            LineRef::Borrowed(line) => Some(line),
            LineRef::Owned(line) => Some((**line).as_ref()),
            LineRef::Vacant => None,
        }
    }
}

#[derive(Default)]
pub(crate) struct LineTable<'l> {
    // By the number of the line:
    lines: Vec<LineRef<'l>>,
    least: Vec<[u64; LINE_WORDS]>,
    queues: Vec<[u32; LINE_WORDS]>,
    /// Which of its slots somebody waits on, as bits.
    waited: Vec<u8>,
    /// Where among `active`, if any of its bits is set.
    active_at: Vec<u32>,
    /// The numbers of the lines that somebody waits on, dense.
    active: Vec<u32>,
    vacant: Vec<u32>,
    by_address: AddressMap,
    heaps: Vec<IndexHeap<u64>>,
    spare_heaps: Vec<u32>,
    slots: usize,
    cursor: usize,
}

impl<'l> LineTable<'l> {
    /// How many slots have a waiter.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// How many lines have a waiter.
    #[inline]
    pub(crate) fn active(&self) -> usize {
        self.active.len()
    }

    /// The slot of `watched`, whose line is entered if it is new.
    pub(crate) fn enter(&mut self, watched: &Watched<'l>) -> SlotRef {
        self.enter_line(watched.as_descriptor(), || match watched {
            Watched::Borrowed(descriptor) => LineRef::Borrowed(descriptor.line()),
            Watched::Owned(descriptor) => LineRef::Owned(descriptor.line.clone()),
        })
    }

    /// The same for an owned line.
    #[cfg_attr(not(feature = "std"), allow(dead_code, reason = "a host's"))]
    pub(crate) fn enter_owned(&mut self, descriptor: &OwnedDescriptor) -> SlotRef {
        self.enter_line(descriptor.as_borrowed(), || LineRef::Owned(descriptor.line.clone()))
    }

    fn enter_line(
        &mut self,
        descriptor: MemoryDescriptor<'_>,
        line: impl FnOnce() -> LineRef<'l>,
    ) -> SlotRef {
        let address = core::ptr::from_ref(descriptor.line()).addr();
        let number = match self.by_address.get(address) {
            Some(number) => number,
            None => self.add_line(address, line()),
        };
        SlotRef::new(number, descriptor.slot())
    }

    fn add_line(&mut self, address: usize, line: LineRef<'l>) -> u32 {
        let number = match self.vacant.pop() {
            Some(number) => {
                self.lines[number as usize] = line;
                number
            }
            None => {
                self.lines.push(line);
                self.least.push([NOBODY; LINE_WORDS]);
                self.queues.push([NOWHERE; LINE_WORDS]);
                self.waited.push(0);
                self.active_at.push(NOWHERE);
                self.lines.len() as u32 - 1
            }
        };
        self.by_address.insert(address, number);
        number
    }

    /// Queues the waiter at `place` on its slot.
    pub(crate) fn queue<T>(
        &mut self,
        slot: SlotRef,
        place: u32,
        target: u64,
        waiters: &mut Waiters<T>,
    ) {
        let (line, word) = (slot.line(), slot.slot());
        let code = self.queues[line][word];
        if code == NOWHERE {
            self.queues[line][word] = place;
            self.least[line][word] = target;
            self.slots += 1;
            let waited = self.waited[line];
            self.waited[line] = waited | 1 << word;
            if waited == 0 {
                self.active_at[line] = self.active.len() as u32;
                self.active.push(line as u32);
            }
            return;
        }
        let heap = if code & HEAP != 0 { code & !HEAP } else { self.start_heap(code, waiters) };
        self.queues[line][word] = heap | HEAP;
        let moved = |id, at| waiters.at(id).queue_at = at;
        self.heaps[heap as usize].push(target, place, moved);
        self.least[line][word] = self.least[line][word].min(target);
    }

    fn start_heap<T>(&mut self, first: u32, waiters: &mut Waiters<T>) -> u32 {
        let heap = self.spare_heaps.pop().unwrap_or_else(|| {
            self.heaps.push(IndexHeap::default());
            self.heaps.len() as u32 - 1
        });
        let target = waiters.at(first).target;
        self.heaps[heap as usize].push(target, first, |id, at| waiters.at(id).queue_at = at);
        heap
    }

    /// Takes the waiter at `place` off its slot's queue. Gives back a line that is to be dropped
    /// outside of any borrow.
    #[must_use]
    pub(crate) fn dequeue<T>(
        &mut self,
        slot: SlotRef,
        place: u32,
        waiters: &mut Waiters<T>,
    ) -> LineRef<'l> {
        let (line, word) = (slot.line(), slot.slot());
        let code = self.queues[line][word];
        if code & HEAP == 0 {
            return self.empty_slot(line, word);
        }
        let heap = &mut self.heaps[(code & !HEAP) as usize];
        let at = waiters.at(place).queue_at;
        heap.remove(at, |id, at| waiters.at(id).queue_at = at);
        match heap.peek() {
            Some((least, _)) => {
                self.least[line][word] = least;
                LineRef::Vacant
            }
            None => {
                self.spare_heaps.push(code & !HEAP);
                self.empty_slot(line, word)
            }
        }
    }

    fn empty_slot(&mut self, line: usize, word: usize) -> LineRef<'l> {
        self.queues[line][word] = NOWHERE;
        self.least[line][word] = NOBODY;
        self.slots -= 1;
        self.waited[line] &= !(1 << word);
        if self.waited[line] != 0 {
            return LineRef::Vacant;
        }
        let at = self.active_at[line];
        self.active.swap_remove(at as usize);
        if let Some(&moved) = self.active.get(at as usize) {
            self.active_at[moved as usize] = at;
        }
        match &self.lines[line] {
            LineRef::Owned(shared) => {
                let address = core::ptr::from_ref::<CompletionLine>((**shared).as_ref()).addr();
                self.by_address.remove(address);
                self.vacant.push(line as u32);
                core::mem::replace(&mut self.lines[line], LineRef::Vacant)
            }
            LineRef::Borrowed(_) | LineRef::Vacant => LineRef::Vacant,
        }
    }

    /// Checks every word that has a waiter and calls `complete(place)` for each waiter whose number
    /// was reached, after it was taken off its queue. Lines that are to be dropped outside of any
    /// borrow are pushed to `gone`.
    #[cfg_attr(not(feature = "std"), allow(dead_code, reason = "a host's"))]
    pub(crate) fn scan<T>(
        &mut self,
        waiters: &mut Waiters<T>,
        gone: &mut Vec<LineRef<'l>>,
        complete: impl FnMut(&mut Waiters<T>, u32),
    ) {
        self.scan_part(self.active.len(), usize::MAX, waiters, gone, complete);
    }

    /// The same for the last `count` of the first `below` active lines. Returns how many lines are
    /// left below those: the `below` of the next part.
    ///
    /// Lines may come and go between two parts. One that empties is replaced by the last one, which
    /// the scan has checked or which stands below as well; one that is new stands above, and its
    /// waiter has checked the word itself after the scan began.
    pub(crate) fn scan_part<T>(
        &mut self,
        below: usize,
        count: usize,
        waiters: &mut Waiters<T>,
        gone: &mut Vec<LineRef<'l>>,
        mut complete: impl FnMut(&mut Waiters<T>, u32),
    ) -> usize {
        let mut below = below.min(self.active.len());
        let first = below.saturating_sub(count);
        while let Some(Reached { at, seen, hits }) = self.last_reached(first, below) {
            below = at;
            let line = self.active[at] as usize;
            self.complete_line(line, seen, hits, waiters, gone, &mut complete);
        }
        first
    }

    /// The last of the active lines from `first` to `below` of which a word was reached. On its own, so that the lines that nothing happened on, which are most,
    /// cost little more than two loads and a branch never taken a word.
    ///
    /// The loads are relaxed, so that the processor may overlap them; a hit is followed by an acquire
    /// fence, after which what was stored before the number is visible.
    #[inline(never)]
    fn last_reached(&self, first: usize, below: usize) -> Option<Reached> {
        let (lines, least) = (&self.lines[..], &self.least[..]);
        for (at, &number) in self.active[first..below].iter().enumerate().rev() {
            let Some(line) = lines[number as usize].line() else { continue };
            let (words, least) = (&line.words, &least[number as usize]);
            if (0..LINE_WORDS).any(|word| words[word].load(Ordering::Relaxed) >= least[word]) {
                let seen = core::array::from_fn(|word| words[word].load(Ordering::Relaxed));
                // The mark of a slot without a waiter is a number too, which a word may show.
                let hits = hits(&seen, least) & u32::from(self.waited[number as usize]);
                if hits != 0 {
                    fence(Ordering::Acquire);
                    return Some(Reached { at: first + at, seen, hits });
                }
            }
        }
        None
    }

    /// Completes what waits on the slots `hits` of `line`, whose words are `seen`.
    fn complete_line<T>(
        &mut self,
        line: usize,
        seen: [u64; LINE_WORDS],
        mut hits: u32,
        waiters: &mut Waiters<T>,
        gone: &mut Vec<LineRef<'l>>,
        complete: &mut impl FnMut(&mut Waiters<T>, u32),
    ) {
        while hits != 0 {
            let word = hits.trailing_zeros() as usize;
            hits &= hits - 1;
            self.complete_slot(line, word, seen[word], waiters, gone, complete);
        }
    }

    fn complete_slot<T>(
        &mut self,
        line: usize,
        word: usize,
        seen: u64,
        waiters: &mut Waiters<T>,
        gone: &mut Vec<LineRef<'l>>,
        complete: &mut impl FnMut(&mut Waiters<T>, u32),
    ) {
        while self.queues[line][word] != NOWHERE && self.least[line][word] <= seen {
            let code = self.queues[line][word];
            let place = match code & HEAP {
                0 => code,
                _ => self.heaps[(code & !HEAP) as usize].peek().expect("a queue has waiters").1,
            };
            let slot = waiters.at(place).slot.expect("a queued waiter watches a slot");
            let left = self.dequeue(slot, place, waiters);
            if !matches!(left, LineRef::Vacant) {
                gone.push(left);
            }
            complete(waiters, place);
        }
    }

    /// The waiter with the least target of those that are queued on `slot`.
    #[cfg_attr(not(feature = "std"), allow(dead_code, reason = "a host's"))]
    pub(crate) fn first(&self, slot: SlotRef) -> Option<u32> {
        self.first_waiter(slot, |_| true)
    }

    /// Whether any word that has a waiter was reached.
    #[cfg_attr(not(feature = "std"), allow(dead_code, reason = "a host's"))]
    #[inline]
    pub(crate) fn any_reached(&self) -> bool {
        self.last_reached(0, self.active.len()).is_some()
    }

    /// The same for the `count` active lines from the position `from` on, around the end. Returns the
    /// position after them.
    pub(crate) fn any_reached_of(&self, from: usize, count: usize) -> (bool, usize) {
        let len = self.active.len();
        let from = if from < len { from } else { 0 };
        let end = (from + count).min(len);
        (self.last_reached(from, end).is_some(), end)
    }

    /// The place of the waiter on `slot` with the least number for which `wanted` holds, as far as
    /// the order of its heap tells: the head first.
    pub(crate) fn first_waiter(&self, slot: SlotRef, wanted: impl Fn(u32) -> bool) -> Option<u32> {
        let code = self.queues[slot.line()][slot.slot()];
        match code {
            NOWHERE => return None,
            code if code & HEAP == 0 => return wanted(code).then_some(code),
            _ => {}
        }
        self.heaps[(code & !HEAP) as usize].ids().find(|&place| wanted(place))
    }

    /// A line that has a waiter, and the targets of its slots. In turn, so that without a doorbell no
    /// line is always the one that is not watched.
    pub(crate) fn next_to_watch(&mut self) -> Option<(LineRef<'l>, Targets)> {
        if self.cursor >= self.active.len() {
            self.cursor = 0;
        }
        let line = *self.active.get(self.cursor)? as usize;
        self.cursor += 1;
        let targets = Targets { least: self.least[line], waited: self.waited[line] };
        Some((self.lines[line].clone(), targets))
    }
}

/// A line of which a word was reached.
struct Reached {
    /// Its position among the active lines.
    at: usize,
    seen: [u64; LINE_WORDS],
    /// Which slots, as bits.
    hits: u32,
}

/// Which words reached their numbers. As bits: which word it is cannot be predicted, so no branch may
/// depend on it.
#[inline]
fn hits(seen: &[u64; LINE_WORDS], least: &[u64; LINE_WORDS]) -> u32 {
    (0..LINE_WORDS).fold(0, |hits, word| hits | u32::from(seen[word] >= least[word]) << word)
}

/// What is waited for on one line.
#[derive(Clone, Copy)]
pub(crate) struct Targets {
    least: [u64; LINE_WORDS],
    /// Which of the slots have a waiter, as bits: every number may be a target, the largest too.
    waited: u8,
}

impl Targets {
    /// Whether a word of `line` reached its target.
    #[inline]
    pub(crate) fn any_reached(&self, line: &CompletionLine) -> bool {
        let seen = core::array::from_fn(|word| line.words[word].load(Ordering::Acquire));
        hits(&seen, &self.least) & u32::from(self.waited) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_the_largest_number_in_a_slot_without_a_waiter_is_no_completion() {
        let line = CompletionLine::default();
        let (mut lines, mut waiters) = (LineTable::default(), Waiters::<()>::default());
        let descriptor = MemoryDescriptor::new(&line, Slot::ALL[1], 5);
        let slot = lines.enter(&Watched::Borrowed(descriptor));
        let registration = waiters.insert(Some(slot), 5, ());
        lines.queue(slot, registration.place, 5, &mut waiters);
        line.store(Slot::ALL[0], u64::MAX);
        assert!(!lines.any_reached());
        line.store(Slot::ALL[1], 5);
        assert!(lines.any_reached());
    }
}
