//! The blocks of a context that are allocated once, used by turns, and freed at its close alone.

use super::lock;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

/// Blocks that nobody uses, and how many are in use.
pub(super) struct Pool<B> {
    free: Mutex<Vec<B>>,
    in_use: AtomicUsize,
}

impl<B> Default for Pool<B> {
    fn default() -> Self {
        Pool { free: Mutex::default(), in_use: AtomicUsize::new(0) }
    }
}

impl<B> Pool<B> {
    /// Takes the free block whose place `choose` names.
    pub(super) fn take(&self, choose: impl FnOnce(&[B]) -> Option<usize>) -> Option<B> {
        let mut free = lock(&self.free);
        let at = choose(&free)?;
        Some(free.swap_remove(at))
    }

    /// A block is in use, one that was taken or a new one.
    pub(super) fn used(&self) {
        self.in_use.fetch_add(1, Ordering::AcqRel);
    }

    /// A block that was in use is free.
    pub(super) fn give_back(&self, block: B) {
        lock(&self.free).push(block);
        // Behind the push: a close that sees it unused finds it in the list.
        self.in_use.fetch_sub(1, Ordering::AcqRel);
    }

    /// How many blocks there are.
    pub(super) fn count(&self) -> usize {
        // In this order: a block that is not in use any more is in the list.
        let in_use = self.in_use.load(Ordering::Acquire);
        in_use + lock(&self.free).len()
    }

    /// Takes out what nobody uses and has `free` free it. Returns how many blocks it freed, and how many it
    /// did not: they are leaked.
    pub(super) fn free_unused(&self, mut free: impl FnMut(B) -> bool) -> (usize, usize) {
        let unused = core::mem::take(&mut *lock(&self.free));
        let all = unused.len();
        let freed = unused.into_iter().map(|block| usize::from(free(block))).sum();
        (freed, all - freed)
    }
}

/// Whether a block of `bytes` serves for `wanted`: it is as large, and not more than twice.
pub(super) fn serves(bytes: usize, wanted: usize) -> bool {
    (wanted..=wanted.saturating_mul(2)).contains(&bytes)
}
