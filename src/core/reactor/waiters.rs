//! The slab of what is registered: one entry for each waiting future.
//!
//! An entry is found by its place and proven by its ticket, a number that no other registration
//! ever has: a future whose entry has been fired finds a stranger's ticket, or none, in its place.
//!
//! An entry carries what is to be told of its end: for a reactor a waker.

use super::heap::NOWHERE;
use super::lines::SlotRef;
use alloc::vec::Vec;
use core::task::Waker;

/// One registration. 48 bytes with a waker.
#[derive(Debug)]
pub(crate) struct Waiter<T = Waker> {
    /// 0 in a free entry.
    ticket: u64,
    /// The number waited for, if a slot is watched.
    pub(crate) target: u64,
    /// Notified of the end. None in a free entry, and in one that shares its status queries while
    /// it is its turn to make one: its owner was notified of that and has not come back yet.
    pub(crate) owner: Option<T>,
    /// The slot watched; none for an alarm.
    pub(crate) slot: Option<SlotRef>,
    /// The position in the queue of the slot, if that is a heap. In a free entry the next free one.
    pub(crate) queue_at: u32,
    /// The position among the timers.
    pub(crate) timer_at: u32,
    /// The group with which it shares its status queries, or [`NOWHERE`].
    pub(crate) group: u32,
}

/// What a future holds on to while it is registered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registration {
    pub(crate) place: u32,
    pub(crate) ticket: u64,
}

#[derive(Debug)]
pub(crate) struct Waiters<T = Waker> {
    entries: Vec<Waiter<T>>,
    first_free: u32,
    last_ticket: u64,
}

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Waiters { entries: Vec::new(), first_free: NOWHERE, last_ticket: 0 }
    }
}

impl<T> Waiters<T> {
    pub(crate) fn insert(&mut self, slot: Option<SlotRef>, target: u64, owner: T) -> Registration {
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        let owner = Some(owner);
        let waiter = Waiter {
            ticket,
            target,
            owner,
            slot,
            queue_at: NOWHERE,
            timer_at: NOWHERE,
            group: NOWHERE,
        };
        let place = self.first_free;
        if place == NOWHERE {
            self.entries.push(waiter);
            return Registration { place: self.entries.len() as u32 - 1, ticket };
        }
        let entry = &mut self.entries[place as usize];
        self.first_free = entry.queue_at;
        *entry = waiter;
        Registration { place, ticket }
    }

    /// The entry of `registration`, if it has not been fired or forgotten.
    #[inline]
    pub(crate) fn get(&self, registration: Registration) -> Option<&Waiter<T>> {
        let entry = self.entries.get(registration.place as usize)?;
        (entry.ticket == registration.ticket).then_some(entry)
    }

    #[inline]
    pub(crate) fn at(&mut self, place: u32) -> &mut Waiter<T> {
        &mut self.entries[place as usize]
    }

    /// The entry at `place`.
    #[inline]
    pub(crate) fn peek(&self, place: u32) -> &Waiter<T> {
        &self.entries[place as usize]
    }

    /// The registration whose entry is at `place`.
    #[cfg_attr(not(feature = "std"), allow(dead_code, reason = "a host's"))]
    #[inline]
    pub(crate) fn registration(&self, place: u32) -> Registration {
        Registration { place, ticket: self.entries[place as usize].ticket }
    }

    /// Frees an entry that stands in no queue any more; gives back its owner.
    pub(crate) fn free(&mut self, place: u32) -> Option<T> {
        let first_free = core::mem::replace(&mut self.first_free, place);
        let entry = self.at(place);
        entry.ticket = 0;
        entry.queue_at = first_free;
        entry.owner.take()
    }
}

impl Waiters {
    /// Whether waking `registration` would wake what `waker` wakes; none if it is gone.
    pub(crate) fn would_wake(&self, registration: Registration, waker: &Waker) -> Option<bool> {
        let entry = self.get(registration)?;
        Some(entry.owner.as_ref().is_some_and(|own| own.will_wake(waker)))
    }

    /// Exchanges the waker; gives back the one that is to be dropped outside of any borrow.
    pub(crate) fn replace_waker(&mut self, registration: Registration, waker: Waker) -> Waker {
        match self.get(registration) {
            Some(_) => match self.at(registration.place).owner.replace(waker) {
                Some(old) => old,
                None => Waker::noop().clone(),
            },
            None => waker,
        }
    }
}
