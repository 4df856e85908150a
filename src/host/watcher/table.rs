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

use super::entry::{Entry, Status};
use super::scan::{Answer, Letter};
use super::{WatchError, counters};
use crate::core::error::{Error, ErrorCode};
use crate::core::reactor::lines::{LineRef, LineTable};
use crate::core::reactor::waiters::{Registration, Waiters};
use crate::core::time::{DurNs, MonoNs};
use crate::host::StdIdle;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::task::Waker;

/// How long a status is left alone at least that was pending although its word was reached.
const RECHECK_MIN: DurNs = DurNs::from_us(1);

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
    /// When the agenda has it next.
    event: MonoNs,
    asking: Asking,
    /// When the word was seen to be reached; it is on its line no longer then.
    reached_at: Option<MonoNs>,
    /// The deadline has passed, and the status is asked once more.
    last: bool,
    queries: u64,
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
    pub(super) reached_at: Option<MonoNs>,
    pub(super) last: bool,
    pub(super) queries: u64,
}

/// A watch that has ended: dropped first, so that the future's own reference is the last one and
/// its thread frees it, and then woken.
#[derive(Default)]
pub(super) struct Parting {
    pub(super) entry: Option<Arc<Entry<Status>>>,
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

    pub(super) fn enter(&mut self, entry: Arc<Entry<Status>>) {
        if entry.is_gone() {
            self.partings.push_back(Parting { entry: Some(entry), waker: None });
            return;
        }
        let slot = self.lines.enter_owned(&entry.descriptor);
        let target = entry.descriptor.target;
        let event = entry.terms.next_event(entry.terms.began);
        let watching = Watching {
            entry,
            event,
            asking: Asking::No,
            reached_at: None,
            last: false,
            queries: 0,
        };
        let registration = self.waiters.insert(Some(slot), target, watching);
        self.lines.queue(slot, registration.place, target, &mut self.waiters);
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

    /// The future of `entry` was dropped. `true` where the watch was registered.
    pub(super) fn leave(&mut self, entry: Arc<Entry<Status>>) -> bool {
        let place = entry.place();
        let registered = match place {
            crate::core::reactor::heap::NOWHERE => false,
            _ => {
                let owner = self.waiters.at(place).owner.as_ref();
                owner.is_some_and(|own| Arc::ptr_eq(&own.entry, &entry))
            }
        };
        if registered {
            let freed = self.free(place);
            self.partings.push_back(Parting { entry: Some(freed), waker: None });
        }
        self.partings.push_back(Parting { entry: Some(entry), waker: None });
        registered
    }

    /// Takes the watch at `place` out.
    fn free(&mut self, place: u32) -> Arc<Entry<Status>> {
        let waiter = self.waiters.at(place);
        let on_line = waiter.owner.as_ref().is_some_and(|own| own.reached_at.is_none());
        if let (true, Some(slot)) = (on_line, waiter.slot) {
            let gone = self.lines.dequeue(slot, place, &mut self.waiters);
            if !matches!(gone, LineRef::Vacant) {
                self.gone.push(gone);
            }
        }
        self.live -= 1;
        self.waiters.free(place).expect("an entry that is registered has its owner").entry
    }

    /// Looks at every word. Those reached are queued to be asked.
    pub(super) fn scan(&mut self, now: impl FnOnce() -> MonoNs) {
        if !self.lines.any_reached() {
            return;
        }
        let now = now();
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
        counters: &counters::Counters,
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
            let terms = watching.entry.terms;
            let asking = watching.asking;
            if now >= terms.deadline {
                if watching.last || asking == Asking::InCall {
                    let result = watching.entry.timed_out(now, watching.queries);
                    self.end(place, result, &counters.timed_out);
                    continue;
                }
                watching.last = true;
                watching.event = now.after(patience);
            } else if let (Asking::Queued, Some(stuck)) = (asking, stuck) {
                let error = Error::new(ErrorCode::StatusStuck, [stuck.to_string()]);
                self.end(place, Err(WatchError::Watcher(error)), &counters.errors);
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
    fn end(
        &mut self,
        place: u32,
        result: super::WatchResult,
        counter: &core::sync::atomic::AtomicU64,
    ) {
        let entry = self.free(place);
        let waker = entry.finish(result);
        if waker.is_some() {
            counters::count(counter);
        }
        self.partings.push_back(Parting { entry: Some(entry), waker });
    }

    /// Ends every watch.
    pub(super) fn end_all(
        &mut self,
        result: impl Fn() -> WatchError,
        counters: &counters::Counters,
    ) {
        // What is registered stands on the agenda, if only once of all the times it is there.
        for Reverse((_, ticket, place)) in core::mem::take(&mut self.agenda) {
            if self.waiters.get(Registration { place, ticket }).is_some() {
                self.end(place, Err(result()), &counters.errors);
            }
        }
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
            watching.queries += 1;
            return Some(Ask {
                registration,
                entry: watching.entry.clone(),
                reached_at: watching.reached_at,
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
        now: impl FnOnce() -> MonoNs,
    ) -> Option<Parting> {
        let registered = self.waiters.get(registration).is_some();
        match answer {
            Answer::Ended(waker) => {
                let entry = registered.then(|| self.free(registration.place));
                Some(Parting { entry, waker })
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
            let again = now.after(wait.min(watching.entry.terms.backstop));
            if again < watching.event {
                watching.event = again;
                self.agenda.push(Reverse((again, ticket, place)));
            }
        }
    }
}
