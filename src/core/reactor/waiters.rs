//! The slab of what is registered: one entry for each waiting future.
//!
//! An entry is found by its place and proven by its ticket, a number that no other registration
//! ever has: a future whose entry has been fired finds a stranger's ticket, or none, in its place.

use super::heap::NOWHERE;
use super::lines::SlotRef;
use alloc::vec::Vec;
use core::task::Waker;

/// One registration. 48 bytes.
#[derive(Debug)]
pub(super) struct Waiter {
    /// 0 in a free entry.
    ticket: u64,
    /// The number waited for, if a slot is watched.
    pub(super) target: u64,
    waker: Option<Waker>,
    /// The slot watched; none for an alarm.
    pub(super) slot: Option<SlotRef>,
    /// The position in the queue of the slot, if that is a heap. In a free entry the next free one.
    pub(super) queue_at: u32,
    /// The position among the timers.
    pub(super) timer_at: u32,
}

/// What a future holds on to while it is registered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registration {
    pub(super) place: u32,
    pub(super) ticket: u64,
}

#[derive(Debug)]
pub(super) struct Waiters {
    entries: Vec<Waiter>,
    first_free: u32,
    last_ticket: u64,
}

impl Default for Waiters {
    fn default() -> Self {
        Waiters { entries: Vec::new(), first_free: NOWHERE, last_ticket: 0 }
    }
}

impl Waiters {
    pub(super) fn insert(
        &mut self,
        slot: Option<SlotRef>,
        target: u64,
        waker: Waker,
    ) -> Registration {
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        let waker = Some(waker);
        let waiter = Waiter { ticket, target, waker, slot, queue_at: NOWHERE, timer_at: NOWHERE };
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
    pub(super) fn get(&self, registration: Registration) -> Option<&Waiter> {
        let entry = self.entries.get(registration.place as usize)?;
        (entry.ticket == registration.ticket).then_some(entry)
    }

    #[inline]
    pub(super) fn at(&mut self, place: u32) -> &mut Waiter {
        &mut self.entries[place as usize]
    }

    /// Whether waking `registration` would wake what `waker` wakes; none if it is gone.
    pub(super) fn would_wake(&self, registration: Registration, waker: &Waker) -> Option<bool> {
        let entry = self.get(registration)?;
        Some(entry.waker.as_ref().is_some_and(|own| own.will_wake(waker)))
    }

    /// Exchanges the waker; gives back the one that is to be dropped outside of any borrow.
    pub(super) fn replace_waker(&mut self, registration: Registration, waker: Waker) -> Waker {
        match self.get(registration) {
            Some(_) => match self.at(registration.place).waker.replace(waker) {
                Some(old) => old,
                None => Waker::noop().clone(),
            },
            None => waker,
        }
    }

    /// Frees an entry that stands in no queue any more; gives back its waker.
    pub(super) fn free(&mut self, place: u32) -> Option<Waker> {
        let first_free = core::mem::replace(&mut self.first_free, place);
        let entry = self.at(place);
        entry.ticket = 0;
        entry.queue_at = first_free;
        entry.waker.take()
    }
}
