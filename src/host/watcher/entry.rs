//! One watch, shared by its future and the thread on duty.
//!
//! ```text
//!                    finish (the thread on duty)
//!   WAITING(waker) ------------------------------> ENDED(result) --poll--> GONE
//!     |    ^ |                                          |
//!     |    '-' poll: newer waker                        | drop of the future
//!     '------------- drop of the future ----------------+--------------> GONE
//! ```
//!
//! Every edge is taken under the cell's lock, and no code of a user runs under it: a waker is
//! cloned before and dropped or woken after. Whoever finishes takes the waker out with the same
//! step that puts the result in, so a poll either leaves its waker before that, and is woken, or
//! finds the result. One `finish` wins; to a dropped future it is nothing.

use super::counters::{Counters, count};
use super::sync::{Mutex, lock};
use super::{WatchError, WatchResult};
use crate::contain::contain;
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::estimate::Outcome;
use crate::core::port::{End, Waited};
use crate::core::reactor::heap::NOWHERE;
use crate::core::time::{DurNs, MonoNs};
use core::mem;
use core::sync::atomic::{AtomicU32, Ordering};
use core::task::Waker;

/// What a watch asks.
pub(super) type Status = dyn FnMut() -> Result<bool> + Send;

/// What was agreed when a watch began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// 0 if that is when the thread on duty takes it up: it was awake and looking.
    pub(super) began: MonoNs,
    pub(super) backstop: DurNs,
    /// `MAX` if there is none.
    pub(super) deadline: MonoNs,
    /// The key of the device that the status asks; never [`NO_DEVICE`](super::duty::NO_DEVICE).
    pub(super) device: usize,
}

impl Terms {
    /// What comes first after `now`: the next backstop, or the deadline. Before `MAX`, which is
    /// when a thread sleeps until that has nothing to watch.
    pub(super) fn next_event(&self, now: MonoNs) -> MonoNs {
        now.after(self.backstop).min(self.deadline).min(MonoNs(u64::MAX - 1))
    }
}

/// One watch, as far as its future and the thread on duty share it. Small, and laid out as written,
/// since every line of it goes from one core to another and back.
#[repr(C)]
pub(super) struct Entry<F: ?Sized> {
    cell: Mutex<Cell>,
    /// Where the thread on duty keeps it; written and read by that thread alone.
    place: AtomicU32,
    /// Uncontended: called by the thread on duty, which asks a watch anew only after an answer. Not
    /// the model's, as the call is a user's.
    status: std::sync::Mutex<F>,
}

/// How a watch ended.
pub(super) enum Ended {
    /// The work is done; whether the word was reached.
    Done {
        reached: bool,
        elapsed: DurNs,
        queries: u32,
    },
    TimedOut {
        elapsed: DurNs,
        queries: u32,
    },
    Failed(Error),
    /// For a reason of the watcher's.
    Unwatched(Error),
}

#[derive(Default)]
enum Cell {
    Waiting(Waker),
    Ended(Ended),
    #[default]
    Gone,
}

impl<F> Entry<F> {
    pub(super) fn new(waker: Waker, status: F) -> Entry<F> {
        Entry {
            place: AtomicU32::new(NOWHERE),
            cell: Mutex::new(Cell::Waiting(waker)),
            status: std::sync::Mutex::new(status),
        }
    }
}

impl<F: ?Sized> Entry<F> {
    pub(super) fn place(&self) -> u32 {
        self.place.load(Ordering::Relaxed)
    }

    pub(super) fn set_place(&self, place: u32) {
        self.place.store(place, Ordering::Relaxed);
    }

    /// The result, taken once; until then sees to it that `waker` is woken when it is there.
    pub(super) fn poll(&self, waker: &Waker) -> Option<WatchResult> {
        {
            let mut cell = lock(&self.cell);
            match &mut *cell {
                Cell::Waiting(own) if own.will_wake(waker) => return None,
                Cell::Waiting(_) => {}
                Cell::Ended(_) => return mem::take(&mut *cell).result(),
                Cell::Gone => return None,
            }
        }
        // Cloning runs a user's code, in which the watch may end.
        let newer = waker.clone();
        let mut cell = lock(&self.cell);
        let replaced = match &*cell {
            Cell::Waiting(_) => mem::replace(&mut *cell, Cell::Waiting(newer)),
            _ => mem::take(&mut *cell),
        };
        drop(cell);
        replaced.result()
    }

    /// Ends the watch. Gives back the waker to be woken; none where the future is gone or the watch
    /// has ended already, and then `ended` comes to nothing.
    /// It is counted before anybody can see it.
    pub(super) fn finish(&self, ended: Ended, counters: &Counters) -> Option<Waker> {
        let mut cell = lock(&self.cell);
        if !matches!(*cell, Cell::Waiting(_)) {
            return None;
        }
        ended.count(counters);
        match mem::replace(&mut *cell, Cell::Ended(ended)) {
            Cell::Waiting(waker) => Some(waker),
            Cell::Ended(_) | Cell::Gone => None,
        }
    }

    /// The future is dropped. `true` where the watch had not ended.
    pub(super) fn abandon(&self) -> bool {
        let old = mem::take(&mut *lock(&self.cell));
        matches!(old, Cell::Waiting(_))
    }
}

impl Entry<Status> {
    /// Asks the status. A panic of it is an error of it.
    pub(super) fn ask(&self) -> Result<bool> {
        // A status that panicked is not called again, and a poisoned lock says so once more.
        let asked = contain(|| match self.status.lock() {
            Ok(mut status) => status(),
            Err(_) => Err(panicked()),
        });
        asked.unwrap_or_else(|| Err(panicked()))
    }
}

impl Ended {
    fn count(&self, counters: &Counters) {
        match self {
            Ended::Done { reached, .. } => {
                count(&counters.completed);
                if !reached {
                    count(&counters.backstop_completions);
                }
            }
            Ended::TimedOut { .. } => count(&counters.timed_out),
            Ended::Failed(_) | Ended::Unwatched(_) => count(&counters.errors),
        }
    }

    fn result(self) -> WatchResult {
        match self {
            Ended::Done { reached: true, elapsed, queries } => {
                let outcome = Some(Outcome::Exact { residual_ns: elapsed.0 });
                Ok(Waited { outcome, ..waited(End::Parked, elapsed, queries) })
            }
            Ended::Done { reached: false, elapsed, queries } => {
                Ok(waited(End::Backstop, elapsed, queries))
            }
            Ended::TimedOut { elapsed, queries } => {
                Err(WatchError::TimedOut(waited(End::TimedOut, elapsed, queries)))
            }
            Ended::Failed(error) => Err(WatchError::Status(error)),
            Ended::Unwatched(error) => Err(WatchError::Watcher(error)),
        }
    }
}

fn waited(end: End, elapsed: DurNs, queries: u32) -> Waited {
    let queries = u64::from(queries);
    Waited { end, outcome: None, elapsed, slept: DurNs::ZERO, queries, parks: 0 }
}

#[cold]
fn panicked() -> Error {
    Error::new(ErrorCode::Backend, ["status", "panicked"])
}

impl Cell {
    fn result(self) -> Option<WatchResult> {
        match self {
            Cell::Ended(ended) => Some(ended.result()),
            Cell::Waiting(_) | Cell::Gone => None,
        }
    }
}
