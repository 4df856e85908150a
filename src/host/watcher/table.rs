//! What is registered: the lines that are scanned, when each watch is due, and whose status is to
//! be asked.
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
//!
//! A backstop is a slot's: it queues the watch of the least target for all of them, unless that was
//! done less than a backstop ago, and what ended by one queues the next.

use super::ages::Ages;
use super::counters::Counters;
use super::devices::Devices;
use super::entry::{Ended, Entry, Status, Terms};
use super::scan::{Answer, Letter};
use crate::contain::contain;
use crate::core::error::{Error, ErrorCode};
use crate::core::line::OwnedDescriptor;
use crate::core::reactor::heap::NOWHERE;
use crate::core::reactor::lines::{LineRef, LineTable, SlotRef};
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
    /// By the index of the slot: when a backstop of it was queued last.
    queried_at: Vec<MonoNs>,
    devices: Devices,
    ages: Ages,
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
    pub(super) device: usize,
    pub(super) began: MonoNs,
    pub(super) reached_at: Option<MonoNs>,
    /// The word, if it has not been seen to be reached.
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

impl Watching {
    /// Whether it is asked before the backstops: its word was reached, or its deadline has passed.
    fn goes_first(&self) -> bool {
        self.reached_at.is_some() || self.last
    }
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
            queried_at: Vec::new(),
            devices: Devices::default(),
            ages: Ages::default(),
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

    /// When the oldest watch began; `MAX` if there is none.
    pub(super) fn oldest(&mut self) -> MonoNs {
        let Tables { ages, waiters, .. } = self;
        ages.oldest(|registration| waiters.get(registration).is_some())
    }

    /// A call of a status of `device` was given up at `now`: no other one is made before it
    /// returns.
    pub(super) fn hangs(&mut self, device: usize, now: MonoNs) {
        self.devices.hangs(device, now);
    }

