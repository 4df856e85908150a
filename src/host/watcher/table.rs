//! What is registered: the lines that are scanned, when each watch is due, and whose status is to be
//! asked.
//!
//! ```text
//!            word reached, or backstop             next_to_ask           answered: done, failed
//!  watched -------------------------> queued ------------------> in call -----------------> freed
//!     ^                                                             |
//!     '------------------------- answered: pending ----------------'
//! ```
//!
//! The thread on duty has the tables, under one lock, while it looks; no code of a user runs under
//! it. What is to be dropped or woken is put aside and handed out one by one.
//!
//! The agenda is a heap in which a watch has one valid place, by its ticket and its time; what is
//! left of ended watches is passed over when its time comes, and cleared out once it is more than
//! half. So a watch that ends before its first backstop costs a push that goes no way up.

use super::counters::{Counters, tally};
use super::entry::{Ended, Entry, Status, Terms};
use super::scan::{Answer, Letter};
use crate::core::error::{Error, ErrorCode};
use crate::core::line::OwnedDescriptor;
use crate::core::reactor::heap::NOWHERE;
use crate::core::reactor::lines::{LineRef, LineTable};
use crate::core::reactor::waiters::{Registration, Waiters};
use crate::core::time::{DurNs, MonoNs};
use crate::host::StdIdle;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::sync::atomic::AtomicU64;
use core::task::Waker;

/// How long a status is left alone at least that was pending although its word was reached.
const RECHECK_MIN: DurNs = DurNs::from_us(1);

/// The place of a watch whose future was dropped before its registration was taken up.
const LEFT: u32 = NOWHERE - 1;

pub(super) struct Tables {
    pub(super) idle: StdIdle,
    pub(super) lines: LineTable<'static>,
    waiters: Waiters<Watching>,
    live: usize,
    /// (time, ticket, place).
    agenda: BinaryHeap<Reverse<(MonoNs, u64, u32)>>,
    /// Whose word was reached, or whose deadline has passed: asked first.
    reached: VecDeque<Registration>,
    backstops: VecDeque<Registration>,
    /// Whom to wake and what to drop, with the tables given back.
    pub(super) partings: VecDeque<Parting>,
    /// Lines without a watch, to be dropped likewise.
    pub(super) gone: Vec<LineRef<'static>>,
    /// An emptied buffer.
    pub(super) letters: Vec<Letter>,
}

struct Watching {
    entry: Arc<Entry<Status>>,
    descriptor: OwnedDescriptor,
    terms: Terms,
    /// When the agenda has it next.
    event: MonoNs,
    /// When the word was seen to be reached; it is on its line no longer then.
    reached_at: Option<MonoNs>,
    queries: u32,
    asking: Asking,
    /// The deadline has passed, and the status is asked once more.
    last: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asking {
    No,
    Queued,
    InCall,
}

/// One call of a status, with what its answer needs.
pub(super) struct Ask {
    pub(super) registration: Registration,
    pub(super) entry: Arc<Entry<Status>>,
    pub(super) began: MonoNs,
    pub(super) reached_at: Option<MonoNs>,
    /// The word, where it has not been seen to be reached.
    pub(super) word: Option<OwnedDescriptor>,
    pub(super) last: bool,
    pub(super) queries: u32,
}

/// A watch that has ended: dropped first, so that the future's own reference is the last one and
/// its thread frees it, and then woken.
#[derive(Default)]
pub(super) struct Parting {
    pub(super) entry: Option<Arc<Entry<Status>>>,
    pub(super) descriptor: Option<OwnedDescriptor>,
    pub(super) waker: Option<Waker>,
}

impl Tables {
    pub(super) fn new(idle: StdIdle) -> Self {
        Tables {
            idle,
            lines: LineTable::default(),
            waiters: Waiters::default(),
            live: 0,
            agenda: BinaryHeap::new(),
            reached: VecDeque::new(),
            backstops: VecDeque::new(),
            partings: VecDeque::new(),
            gone: Vec::new(),
            letters: Vec::new(),
        }
    }

    /// How many watches are registered.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// When the next backstop or deadline may be due.
    pub(super) fn next_event(&self) -> MonoNs {
        self.agenda.peek().map_or(MonoNs::MAX, |Reverse((at, ..))| *at)
    }

