//! The operations of a ring that have not ended yet, and their numbers.
//!
//! ```text
//!            insert                take_up                  settle                   collect
//!   FREE ------------> BACKLOGGED ---------> IN THE KERNEL --------> SETTLED(how) ----------> FREE
//!    ^                     |                      | owner dropped         | owner dropped:
//!    |  owner dropped:     |                      v                       | finished at once
//!    |  finished at once   |              ORPHAN IN THE KERNEL            |
//!    |                     |                      | settle                |
//!    +---------------------+----------------------+-----------------------+
//! ```
//!
//! An orphan is an operation whose future is gone. It owns what the kernel may still touch, and is
//! finished, which frees that, once its completion has come and not before. What never reached the
//! kernel is no orphan: its future's drop frees it, and its entry in the backlog is skipped.
//!
//! A place is free again only after its completion; its generation tells a cancellation for a former
//! user, or an entry that it left in the backlog, apart from the next one.

use super::ended::Ended;
use core::task::Waker;
use rustix::io::Errno;
use std::boxed::Box;
use std::vec::Vec;

/// What is left of an operation whose future was dropped.
pub(super) trait Orphan {
    /// The operation ended as `ended`: frees what it held, and what it brought.
    fn finish(self: Box<Self>, ended: Ended);
}

/// The number of an operation, its `user_data`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key {
    index: u32,
    /// Less than 2^31, so that no key is one of the ring's own numbers.
    generation: u32,
}

impl Key {
    pub(super) fn user_data(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(super) fn of(user_data: u64) -> Self {
        Key { index: user_data as u32, generation: (user_data >> 32) as u32 }
    }
}

enum State {
    Free,
    /// The waker of whoever polled last.
    Pending(Option<Waker>),
    Settled(Ended),
    Orphaned(Box<dyn Orphan>),
}

struct Slot {
    generation: u32,
    /// Not handed to the kernel's queue yet.
    backlogged: bool,
    state: State,
}

/// What a completion leads to, once nothing is borrowed.
pub(super) enum Settled {
    Wake(Waker),
    Finish(Box<dyn Orphan>, Ended),
    /// The future is there and was not polled, or the number is unknown.
    Nobody,
}

/// What dropping a future leads to, once nothing is borrowed.
pub(super) enum Abandoned {
    /// It had ended like this, or will never begin: the kernel holds nothing of it.
    Over(Box<dyn Orphan>, Ended, Option<Waker>),
    /// The kernel has it: to be cancelled.
    InKernel(Option<Waker>),
}

#[derive(Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slots {
    /// How many are not free.
    pub(super) fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// How many of them are orphans. A walk over all.
    pub(super) fn orphans(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot.state, State::Orphaned(_))).count()
    }

    pub(super) fn insert(&mut self, waker: Waker) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 operations");
            self.slots.push(Slot { generation: 0, backlogged: false, state: State::Free });
            index
        });
        let slot = &mut self.slots[index as usize];
        slot.backlogged = true;
        slot.state = State::Pending(Some(waker));
        Key { index, generation: slot.generation }
    }

    fn get(&mut self, key: Key) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(key.index as usize)?;
        (slot.generation == key.generation && !matches!(slot.state, State::Free)).then_some(slot)
    }

    fn release(&mut self, key: Key) -> State {
        let slot = &mut self.slots[key.index as usize];
        slot.generation = (slot.generation + 1) & (u32::MAX >> 1);
        self.free.push(key.index);
        core::mem::replace(&mut slot.state, State::Free)
    }

    /// The operation leaves the backlog. Returns `false` if its future was dropped: there is nothing
    /// to submit.
    pub(super) fn take_up(&mut self, key: Key) -> bool {
        let Some(slot) = self.get(key) else { return false };
        slot.backlogged = false;
        true
    }

    /// The operations that the kernel has.
    pub(super) fn in_kernel(&self) -> Vec<Key> {
        let has = |slot: &Slot| {
            !slot.backlogged && matches!(slot.state, State::Pending(_) | State::Orphaned(_))
        };
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| has(slot));
        // The number of slots fits: `insert` sees to it.
        slots.map(|(at, slot)| Key { index: at as u32, generation: slot.generation }).collect()
    }

    /// The completion of an operation has come.
    pub(super) fn settle(&mut self, key: Key, ended: Ended) -> Settled {
        let Some(slot) = self.get(key) else { return Settled::Nobody };
        match core::mem::replace(&mut slot.state, State::Settled(ended)) {
            State::Pending(Some(waker)) => Settled::Wake(waker),
            State::Orphaned(orphan) => {
                self.release(key);
                Settled::Finish(orphan, ended)
            }
            State::Pending(None) | State::Settled(_) | State::Free => Settled::Nobody,
        }
    }

    /// How it ended, if it has. The place is free then.
    pub(super) fn collect(&mut self, key: Key) -> Option<Ended> {
        let State::Settled(ended) = self.get(key)?.state else { return None };
        self.release(key);
        Some(ended)
    }

    pub(super) fn would_wake(&mut self, key: Key, waker: &Waker) -> bool {
        let pending = self.get(key).map(|slot| &slot.state);
        matches!(pending, Some(State::Pending(Some(old))) if old.will_wake(waker))
    }

    /// Puts `waker` in the place of the present one, which is returned to be dropped.
    pub(super) fn replace_waker(&mut self, key: Key, waker: Waker) -> Option<Waker> {
        match self.get(key).map(|slot| &mut slot.state) {
            Some(State::Pending(old)) => old.replace(waker),
            _ => Some(waker),
        }
    }

    /// The future is dropped; `orphan` is what it held.
    pub(super) fn abandon(&mut self, key: Key, orphan: Box<dyn Orphan>) -> Abandoned {
        let Some(slot) = self.get(key) else {
            unreachable!("an operation keeps its place until its result is collected")
        };
        match core::mem::replace(&mut slot.state, State::Free) {
            State::Settled(ended) => {
                self.release(key);
                Abandoned::Over(orphan, ended, None)
            }
            State::Pending(waker) if slot.backlogged => {
                self.release(key);
                Abandoned::Over(orphan, Ended::Kernel(-Errno::CANCELED.raw_os_error()), waker)
            }
            old => {
                slot.state = State::Orphaned(orphan);
                Abandoned::InKernel(if let State::Pending(waker) = old { waker } else { None })
            }
        }
    }

    /// Every orphan, to be leaked.
    pub(super) fn take_orphans(&mut self) -> Vec<Box<dyn Orphan>> {
        let states = self.slots.iter_mut().map(|slot| &mut slot.state);
        states
            .filter_map(|state| match core::mem::replace(state, State::Free) {
                State::Orphaned(orphan) => Some(orphan),
                _ => None,
            })
            .collect()
    }
}
