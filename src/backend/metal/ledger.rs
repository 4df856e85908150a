//! Which number is done, and whose error wins: what does not depend on Apple.
//!
//! The ledger keeps what was committed until its state is known. A mark is a piece of work of its own,
//! which signals its number; work is asked about by the number of the first mark behind it.
//!
//! ```text
//! commit a | commit b | mark 1 | commit c | mark 2        in the order of the commits
//!     1         1         1         2         2           the number of each
//! ```
//!
//! A number is done once it was signaled, or its mark is known to have completed, and all work in front
//! of it has completed. A mark's own state is not waited for, since its signal comes before it.

use crate::core::error::{Error, Result};
use alloc::collections::VecDeque;

/// What came of a piece of work.
pub(super) enum Ran {
    Pending,
    Completed,
    Failed(Error),
}

/// What can be committed.
pub(super) trait Work {
    /// A driver call that does not block.
    fn ran(&self) -> Ran;
}

pub(super) struct Ledger<W> {
    /// Not known to have ended, in the order of the commits.
    entries: VecDeque<Entry<W>>,
    committed: u64,
    issued: u64,
    /// The largest number whose mark has completed.
    completed: u64,
    /// The first failure in the order of the commits, as far as is known, and its number.
    failure: Option<Failure>,
}

struct Entry<W> {
    work: W,
    /// The place in the order of the commits.
    order: u64,
    number: u64,
    is_mark: bool,
}

struct Failure {
    order: u64,
    number: u64,
    error: Error,
}

/// What is asked about.
#[derive(Clone, Copy)]
pub(super) enum Point {
    /// Everything in front of the mark of this number.
    Mark(u64),
    /// Everything up to this place in the order of the commits.
    Order(u64),
}

impl Point {
    fn holds<W>(self, entry: &Entry<W>) -> bool {
        match self {
            Point::Mark(number) => entry.number <= number,
            Point::Order(order) => entry.order <= order,
        }
    }
}

impl<W: Work> Ledger<W> {
    /// An empty ledger of a slot whose last issued number is `issued`.
    pub(super) fn new(issued: u64) -> Self {
        Ledger { entries: VecDeque::new(), committed: 0, issued, completed: issued, failure: None }
    }

    /// Enters work that is about to be committed.
    pub(super) fn commit(&mut self, work: W) {
        self.enter(work, self.issued + 1, false);
    }

    /// Enters the mark of `number`, which is about to be committed.
    pub(super) fn mark(&mut self, number: u64, work: W) {
        self.issued = number;
        self.enter(work, number, true);
    }

    fn enter(&mut self, work: W, number: u64, is_mark: bool) {
        // So that a program which never asks does not keep everything it ever committed.
        while let Some(entry) = self.entries.front() {
            match entry.work.ran() {
                Ran::Pending => break,
                ran => {
                    if let Some(entry) = self.entries.pop_front() {
                        self.note(&entry, ran);
                    }
                }
            }
        }
        self.committed += 1;
        self.entries.push_back(Entry { work, order: self.committed, number, is_mark });
    }

    /// The last place in the order of the commits.
    pub(super) fn everything(&self) -> Point {
        Point::Order(self.committed)
    }

    pub(super) fn issued(&self) -> u64 {
        self.issued
    }

    /// Whether `number` is done, given the largest number that was signaled.
    pub(super) fn query_mark(&mut self, number: u64, signaled: u64) -> Result<bool> {
        let pending = self.settle(Point::Mark(number), |entry| !entry.is_mark)?;
        Ok(!pending && signaled.max(self.completed) >= number)
    }

    /// Whether everything up to `point` has completed, marks included.
    pub(super) fn query(&mut self, point: Point) -> Result<bool> {
        Ok(!self.settle(point, |_| true)?)
    }

    /// The error that the stream has, if any.
    pub(super) fn check(&self) -> Result<()> {
        self.failure.as_ref().map_or(Ok(()), |failure| Err(failure.error.clone()))
    }

    /// The first work up to `point` that has not ended.
    pub(super) fn first_pending(&self, point: Point) -> Option<&W> {
        let mut entries = self.entries.iter().take_while(|entry| point.holds(entry));
        entries.find(|entry| matches!(entry.work.ran(), Ran::Pending)).map(|entry| &entry.work)
    }

    /// Takes note of what has ended up to `point`, and says whether something is pending there that
    /// `counts`.
    fn settle(&mut self, point: Point, counts: impl Fn(&Entry<W>) -> bool) -> Result<bool> {
        let mut pending = false;
        let mut at = 0;
        while let Some(entry) = self.entries.get(at).filter(|entry| point.holds(entry)) {
            match entry.work.ran() {
                Ran::Pending => {
                    pending |= counts(entry);
                    at += 1;
                }
                ran => {
                    if let Some(entry) = self.entries.remove(at) {
                        self.note(&entry, ran);
                    }
                }
            }
        }
        match &self.failure {
            Some(failure) if failure.is_in(point) => Err(failure.error.clone()),
            _ => Ok(pending),
        }
    }

    fn note(&mut self, entry: &Entry<W>, ran: Ran) {
        match ran {
            Ran::Pending => {}
            Ran::Completed if entry.is_mark => self.completed = self.completed.max(entry.number),
            Ran::Completed => {}
            Ran::Failed(error) => {
                if self.failure.as_ref().is_none_or(|first| entry.order < first.order) {
                    let Entry { order, number, .. } = *entry;
                    self.failure = Some(Failure { order, number, error });
                }
            }
        }
    }
}

