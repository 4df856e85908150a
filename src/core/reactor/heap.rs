//! A binary min-heap of (key, id) that reports where each id stands, so that any of them can be
//! removed in O(log n). It serves twice: the timers, and the targets that wait on one slot.

use alloc::vec::Vec;

/// The position of what is in no heap.
pub(crate) const NOWHERE: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct IndexHeap<K> {
    entries: Vec<(K, u32)>,
}

impl<K> Default for IndexHeap<K> {
    fn default() -> Self {
        IndexHeap { entries: Vec::new() }
    }
}

impl<K: Ord + Copy> IndexHeap<K> {
    /// The least entry.
    #[inline]
    pub(crate) fn peek(&self) -> Option<(K, u32)> {
        self.entries.first().copied()
    }

    /// Every id, the least first, the others in no order.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.entries.iter().map(|&(_, id)| id)
    }

    /// Adds `id`. `moved(id, position)` is called for every id whose position changed.
    pub(crate) fn push(&mut self, key: K, id: u32, mut moved: impl FnMut(u32, u32)) {
        self.entries.push((key, id));
        self.rise(self.entries.len() - 1, &mut moved);
    }

    /// Removes the entry at `position`.
    pub(crate) fn remove(&mut self, position: u32, mut moved: impl FnMut(u32, u32)) -> (K, u32) {
        let at = position as usize;
        let removed = self.entries.swap_remove(at);
        moved(removed.1, NOWHERE);
        if at < self.entries.len() {
            let at = self.rise(at, &mut moved);
            self.sink(at, &mut moved);
        }
        removed
    }

    /// Moves the entry at `at` towards the root while it is less than its parent; says where it
    /// came to rest, and reports it.
    fn rise(&mut self, mut at: usize, moved: &mut impl FnMut(u32, u32)) -> usize {
        let entry = self.entries[at];
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.entries[parent].0 <= entry.0 {
                break;
            }
            self.place(at, self.entries[parent], moved);
            at = parent;
        }
        self.place(at, entry, moved);
        at
    }

    fn sink(&mut self, mut at: usize, moved: &mut impl FnMut(u32, u32)) {
        let entry = self.entries[at];
        loop {
            let mut child = 2 * at + 1;
            if child >= self.entries.len() {
                break;
            }
            if child + 1 < self.entries.len() && self.entries[child + 1].0 < self.entries[child].0 {
                child += 1;
            }
            if entry.0 <= self.entries[child].0 {
                break;
            }
            self.place(at, self.entries[child], moved);
            at = child;
        }
        self.place(at, entry, moved);
    }

    fn place(&mut self, at: usize, entry: (K, u32), moved: &mut impl FnMut(u32, u32)) {
        self.entries[at] = entry;
        moved(entry.1, at as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_least_comes_first_and_every_id_can_be_removed(
            steps in proptest::collection::vec((any::<bool>(), 0u64..50, any::<proptest::sample::Index>()), 1..200),
        ) {
            let mut heap = IndexHeap::default();
            let mut positions = std::collections::BTreeMap::new();
            let mut model = BTreeSet::new();
            for (id, (add, key, pick)) in steps.into_iter().enumerate() {
                let id = id as u32;
                if add || model.is_empty() {
                    heap.push((key, id), id, |id, at| _ = positions.insert(id, at));
                    model.insert((key, id));
                } else {
                    let victim = *pick.get(&model.iter().copied().collect::<Vec<_>>());
                    let removed =
                        heap.remove(positions[&victim.1], |id, at| _ = positions.insert(id, at));
                    prop_assert_eq!(removed, (victim, victim.1));
                    prop_assert_eq!(positions[&victim.1], NOWHERE);
                    model.remove(&victim);
                }
                prop_assert_eq!(heap.peek().map(|(key, _)| key), model.first().copied());
                prop_assert_eq!(heap.entries.len(), model.len());
                for id in heap.ids() {
                    prop_assert_eq!(heap.entries[positions[&id] as usize].1, id);
                }
            }
        }
    }
}
