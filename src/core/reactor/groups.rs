//! Waits of one slot that share their status queries.
//!
//! A wait that spins asks for a status query each backstop, in case its store is lost or the device
//! has failed. Ten thousand such waits on one stream need one query, not ten thousand: as long as
//! the earliest of them is pending, so are the others, because a stream works in order. The waits of
//! a slot therefore form a group with one timer. When it is due, one wait is notified, the one with
//! the least number, and makes the query. If that says done or fails, it leaves the group and the
//! next one is due at once.
//!
//! ```text
//!            due: owner taken and woken             polled: queries, pending
//! [waiting] ---------------------------> [its turn] -------------------------> [waiting]
//!                                             | done or failed: leaves, `hurry`
//! ```
//!
//! A wait whose turn it is and that is not polled again (its future was forgotten, or its task does
//! not come back) must not keep the others from their status: the next time the timer is due, the
//! turn passes to another one.

use super::address_map::AddressMap;
use super::heap::NOWHERE;
use super::lines::SlotRef;
use crate::core::time::DurNs;
use alloc::vec::Vec;

/// Marks an id among the timers as the number of a group rather than the place of a waiter.
pub(super) const GROUP: u32 = 1 << 31;

/// The waits of one slot.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) slot: Option<SlotRef>,
    /// The shortest of its waits' backstops: the time between two status queries.
    pub(super) backstop: DurNs,
    members: u32,
    /// The position among the timers.
    pub(super) timer_at: u32,
}

#[derive(Default, Debug)]
pub(super) struct Groups {
    groups: Vec<Group>,
    free: Vec<u32>,
    by_slot: AddressMap,
    /// How many waits stand in groups.
    members: usize,
}

impl Groups {
    /// How many waits stand in groups.
    #[inline]
    pub(super) fn members(&self) -> usize {
        self.members
    }

    #[inline]
    pub(super) fn at(&mut self, number: u32) -> &mut Group {
        &mut self.groups[number as usize]
    }

    /// Adds a wait to the group of `slot`. Returns the number of the group, and whether it is new
    /// and needs its timer.
    pub(super) fn join(&mut self, slot: SlotRef, backstop: DurNs) -> (u32, bool) {
        self.members += 1;
        if let Some(number) = self.by_slot.get(key(slot)) {
            let group = self.at(number);
            group.members += 1;
            group.backstop = group.backstop.min(backstop);
            return (number, false);
        }
        let group = Group { slot: Some(slot), backstop, members: 1, timer_at: NOWHERE };
        let number = match self.free.pop() {
            Some(number) => {
                self.groups[number as usize] = group;
                number
            }
            None => {
                self.groups.push(group);
                self.groups.len() as u32 - 1
            }
        };
        self.by_slot.insert(key(slot), number);
        (number, true)
    }

    /// Takes a wait out of a group. Returns the position of the group's timer, which the caller
    /// removes, if it was the last one.
    pub(super) fn leave(&mut self, number: u32) -> Option<u32> {
        self.members -= 1;
        let group = self.at(number);
        group.members -= 1;
        if group.members > 0 {
            return None;
        }
        let timer_at = group.timer_at;
        if let Some(slot) = group.slot.take() {
            self.by_slot.remove(key(slot));
        }
        self.free.push(number);
        Some(timer_at)
    }

    /// The group of `slot`, if it has one.
    pub(super) fn of(&self, slot: SlotRef) -> Option<u32> {
        self.by_slot.get(key(slot))
    }
}

/// The map is made for addresses of lines, which are multiples of 64.
fn key(slot: SlotRef) -> usize {
    (slot.code() as usize) << 6
}
