//! The sleeps that are set, in the order in which they end.

use super::Shared;
use crate::core::time::{DurNs, MonoNs};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::task::Waker;
use std::sync::{MutexGuard, PoisonError};

/// A sleep on the board: its deadline, then its turn among those of the same deadline.
pub(super) type Entry = (MonoNs, u64);

/// What stands under the timer's lock. No waker is woken, cloned or dropped under it: the methods hand
/// out what the caller then drops.
#[derive(Default)]
pub(super) struct Board {
    sleeps: BTreeMap<Entry, Waker>,
    /// How many sleeps there ever were.
    set: u64,
    closing: bool,
}

/// What the thread does next.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Wake what was taken down.
    Wake,
    /// Sleep until then.
    Sleep(MonoNs),
    /// Nobody is left to set a sleep.
    End,
}

impl Shared {
    /// The board. Nothing that can panic runs under its lock.
    pub(super) fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Board {
    pub(super) fn len(&self) -> usize {
        self.sleeps.len()
    }

    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    /// Sets a sleep. Also says whether it is now the earliest, so that the thread must know.
    pub(super) fn set(&mut self, at: MonoNs, waker: Waker) -> (Entry, bool) {
        let entry = (at, self.set);
        self.set += 1;
        let earliest = self.sleeps.first_key_value().is_none_or(|(first, _)| entry < *first);
        self.sleeps.insert(entry, waker);
        (entry, earliest)
    }

    /// Takes a sleep back; None where it was taken down already.
    pub(super) fn take_back(&mut self, entry: Entry) -> Option<Waker> {
        self.sleeps.remove(&entry)
    }

    /// Whether the sleep is set, and would wake `waker`.
    pub(super) fn would_wake(&self, entry: Entry, waker: &Waker) -> Option<bool> {
        self.sleeps.get(&entry).map(|set| set.will_wake(waker))
    }

    /// Gives the sleep another waker and returns what is left to drop: the old one, or this one where
    /// the sleep was taken down.
    pub(super) fn replace_waker(&mut self, entry: Entry, waker: Waker) -> Waker {
        match self.sleeps.get_mut(&entry) {
            Some(set) => core::mem::replace(set, waker),
            None => waker,
        }
    }

    /// Takes down what is due at `now` where tasks are woken `lead` early, in the order of the
    /// deadlines.
    pub(super) fn next(&mut self, now: MonoNs, lead: DurNs, due: &mut Vec<Waker>) -> Next {
        let until = now.after(lead);
        while let Some(first) = self.sleeps.first_entry() {
            let at = first.key().0;
            if at > until {
                if due.is_empty() {
                    return Next::Sleep(MonoNs(at.0 - lead.0));
                }
                return Next::Wake;
            }
            due.push(first.remove());
        }
        match (due.is_empty(), self.closing) {
            (false, _) => Next::Wake,
            (true, true) => Next::End,
            (true, false) => Next::Sleep(MonoNs::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waker() -> Waker {
        Waker::noop().clone()
    }

    #[test]
    fn only_a_sleep_that_becomes_the_earliest_is_told_to_the_thread() {
        let mut board = Board::default();
        let mut set = |at| board.set(MonoNs(at), waker()).1;
        assert!(set(50));
        assert!(!set(60));
        assert!(!set(50), "the first of an instant keeps its turn");
        assert!(set(40));
    }

    #[test]
    fn what_is_due_is_taken_down_in_order_and_the_rest_slept_for() {
        let mut board = Board::default();
        for at in [30, 10, 20, 90] {
            board.set(MonoNs(at), waker());
        }
        let mut due = Vec::new();
        assert_eq!(board.next(MonoNs(5), DurNs(2), &mut due), Next::Sleep(MonoNs(8)));
        assert_eq!(board.next(MonoNs(18), DurNs(2), &mut due), Next::Wake);
        assert_eq!((due.len(), board.len()), (2, 2));
        due.clear();
        let (last, _) = board.set(MonoNs(95), waker());
        assert!(board.take_back(last).is_some());
        assert!(board.take_back(last).is_none(), "taken back once");
        board.close();
        assert_eq!(board.next(MonoNs(100), DurNs(0), &mut due), Next::Wake);
        due.clear();
        assert_eq!(board.next(MonoNs(100), DurNs(0), &mut due), Next::End);
    }
}
