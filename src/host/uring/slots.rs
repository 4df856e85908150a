//! The operations of a ring that have not ended yet, and their numbers.
//!
//! ```text
//!            insert                take_up                  settle                    collect
//!   FREE ------------> BACKLOGGED ---------> IN THE KERNEL ---------> SETTLED(result) --------> FREE
//!    ^                     |   owner dropped |  orphan                    | owner dropped: orphaned at once
//!    |                     v                 v                            |
//!    +---------------- ORPHAN -----------> ORPHAN IN THE KERNEL           |
//!    |    never submitted                    | settle                     |
//!    +---------------------------------------+----------------------------+
//! ```
//!
//! An orphan is an operation whose future is gone. It owns what the kernel may still touch, and is
//! finished, which frees that, once its completion has come and not before.
//!
//! A place is free again only after its completion; its generation tells a cancellation for a former
//! user apart from the next one.

use core::task::Waker;
use std::boxed::Box;
use std::vec::Vec;

/// What is left of an operation whose future was dropped.
pub(super) trait Orphan {
    /// The operation ended with `result`: frees what it held, and what it brought.
    fn finish(self: Box<Self>, result: i32);
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
    Settled(i32),
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
    Finish(Box<dyn Orphan>, i32),
    /// The future is there and was not polled, or the number is unknown.
    Nobody,
}

/// What dropping a future leads to, once nothing is borrowed.
pub(super) enum Abandoned {
    /// It had ended with this result.
    Settled(Box<dyn Orphan>, i32),
    /// The kernel has it, or will get it: to be cancelled.
    InKernel(Option<Waker>),
    /// It never left the backlog, and will not.
    Backlogged(Option<Waker>),
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

    /// The operation leaves the backlog. `Some` where it is an orphan: it need not be submitted.
    pub(super) fn take_up(&mut self, key: Key) -> Option<Box<dyn Orphan>> {
        let slot = self.get(key)?;
        slot.backlogged = false;
        if !matches!(slot.state, State::Orphaned(_)) {
            return None;
        }
        match self.release(key) {
            State::Orphaned(orphan) => Some(orphan),
            _ => None,
        }
    }

    /// The completion of an operation has come.
    pub(super) fn settle(&mut self, key: Key, result: i32) -> Settled {
        let Some(slot) = self.get(key) else { return Settled::Nobody };
        match core::mem::replace(&mut slot.state, State::Settled(result)) {
            State::Pending(Some(waker)) => Settled::Wake(waker),
            State::Orphaned(orphan) => {
                self.release(key);
                Settled::Finish(orphan, result)
            }
            State::Pending(None) | State::Settled(_) | State::Free => Settled::Nobody,
        }
    }

    /// The result, where it has come. The place is free then.
    pub(super) fn collect(&mut self, key: Key) -> Option<i32> {
        let State::Settled(result) = self.get(key)?.state else { return None };
        self.release(key);
        Some(result)
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
            State::Settled(result) => {
                self.release(key);
                Abandoned::Settled(orphan, result)
            }
            old => {
                slot.state = State::Orphaned(orphan);
                let waker = if let State::Pending(waker) = old { waker } else { None };
                match slot.backlogged {
                    true => Abandoned::Backlogged(waker),
                    false => Abandoned::InKernel(waker),
                }
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
