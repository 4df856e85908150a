//! What other threads tell the thread on duty, and whether telling it takes a wake.
//!
//! Letters stand in shards, each a vector under a lock that only a few threads share and nobody
//! holds for longer than a push. A mask says which shards have any: one load for whoever looks.
//!
//! # The interleaving that must not lose a wake
//!
//! ```text
//! scanner:   wake_before = t | look into every shard: empty | sleep until t, or woken | wake_before = 0
//! registrar: ..... lock shard, push, unlock | mask | read wake_before, wake if its event is before
//! ```
//!
//! For each shard the push comes before the scanner's look, which then finds the letter and does
//! not sleep; or after it, and then the shard's lock, released by the look and taken by the push,
//! makes `wake_before` visible to the registrar. Setting `wake_before` after the look would lose
//! the letter.
//!
//! The mask is set only where it reads unset, so that a burst of pushes shares its cache line. A
//! push that finds it set is found by the drain to come: had that drain looked into the shard
//! before the push, it would have cleared the mask before that, and the lock would have shown it
//! cleared.

use super::sync::{Mutex, lock};
use crate::core::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::core::time::MonoNs;
use alloc::vec::Vec;

/// How many locks the letters are spread over. Threads are dealt to them in turn.
pub(super) const SHARDS: usize = if cfg!(loom) { 2 } else { 16 };

/// Letters of any threads to one.
pub(super) struct Inbox<M> {
    shards: [Shard<M>; SHARDS],
    /// Apart from what seldom changes: every push looks at both.
    filled: Filled,
    signals: Signals,
}

/// Which shards have letters.
#[repr(align(128))]
struct Filled(AtomicU32);

#[repr(align(128))]
struct Shard<M>(Mutex<Letters<M>>);

struct Letters<M> {
    list: Vec<M>,
    closed: bool,
}

#[repr(align(128))]
struct Signals {
    /// Nothing is accepted any more.
    closed: AtomicBool,
    /// While the scanner sleeps, when its sleep ends; a letter about an earlier event wakes it. 0
    /// while it looks by itself.
    wake_before: AtomicU64,
}

impl<M> Inbox<M> {
    pub(super) fn new() -> Self {
        let letters = || Letters { list: Vec::new(), closed: false };
        Inbox {
            shards: core::array::from_fn(|_| Shard(Mutex::new(letters()))),
            filled: Filled(AtomicU32::new(0)),
            signals: Signals { closed: AtomicBool::new(false), wake_before: AtomicU64::new(0) },
        }
    }

    /// Leaves `letter`, which is about an event at `event()`. `true`: the caller wakes the scanner.
    ///
    /// # Errors
    ///
    /// The letter, where the inbox is closed.
    pub(super) fn push(
        &self,
        shard: usize,
        letter: M,
        event: impl FnOnce() -> MonoNs,
    ) -> Result<bool, M> {
        {
            let mut letters = lock(&self.shards[shard].0);
            if letters.closed {
                return Err(letter);
            }
            letters.list.push(letter);
        }
        if self.filled.0.load(Ordering::Relaxed) & 1 << shard == 0 {
            self.filled.0.fetch_or(1 << shard, Ordering::Release);
        }
        let wake_before = self.signals.wake_before.load(Ordering::Relaxed);
        Ok(wake_before != 0 && event().0 < wake_before && self.claim_wake(wake_before))
    }

    /// Whether the scanner is awake, as far as the caller can know.
    #[inline]
    pub(super) fn is_looking(&self) -> bool {
        self.signals.wake_before.load(Ordering::Relaxed) == 0
    }

    /// Of several who see the same sleep, one wakes.
    #[cold]
    fn claim_wake(&self, wake_before: u64) -> bool {
        let word = &self.signals.wake_before;
        word.compare_exchange(wake_before, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether there are letters, or the inbox is closed: two loads.
    #[inline]
    pub(super) fn is_stirred(&self) -> bool {
        self.filled.0.load(Ordering::Relaxed) != 0 || self.is_closed()
    }

    /// Takes every letter, in the order of its thread's.
    pub(super) fn drain(&self, into: &mut Vec<M>) {
        if self.filled.0.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut filled = self.filled.0.swap(0, Ordering::Acquire);
        while filled != 0 {
            let shard = filled.trailing_zeros() as usize;
            filled &= filled - 1;
            into.append(&mut lock(&self.shards[shard].0).list);
        }
    }

    /// The scanner is about to sleep until `until`. `false`: there are letters, it must not.
    #[must_use]
    pub(super) fn begin_sleep(&self, until: MonoNs) -> bool {
        self.signals.wake_before.store(until.0, Ordering::Relaxed);
        for (at, shard) in self.shards.iter().enumerate() {
            let letters = lock(&shard.0);
            if !letters.list.is_empty() || letters.closed {
                // Its sender may not have come to the mask yet.
                self.filled.0.fetch_or(1 << at, Ordering::Relaxed);
                drop(letters);
                self.end_sleep();
                return false;
            }
        }
        true
    }

    /// The scanner looks by itself again.
    pub(super) fn end_sleep(&self) {
        self.signals.wake_before.store(0, Ordering::Relaxed);
    }

    /// Accepts nothing from now on. The caller wakes the scanner.
    pub(super) fn close(&self) {
        for shard in &self.shards {
            lock(&shard.0).closed = true;
        }
        // In this order: a drain by whoever has seen `closed` finds all that was ever accepted.
        self.filled.0.fetch_or(u32::MAX >> (32 - SHARDS as u32), Ordering::Release);
        self.signals.closed.store(true, Ordering::Release);
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.signals.closed.load(Ordering::Acquire)
    }
}

/// The shard of the calling thread.
#[cfg(not(loom))]
pub(super) fn shard_of_thread() -> usize {
    use core::sync::atomic::AtomicUsize;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    std::thread_local! {
        static SHARD: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    // A thread that is ending has no such place any more.
    SHARD.try_with(|shard| *shard).unwrap_or(0)
}

#[cfg(loom)]
pub(super) fn shard_of_thread() -> usize {
    0
}