    /// Whether somebody is to be asked.
    pub(super) fn has_questions(&self) -> bool {
        !self.reached.is_empty() || !self.backstops.is_empty()
    }

    /// Takes a watch up.
    pub(super) fn enter(
        &mut self,
        entry: Arc<Entry<Status>>,
        descriptor: OwnedDescriptor,
        mut terms: Terms,
        now: MonoNs,
    ) {
        if entry.place() == LEFT {
            self.partings.push_back(Parting {
                entry: Some(entry),
                descriptor: Some(descriptor),
                waker: None,
            });
            return;
        }
        if terms.began == MonoNs(0) {
            terms.began = now;
        }
        let event = terms.next_event(terms.began);
        let target = descriptor.target;
        // A word that is there already needs no place on its line.
        let reached = descriptor.is_complete();
        let slot = if reached { None } else { Some(self.lines.enter_owned(&descriptor)) };
        let watching = Watching {
            entry,
            descriptor,
            terms,
            event,
            reached_at: reached.then_some(now),
            queries: 0,
            asking: if reached { Asking::Queued } else { Asking::No },
            last: false,
        };
        let registration = self.waiters.insert(slot, target, watching);
        match slot {
            Some(slot) => self.lines.queue(slot, registration.place, target, &mut self.waiters),
            None => self.reached.push_back(registration),
        }
        self.agenda.push(Reverse((event, registration.ticket, registration.place)));
        self.live += 1;
        if let Some(watching) = &self.waiters.at(registration.place).owner {
            watching.entry.set_place(registration.place);
        }
        if self.agenda.len() > 2 * self.live + 64 {
            self.clear_agenda();
        }
    }

    fn clear_agenda(&mut self) {
        let waiters = &self.waiters;
        self.agenda.retain(|&Reverse((at, ticket, place))| {
            let watching = waiters.get(Registration { place, ticket });
            watching.and_then(|waiter| waiter.owner.as_ref()).is_some_and(|own| own.event == at)
        });
    }

    /// The future of `entry` was dropped.
    pub(super) fn leave(&mut self, entry: Arc<Entry<Status>>) {
        match entry.place() {
            // Another thread dropped it than the one that registered it, whose letter comes later.
            NOWHERE => entry.set_place(LEFT),
            place => {
                let owner = self.waiters.at(place).owner.as_ref();
                if owner.is_some_and(|own| Arc::ptr_eq(&own.entry, &entry)) {
                    let parting = self.free(place, None);
                    self.partings.push_back(parting);
                }
            }
        }
        self.partings.push_back(Parting { entry: Some(entry), ..Parting::default() });
    }

    /// Takes the watch at `place` out, to wake `waker` once it is dropped.
    fn free(&mut self, place: u32, waker: Option<Waker>) -> Parting {
        let waiter = self.waiters.at(place);
        let on_line = waiter.owner.as_ref().is_some_and(|own| own.reached_at.is_none());
        if let (true, Some(slot)) = (on_line, waiter.slot) {
            let gone = self.lines.dequeue(slot, place, &mut self.waiters);
            if !matches!(gone, LineRef::Vacant) {
                self.gone.push(gone);
            }
        }
        self.live -= 1;
        let owner = self.waiters.free(place);
        let Watching { entry, descriptor, .. } = owner.expect("what is registered has an owner");
        Parting { entry: Some(entry), descriptor: Some(descriptor), waker }
    }

    /// Looks at every word. Those reached, seen at `now`, are queued to be asked.
    pub(super) fn scan(&mut self, now: MonoNs) {
        let Tables { lines, waiters, gone, reached, .. } = self;
        lines.scan(waiters, gone, |waiters, place| {
            let registration = waiters.registration(place);
            let Some(watching) = &mut waiters.at(place).owner else { return };
            watching.reached_at = Some(now);
            // One that a backstop has queued goes ahead now; its other place is passed over.
            if watching.asking != Asking::InCall {
                watching.asking = Asking::Queued;
                reached.push_back(registration);
            }
        });
    }

