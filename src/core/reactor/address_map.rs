//! A map from the address of a line to its number in the table: open addressing, linear probing.
//!
//! `alloc` has no hash map and a tree costs a cache miss a level. Addresses of lines are multiples
//! of 64 that nobody outside the program chooses, so a multiplicative hash is enough.

use alloc::{boxed::Box, vec};

const EMPTY: u32 = u32::MAX;

#[derive(Default, Debug)]
pub(super) struct AddressMap {
    /// (address, value); a value of `EMPTY` marks a free cell. The length is a power of two.
    cells: Box<[(usize, u32)]>,
    len: usize,
}

impl AddressMap {
    #[inline]
    pub(super) fn get(&self, address: usize) -> Option<u32> {
        if self.cells.is_empty() {
            return None;
        }
        let mut at = self.home(address);
        loop {
            match self.cells[at] {
                (_, EMPTY) => return None,
                (found, value) if found == address => return Some(value),
                _ => at = (at + 1) & (self.cells.len() - 1),
            }
        }
    }

    /// Adds an address that is not in the map.
    pub(super) fn insert(&mut self, address: usize, value: u32) {
        if (self.len + 1) * 2 > self.cells.len() {
            self.grow();
        }
        self.len += 1;
        self.settle(address, value);
    }

    /// Removes an address that is in the map. What probed past it moves up, so that no tombstones
    /// pile up.
    pub(super) fn remove(&mut self, address: usize) {
        let mask = self.cells.len() - 1;
        let mut hole = self.home(address);
        while self.cells[hole].0 != address || self.cells[hole].1 == EMPTY {
            hole = (hole + 1) & mask;
        }
        self.len -= 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let (next, value) = self.cells[at];
            if value == EMPTY {
                break;
            }
            // It may fill the hole unless its home lies behind the hole on the way to `at`.
            let home = self.home(next);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.cells[hole] = (next, value);
                hole = at;
            }
        }
        self.cells[hole] = (0, EMPTY);
    }

    fn home(&self, address: usize) -> usize {
        let hash = (address as u64 >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize & (self.cells.len() - 1)
    }

    fn settle(&mut self, address: usize, value: u32) {
        let mut at = self.home(address);
        while self.cells[at].1 != EMPTY {
            at = (at + 1) & (self.cells.len() - 1);
        }
        self.cells[at] = (address, value);
    }

    fn grow(&mut self) {
        let larger = vec![(0, EMPTY); (self.cells.len() * 2).max(8)].into_boxed_slice();
        let old = core::mem::replace(&mut self.cells, larger);
        for (address, value) in old {
            if value != EMPTY {
                self.settle(address, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_is_a_map_under_any_order_of_insertions_and_removals(
            steps in proptest::collection::vec((any::<bool>(), 0usize..64), 1..400),
        ) {
            let mut map = AddressMap::default();
            let mut model = BTreeMap::new();
            for (value, (add, line)) in steps.into_iter().enumerate() {
                let address = line * 64 * 1024;
                if add && !model.contains_key(&address) {
                    map.insert(address, value as u32);
                    model.insert(address, value as u32);
                } else if model.remove(&address).is_some() {
                    map.remove(address);
                }
                for line in 0..64 {
                    let address = line * 64 * 1024;
                    prop_assert_eq!(map.get(address), model.get(&address).copied());
                }
            }
        }
    }
}
