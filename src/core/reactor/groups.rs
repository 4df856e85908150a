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
use super::heap::{IndexHeap, NOWHERE};
use super::lines::SlotRef;
use crate::core::time::{DurNs, MonoNs};
use alloc::vec::Vec;

/// How often the timer of a group is due before the turn passes from a wait that does not come back.
/// A thread with more to do than it has time for comes back late, and must not be given still more.
const TURNS_MISSED: u8 = 3;

/// The waits of one slot.
#[derive(Debug)]
struct Group {
    slot: SlotRef,
    /// The shortest of its waits' backstops: the time between two status queries.
    backstop: DurNs,
    /// 0 in a free entry.
    members: u32,
    /// The position among the timers.
    timer_at: u32,
    /// How often the timer was due since the wait whose turn it is was woken.
    missed: u8,
}

/// Whose turn it is.
pub(super) enum Turn {
    /// That of the first wait, if it has not been woken for it yet.
    First,
    /// That of the first wait that has not been woken for it yet.
    FirstLeft,
}

#[derive(Default, Debug)]
pub(super) struct Groups {
    groups: Vec<Group>,
    free: Vec<u32>,
    by_slot: AddressMap,
    /// When each group is due. Apart from the timers of waits, which are woken all at once: groups
    /// that are due are taken one by one, so that queries delay neither waits nor completions.
    timers: IndexHeap<MonoNs>,
    /// How many waits stand in groups.
    members: usize,
}

impl Groups {
    /// How many waits stand in groups.
    #[inline]
    pub(super) fn members(&self) -> usize {
        self.members
    }

    /// When the next group is due.
    #[inline]
    pub(super) fn next_due(&self) -> Option<MonoNs> {
        self.timers.peek().map(|(at, _)| at)
    }

    /// Adds a wait to the group of `slot`, whose first query is due a backstop after `now` if it is
    /// the first. Returns the number of the group.
    pub(super) fn join(&mut self, slot: SlotRef, backstop: DurNs, now: MonoNs) -> u32 {
        self.members += 1;
        if let Some(number) = self.by_slot.get(key(slot)) {
            let group = &mut self.groups[number as usize];
            group.members += 1;
            group.backstop = group.backstop.min(backstop);
            return number;
        }
        let group = Group { slot, backstop, members: 1, timer_at: NOWHERE, missed: 0 };
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
        self.set_timer(number, now.after(backstop));
        number
    }

    /// Takes a wait out of a group.
    pub(super) fn leave(&mut self, number: u32) {
        self.members -= 1;
        let group = &mut self.groups[number as usize];
        group.members -= 1;
        // Whose turn it was may have been this one.
        group.missed = 0;
        if group.members == 0 {
            let slot = group.slot;
            self.remove_timer(number);
            self.by_slot.remove(key(slot));
            self.free.push(number);
        }
    }

    /// What a query said of one wait of `slot` may hold for the others: the next one's is due now.
    pub(super) fn hurry(&mut self, slot: SlotRef) {
        if let Some(number) = self.by_slot.get(key(slot)) {
            self.remove_timer(number);
            self.set_timer(number, MonoNs(0));
        }
    }

    /// The next group that is due by `now`, with its slot and whose turn it is; its timer is set anew.
    /// `comes_back` tells whether the first wait of a slot has come back since it was woken.
    pub(super) fn take_due(
        &mut self,
        now: MonoNs,
        comes_back: impl FnOnce(SlotRef, u32) -> bool,
    ) -> Option<(u32, SlotRef, Turn)> {
        let (at, number) = self.timers.peek()?;
        if at > now {
            return None;
        }
        self.remove_timer(number);
        let group = &mut self.groups[number as usize];
        let (slot, next) = (group.slot, now.after(group.backstop.max(DurNs(1))));
        group.missed = if comes_back(slot, number) { 0 } else { group.missed + 1 };
        let turn = match group.missed {
            TURNS_MISSED.. => {
                group.missed = 0;
                Turn::FirstLeft
            }
            _ => Turn::First,
        };
        self.set_timer(number, next);
        Some((number, slot, turn))
    }

    fn set_timer(&mut self, number: u32, at: MonoNs) {
        let Groups { timers, groups, .. } = self;
        timers.push(at, number, |id, at| groups[id as usize].timer_at = at);
    }

    fn remove_timer(&mut self, number: u32) {
        let Groups { timers, groups, .. } = self;
        let timer_at = groups[number as usize].timer_at;
        timers.remove(timer_at, |id, at| groups[id as usize].timer_at = at);
    }
}

/// The map is made for addresses of lines, which are multiples of 64.
fn key(slot: SlotRef) -> usize {
    (slot.code() as usize) << 6
}