    /// Queues what is due by `now`. Where no status can be asked, for `stuck` calls that do not
    /// return, what has waited for a backstop in vain ends with an error.
    pub(super) fn attend(
        &mut self,
        now: MonoNs,
        patience: DurNs,
        stuck: Option<usize>,
        counters: &Counters,
    ) {
        while let Some(&Reverse((at, ticket, place))) = self.agenda.peek() {
            if at > now {
                break;
            }
            self.agenda.pop();
            let registration = Registration { place, ticket };
            if self.waiters.get(registration).is_none() {
                continue;
            }
            let Some(watching) = &mut self.waiters.at(place).owner else { continue };
            if watching.event != at {
                continue;
            }
            let terms = watching.terms;
            let asking = watching.asking;
            if now >= terms.deadline {
                if watching.last || asking == Asking::InCall {
                    let (elapsed, queries) = (now.since(terms.began), watching.queries);
                    self.end(place, Ended::TimedOut { elapsed, queries }, &counters.timed_out);
                    continue;
                }
                watching.last = true;
                watching.event = now.after(patience);
            } else if let (Asking::Queued, Some(stuck)) = (asking, stuck) {
                let error = Error::new(ErrorCode::StatusStuck, [stuck.to_string()]);
                self.end(place, Ended::Unwatched(error), &counters.errors);
                continue;
            } else {
                watching.event = terms.next_event(now);
            }
            self.agenda.push(Reverse((watching.event, ticket, place)));
            if asking == Asking::No {
                watching.asking = Asking::Queued;
                match watching.reached_at.is_some() || watching.last {
                    true => self.reached.push_back(registration),
                    false => self.backstops.push_back(registration),
                }
            }
        }
    }

    /// Ends the watch at `place` without asking.
    fn end(&mut self, place: u32, ended: Ended, counter: &AtomicU64) {
        let mut parting = self.free(place, None);
        parting.waker = parting.entry.as_ref().and_then(|entry| entry.finish(ended));
        if parting.waker.is_some() {
            tally(counter, 1);
        }
        self.partings.push_back(parting);
    }

    /// Ends every watch.
    pub(super) fn end_all(&mut self, error: impl Fn() -> Error, counters: &Counters) {
        // Whatever is registered stands on the agenda.
        for Reverse((_, ticket, place)) in core::mem::take(&mut self.agenda) {
            if self.waiters.get(Registration { place, ticket }).is_some() {
                self.end(place, Ended::Unwatched(error()), &counters.errors);
            }
        }
        self.reached.clear();
        self.backstops.clear();
    }

    /// The next status to ask.
    pub(super) fn next_to_ask(&mut self) -> Option<Ask> {
        loop {
            let next = self.reached.pop_front().or_else(|| self.backstops.pop_front());
            let registration = next?;
            if self.waiters.get(registration).is_none() {
                continue;
            }
            let Some(watching) = &mut self.waiters.at(registration.place).owner else { continue };
            if watching.asking != Asking::Queued {
                continue;
            }
            watching.asking = Asking::InCall;
            watching.queries = watching.queries.saturating_add(1);
            return Some(Ask {
                registration,
                entry: watching.entry.clone(),
                began: watching.terms.began,
                reached_at: watching.reached_at,
                word: watching.reached_at.is_none().then(|| watching.descriptor.clone()),
                last: watching.last,
                queries: watching.queries,
            });
        }
    }

    /// Takes up an answer. Gives back what has ended.
    pub(super) fn answered(
        &mut self,
        registration: Registration,
        answer: Answer,
        counters: &Counters,
        now: impl FnOnce() -> MonoNs,
    ) -> Option<Parting> {
        let registered = self.waiters.get(registration).is_some();
        tally(&counters.queries, 1);
        match answer {
            Answer::Ended(waker, how) => {
                if let Some(how) = how {
                    how.count(counters);
                }
                match registered {
                    true => Some(self.free(registration.place, waker)),
                    false => Some(Parting { waker, ..Parting::default() }),
                }
            }
            Answer::Pending if registered => {
                self.ask_again(registration, now());
                None
            }
            Answer::Pending => None,
        }
    }

    fn ask_again(&mut self, registration: Registration, now: MonoNs) {
        let Registration { place, ticket } = registration;
        let Some(watching) = &mut self.waiters.at(place).owner else { return };
        watching.asking = Asking::No;
        // The word came before the status: it is asked again soon, and less and less often.
        if let Some(reached_at) = watching.reached_at {
            let wait = DurNs(now.since(reached_at).0 / 8).max(RECHECK_MIN);
            let again = now.after(wait.min(watching.terms.backstop));
            if again < watching.event {
                watching.event = again;
                self.agenda.push(Reverse((again, ticket, place)));
            }
        }
    }
}