    /// It has returned.
    pub(super) fn returned(&mut self, device: usize) {
        let Tables { devices, waiters, reached, backstops, .. } = self;
        for registration in devices.returned(device) {
            if waiters.get(registration).is_none() {
                continue;
            }
            let Some(watching) = &waiters.at(registration.place).owner else { continue };
            match watching.goes_first() {
                true => reached.push_back(registration),
                false => backstops.push_back(registration),
            }
        }
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
        counters: &Counters,
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
        // A word that is there already needs no place on its line. The line's `as_ref` is the
        // program's.
        let lines = &mut self.lines;
        let entered =
            contain(|| (!descriptor.is_complete()).then(|| lines.enter_owned(&descriptor)));
        let Some(slot) = entered else {
            let error = Error::new(ErrorCode::Backend, ["line", "panicked"]);
            let waker = entry.finish(Ended::Failed(error), counters);
            let (entry, descriptor) = (Some(entry), Some(descriptor));
            self.partings.push_back(Parting { entry, descriptor, waker });
            return;
        };
        let reached = slot.is_none();
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
        let Tables { ages, waiters, live, .. } = self;
        *live += 1;
        let is_live = |registration| waiters.get(registration).is_some();
        ages.enter(registration, terms.began, *live, is_live);
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

    /// Queues what is due by `now`. If no status could be asked for long, for `stuck` calls that do
    /// not return, what has waited for a backstop in vain ends with an error; so does a watch of a
    /// device that hangs for long.
    pub(super) fn attend(
        &mut self,
        now: MonoNs,
        patience: DurNs,
        stuck: Option<usize>,
        counters: &Counters,
    ) {
        let blocked = stuck.is_some();
        let all_given_up = self.devices.is_all_given_up(blocked, now);
        while let Some(&Reverse((at, ticket, place))) = self.agenda.peek() {
            if at > now {
                break;
            }
            self.agenda.pop();
            let registration = Registration { place, ticket };
            if self.waiters.get(registration).is_none() {
                continue;
            }
            let waiter = self.waiters.at(place);
            let slot = waiter.slot;
            let Some(watching) = &mut waiter.owner else { continue };
            if watching.event != at {
                continue;
            }
            let terms = watching.terms;
            let asking = watching.asking;
            let hangs = self.devices.is_hanging(terms.device);
            let given_up = all_given_up || self.devices.is_given_up(terms.device, now);
            if now >= terms.deadline {
                if watching.last || hangs || asking == Asking::InCall {
                    let (elapsed, queries) = (now.since(terms.began), watching.queries);
                    self.end(place, Ended::TimedOut { elapsed, queries }, counters);
                    continue;
                }
                watching.last = true;
                watching.event = now.after(patience);
            } else if asking == Asking::Queued && given_up {
                let stuck = stuck.unwrap_or(1);
                let error = Error::new(ErrorCode::StatusStuck, [stuck.to_string()]);
                self.end(place, Ended::Unwatched(error), counters);
                continue;
            } else {
                watching.event = terms.next_event(now);
            }
            if asking == Asking::No {
                match slot {
                    // What cannot be asked is queued by itself, so that it ends by itself.
                    Some(slot) if !watching.goes_first() && !hangs && !blocked => {
                        let since = self.queried_at.get(slot.index()).copied().unwrap_or(MonoNs(0));
                        let again = terms.next_event(since);
                        if again > now {
                            watching.event = again;
                        } else {
                            self.query_slot(slot, now);
                        }
                    }
                    _ => {
                        watching.asking = Asking::Queued;
                        match watching.goes_first() {
                            true => self.reached.push_back(registration),
                            false => self.backstops.push_back(registration),
                        }
                    }
                }
            }
            if let Some(watching) = &self.waiters.at(place).owner {
                self.agenda.push(Reverse((watching.event, ticket, place)));
            }
        }
    }

    /// Queues the watch of the least target of `slot`, for a backstop of it at `now`.
    fn query_slot(&mut self, slot: SlotRef, now: MonoNs) {
        let Some(place) = self.lines.first(slot) else { return };
        let index = slot.index();
        if self.queried_at.len() <= index {
            self.queried_at.resize(index + 1, MonoNs(0));
        }
        self.queried_at[index] = now;
        let registration = self.waiters.registration(place);
        let Some(watching) = &mut self.waiters.at(place).owner else { return };
        if watching.asking == Asking::No {
            watching.asking = Asking::Queued;
            self.backstops.push_back(registration);
        }
    }

    /// Ends the watch at `place` without asking.
    fn end(&mut self, place: u32, ended: Ended, counters: &Counters) {
        let mut parting = self.free(place, None);
        parting.waker = parting.entry.as_ref().and_then(|entry| entry.finish(ended, counters));
        self.partings.push_back(parting);
    }

    /// Ends every watch.
    pub(super) fn end_all(&mut self, error: impl Fn() -> Error, counters: &Counters) {
        // Whatever is registered stands on the agenda.
        for Reverse((_, ticket, place)) in core::mem::take(&mut self.agenda) {
            if self.waiters.get(Registration { place, ticket }).is_some() {
                self.end(place, Ended::Unwatched(error()), counters);
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
            if self.devices.is_hanging(watching.terms.device) {
                let Tables { devices, waiters, live, .. } = self;
                devices.hold(registration, *live, |held| waiters.get(held).is_some());
                continue;
            }
            watching.asking = Asking::InCall;
            watching.queries = watching.queries.saturating_add(1);
            return Some(Ask {
                registration,
                entry: watching.entry.clone(),
                device: watching.terms.device,
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
        now: impl FnOnce() -> MonoNs,
    ) -> Option<Parting> {
        let registered = self.waiters.get(registration).is_some();
        match answer {
            Answer::Ended { waker, next } if registered => {
                let slot = self.waiters.at(registration.place).slot;
                let parting = self.free(registration.place, waker);
                if let (true, Some(slot)) = (next, slot) {
                    self.query_slot(slot, now());
                }
                Some(parting)
            }
            Answer::Ended { waker, .. } => Some(Parting { waker, ..Parting::default() }),
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
