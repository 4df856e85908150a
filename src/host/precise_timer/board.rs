//! The sleeps that are set, in the order in which they end.
//!
//! The same two tables that a reactor keeps its alarms in: a slab of wakers and a heap of deadlines
//! that knows where each stands. Both keep their memory, so setting a sleep allocates only if there
//! are more at a time than ever before.

use super::Shared;
use crate::core::reactor::heap::{IndexHeap, NOWHERE};
use crate::core::reactor::waiters::{Registration, Waiters};
use crate::core::time::{DurNs, MonoNs};
use alloc::vec::Vec;
use core::task::Waker;
use std::sync::{MutexGuard, PoisonError};

/// What stands under the timer's lock. No waker is woken, cloned or dropped under it: the methods
/// hand out what the caller then drops.
#[derive(Default)]
pub(super) struct Board {
    /// By deadline, then by turn.
    deadlines: IndexHeap<(MonoNs, u64)>,
    wakers: Waiters,
    len: usize,
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
        self.len
    }

    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    /// Sets a sleep. Also returns whether it is now the earliest, so that the thread must know.
    pub(super) fn set(&mut self, at: MonoNs, waker: Waker) -> (Registration, bool) {
        let sleep = self.wakers.insert(None, 0, waker);
        let key = (at, sleep.ticket);
        let earliest = self.deadlines.peek().is_none_or(|(first, _)| key < first);
        let wakers = &mut self.wakers;
        self.deadlines.push(key, sleep.place, |place, at| wakers.at(place).timer_at = at);
        self.len += 1;
        (sleep, earliest)
    }

    /// Takes a sleep back; `None` if it was taken down already.
    pub(super) fn take_back(&mut self, sleep: Registration) -> Option<Waker> {
        let position = self.wakers.get(sleep)?.timer_at;
        self.take_down(position)
    }

    fn take_down(&mut self, position: u32) -> Option<Waker> {
        debug_assert_ne!(position, NOWHERE);
        let wakers = &mut self.wakers;
        let (_, place) =
            self.deadlines.remove(position, |place, at| wakers.at(place).timer_at = at);
        self.len -= 1;
        self.wakers.free(place)
    }

    /// Whether the sleep would wake `waker`; `None` if it is not set any more.
    pub(super) fn would_wake(&self, sleep: Registration, waker: &Waker) -> Option<bool> {
        self.wakers.would_wake(sleep, waker)
    }

    /// Gives the sleep another waker and returns what is left to drop: the old one, or this one if
    /// the sleep was taken down.
    pub(super) fn replace_waker(&mut self, sleep: Registration, waker: Waker) -> Waker {
        self.wakers.replace_waker(sleep, waker)
    }

    /// Takes down what is due at `now` if tasks are woken `lead` early, in the order of the
    /// deadlines.
    pub(super) fn next(&mut self, now: MonoNs, lead: DurNs, due: &mut Vec<Waker>) -> Next {
        let until = now.after(lead);
        while let Some(((at, _), _)) = self.deadlines.peek() {
            if at > until {
                if due.is_empty() {
                    return Next::Sleep(MonoNs(at.0 - lead.0));
                }
                return Next::Wake;
            }
            due.extend(self.take_down(0));
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
