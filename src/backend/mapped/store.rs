//! How a device stores a word, and which way to try first.
//!
//! Attributes and entry points say what a driver claims; the start-up probe tries the claims in
//! turn and keeps the first whose store is seen. What was refused on the way is kept as text.

use alloc::{string::String, vec::Vec};
use core::fmt;

/// One store of a number at a device address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Store {
    pub address: u64,
    pub value: u64,
}

/// One way of storing words.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Form {
    /// How many bits one store has.
    pub width: Width,
    /// The generation of the vendor's entry points: 1 or 2.
    pub generation: u8,
}

/// How many bits one store of the device has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Width {
    /// The word as one.
    Whole,
    /// The low half, then the high half.
    ///
    /// In this order a word that is being written is never larger than its next number: between
    /// the two it has the old high half, which is the new one or smaller.
    Halves,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = match self.width {
            Width::Whole => 64,
            Width::Halves => 32,
        };
        write!(f, "{bits}-bit stores of generation {}", self.generation)
    }
}

/// The ways to try, the best first, and the ones that are known not to work with the reason.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Forms {
    pub candidates: Vec<Form>,
    pub refused: Vec<String>,
}

/// The halves of a store as the device writes them: the low one first.
pub(in crate::backend) fn halves(store: Store) -> [(u64, u32); 2] {
    // The words of a line are in the host's order, which is little-endian on every system that
    // these drivers exist for.
    let (low, high) = (store.value as u32, (store.value >> 32) as u32);
    [(store.address, low), (store.address + 4, high)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_written_by_halves_never_shows_more_than_the_next_number() {
        let numbers = [1, 2, 0xffff_fffe, 0xffff_ffff, 0x1_0000_0000, 0x1_0000_0001, 0x2_0000_0000];
        let mut word = 0u64;
        for number in numbers {
            for (address, half) in halves(Store { address: 0, value: number }) {
                let shift = address * 8;
                word = word & !(0xffff_ffff << shift) | u64::from(half) << shift;
                assert!(word <= number, "{word:#x} while {number:#x} is written");
            }
            assert_eq!(word, number);
        }
    }
}