impl Failure {
    fn is_in(&self, point: Point) -> bool {
        match point {
            Point::Mark(number) => self.number <= number,
            Point::Order(order) => self.order <= order,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::rc::Rc;
    use core::cell::Cell;

    #[derive(Clone, Copy)]
    enum State {
        Pending,
        Completed,
        Failed(&'static str),
    }

    type Piece = Rc<Cell<State>>;

    impl Work for Piece {
        fn ran(&self) -> Ran {
            match self.get() {
                State::Pending => Ran::Pending,
                State::Completed => Ran::Completed,
                State::Failed(why) => Ran::Failed(Error::backend("command buffer", why)),
            }
        }
    }

    fn piece() -> Piece {
        Rc::new(Cell::new(State::Pending))
    }

    /// `a, mark 1, b, mark 2`.
    fn ledger() -> (Ledger<Piece>, [Piece; 4]) {
        let pieces = [(); 4].map(|()| piece());
        let mut ledger = Ledger::new(0);
        ledger.commit(pieces[0].clone());
        ledger.mark(1, pieces[1].clone());
        ledger.commit(pieces[2].clone());
        ledger.mark(2, pieces[3].clone());
        (ledger, pieces)
    }

    fn why(answer: Result<bool>) -> alloc::string::String {
        answer.unwrap_err().args()[1].clone()
    }

    #[test]
    fn a_number_is_done_once_it_is_signaled_and_the_work_in_front_of_it_has_completed() {
        let (mut ledger, [a, _, b, _]) = ledger();
        assert!(!ledger.query_mark(1, 0).unwrap());
        assert!(!ledger.query_mark(1, 2).unwrap(), "signaled, but the work may still fail");
        a.set(State::Completed);
        assert!(!ledger.query_mark(1, 0).unwrap(), "the signal is not there");
        assert!(ledger.query_mark(1, 1).unwrap());
        assert!(!ledger.query_mark(2, 2).unwrap());
        b.set(State::Completed);
        assert!(ledger.query_mark(2, 2).unwrap());
    }

    #[test]
    fn a_mark_that_has_completed_makes_up_for_its_signal() {
        let (mut ledger, [a, first, ..]) = ledger();
        a.set(State::Completed);
        first.set(State::Completed);
        assert!(ledger.query_mark(1, 0).unwrap());
        assert!(!ledger.query_mark(2, 0).unwrap());
    }

    #[test]
    fn a_failed_command_buffer_is_the_error_of_every_point_behind_it_though_it_never_signals() {
        let (mut ledger, [a, _, b, _]) = ledger();
        a.set(State::Completed);
        b.set(State::Failed("page fault"));
        assert!(ledger.check().is_ok(), "nobody has asked");
        assert!(ledger.query_mark(1, 1).unwrap());
        assert_eq!(why(ledger.query_mark(2, 1)), "page fault");
        assert_eq!(why(ledger.query_mark(2, 2)), "page fault", "signaled all the same, and sticky");
        assert!(ledger.query_mark(1, 1).unwrap(), "what was done in front of it stays done");
        assert!(ledger.check().is_err(), "no mark behind it");
        assert_eq!(why(ledger.query(ledger.everything())), "page fault");
    }

    #[test]
    fn of_several_failures_the_first_in_the_order_of_the_commits_wins() {
        let (mut ledger, [a, _, b, last]) = ledger();
        last.set(State::Failed("a victim"));
        assert_eq!(why(ledger.query_mark(2, 0)), "a victim");
        b.set(State::Failed("a cause"));
        assert_eq!(why(ledger.query_mark(2, 0)), "a cause");
        assert!(!ledger.query_mark(1, 0).unwrap(), "it does not concern what is in front of it");
        a.set(State::Failed("the first cause"));
        assert_eq!(why(ledger.query_mark(1, 0)), "the first cause");
        assert_eq!(why(ledger.query_mark(2, 0)), "the first cause");
    }

    #[test]
    fn a_mark_that_fails_is_an_error_and_not_a_hang() {
        let (mut ledger, [a, first, ..]) = ledger();
        a.set(State::Completed);
        first.set(State::Failed("device removed"));
        assert_eq!(why(ledger.query_mark(1, 0)), "device removed");
    }

    #[test]
    fn everything_is_done_once_all_that_was_committed_by_then_has_completed() {
        let (mut ledger, pieces) = ledger();
        let then = ledger.everything();
        let later = piece();
        ledger.commit(later.clone());
        assert!(!ledger.query(then).unwrap());
        assert!(Rc::ptr_eq(ledger.first_pending(then).unwrap(), &pieces[0]));
        pieces.iter().for_each(|piece| piece.set(State::Completed));
        assert!(ledger.first_pending(then).is_none());
        assert!(ledger.query(then).unwrap());
        assert!(!ledger.query(ledger.everything()).unwrap());
    }

    #[test]
    fn a_program_that_never_asks_keeps_only_what_has_not_ended() {
        let mut ledger = Ledger::new(7);
        for number in 8..1_000 {
            let done = piece();
            done.set(State::Completed);
            ledger.commit(done.clone());
            ledger.mark(number, done);
        }
        assert!(ledger.entries.len() <= 2);
        assert!(ledger.query_mark(999, 0).unwrap() && ledger.issued() == 999);
        let failed = piece();
        failed.set(State::Failed("unasked"));
        ledger.commit(failed);
        ledger.mark(1_000, piece());
        assert_eq!(why(ledger.query_mark(1_000, 0)), "unasked", "found by a commit, and kept");
    }
}
