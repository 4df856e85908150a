//! The thread on duty: take letters in, look at words and times, ask what is due, idle.

use super::counters::{Counters, count};
use super::crew::Crew;
use super::duty::Duty;
use super::entry::{Ended, Entry, Status, Terms};
use super::future::closed;
use super::inbox::{Inbox, shard_of_thread};
use super::policy::WatchPolicy;
use super::sync::{Mutex, MutexGuard, lock};
use super::table::{Ask, Parting, Tables};
use crate::core::idle::Idle;
use crate::core::line::{CompletionLine, OwnedDescriptor};
use crate::core::reactor::waiters::Registration;
use crate::core::time::{DurNs, MonoNs};
use crate::host::StdIdle;
use crate::monotonic;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use core::task::Waker;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How long at least the words are left alone for what is to be asked and woken. Twice as long as a
/// look at all words takes, where that is more.
const ATTENTION: DurNs = DurNs::from_us(20);
/// After how many calls the clock is read for that.
const CALLS: u32 = 16;

/// What other threads tell the thread on duty.
pub(super) enum Letter {
    /// A watch begins.
    Enter(Arc<Entry<Status>>, OwnedDescriptor, Terms),
    /// Its future was dropped.
    Leave(Arc<Entry<Status>>),
    /// A call that was given up has returned.
    Answered(Registration, Answer),
}

/// What came of a call of a status.
pub(super) enum Answer {
    Pending,
    /// The watch has ended; whom to wake, unless that was done.
    Ended(Option<Waker>),
}

/// Why a thread is on duty no longer.
pub(super) enum Relieved {
    /// Another one has taken over. `spare`: this one stands by for it; otherwise it is one too many.
    TakenOver { spare: bool },
    /// Everything has ended.
    Closed,
}

/// What a watcher's threads and futures share.
pub(super) struct Shared {
    pub(super) policy: WatchPolicy,
    pub(super) inbox: Inbox<Letter>,
    pub(super) duty: Duty,
    pub(super) tables: Mutex<Tables>,
    pub(super) crew: Crew,
    pub(super) counters: Counters,
    /// Wakes the thread on duty, whichever that is: they share one idle.
    pub(super) unparker: Waker,
}

type Guard<'a> = MutexGuard<'a, Tables>;

impl Shared {
    pub(super) fn new(policy: WatchPolicy, idle: StdIdle, unparker: Waker) -> Self {
        Shared {
            policy,
            inbox: Inbox::new(),
            duty: Duty::default(),
            tables: Mutex::new(Tables::new(idle)),
            crew: Crew::new(),
            counters: Counters::default(),
            unparker,
        }
    }

    /// Sends `letter`, and wakes the thread on duty if it sleeps beyond `event()`.
    pub(super) fn send(
        &self,
        letter: Letter,
        event: impl FnOnce() -> MonoNs,
    ) -> Result<(), Letter> {
        if self.inbox.push(shard_of_thread(), letter, event)? {
            count(&self.counters.wakes);
            self.unparker.wake_by_ref();
        }
        Ok(())
    }

    /// Is on duty until relieved.
    pub(super) fn be_on_duty(&self) -> Relieved {
        let mut tables = lock(&self.tables);
        loop {
            let began = monotonic::now();
            self.take_letters(&mut tables, began);
            if self.inbox.is_closed() {
                return self.end_all(tables);
            }
            tables.scan(began);
            let stuck = (!self.crew.has_spare()).then(|| self.crew.stuck());
            tables.attend(began, self.policy.patience, stuck, &self.counters);
            let asks = stuck.is_none() && tables.has_questions();
            if asks || !tables.partings.is_empty() || !tables.gone.is_empty() {
                let until = began.after(self.attention(began));
                match self.call(tables, until) {
                    Ok(back) => tables = back,
                    Err(relieved) => return relieved,
                }
            } else {
                self.idle(&mut tables);
            }
        }
    }

    /// How long to ask and wake before the next look, given when the last one began.
    fn attention(&self, began: MonoNs) -> DurNs {
        DurNs(2 * monotonic::now().since(began).0).max(ATTENTION)
    }

    fn take_letters(&self, tables: &mut Tables, now: MonoNs) {
        let mut letters = core::mem::take(&mut tables.letters);
        self.inbox.drain(&mut letters);
        let mut entered = 0;
        for letter in letters.drain(..) {
            match letter {
                Letter::Enter(entry, descriptor, terms) => {
                    entered += 1;
                    tables.enter(entry, descriptor, terms, now);
                }
                Letter::Leave(entry) => {
                    tables.leave(entry);
                    count(&self.counters.dropped);
                }
                Letter::Answered(registration, answer) => {
                    let ended = tables.answered(registration, answer, monotonic::now);
                    tables.partings.extend(ended);
                }
            }
        }
        if entered > 0 {
            self.counters.registered.fetch_add(entered, Ordering::Relaxed);
        }
        tables.letters = letters;
    }

    /// Asks, wakes and drops until `until`, or until there is nothing left to. Gives the tables back
    /// unless the thread was taken over in one of these calls.
    fn call<'a>(&'a self, mut tables: Guard<'a>, until: MonoNs) -> Result<Guard<'a>, Relieved> {
        let mut parting: Option<Parting> = None;
        let mut calls = 0;
        loop {
            // Somebody else must be there to go on if this one hangs.
            let ask = if self.crew.has_spare() { tables.next_to_ask() } else { None };
            let parts = parting.take().or_else(|| tables.partings.pop_front());
            if ask.is_none() && parts.is_none() && tables.gone.is_empty() {
                return Ok(tables);
            }
            let mut gone = core::mem::take(&mut tables.gone);
            let call = self.duty.begin_call();
            drop(tables);
            self.part(parts);
            self.contain(|| gone.clear());
            let answered = ask.map(|ask| self.ask(ask));
            if !self.duty.end_call(call) {
                return Err(self.come_back_late(answered));
            }
            tables = lock(&self.tables);
            tables.gone.append(&mut gone);
            if let Some((registration, answer)) = answered {
                parting = tables.answered(registration, answer, monotonic::now);
            }
            calls += 1;
            if calls % CALLS == 0 && monotonic::now() >= until {
                tables.partings.extend(parting);
                return Ok(tables);
            }
        }
    }

    /// Wakes and drops what has ended.
    fn part(&self, parting: Option<Parting>) {
        if let Some(Parting { entry, descriptor, waker }) = parting {
            self.contain(|| {
                drop((descriptor, entry));
                if let Some(waker) = waker {
                    waker.wake();
                }
            });
        }
    }

    /// Runs a user's waker or destructor. Its panic ends there.
    fn contain(&self, code: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(code)).is_err() {
            count(&self.counters.panics);
        }
    }

    fn ask(&self, ask: Ask) -> (Registration, Answer) {
        let Ask { registration, entry, began, reached_at, word, last, queries } = ask;
        let counters = &self.counters;
        count(&counters.queries);
        let ended = match entry.ask() {
            Ok(true) => {
                // A backstop's query may be a little faster than the look at the word.
                let reached =
                    reached_at.is_some() || word.as_ref().is_some_and(OwnedDescriptor::is_complete);
                let at = reached_at.unwrap_or_else(monotonic::now);
                Some(Ended::Done { reached, elapsed: at.since(began), queries })
            }
            Err(error) => Some(Ended::Failed(error)),
            Ok(false) if last => {
                Some(Ended::TimedOut { elapsed: monotonic::now().since(began), queries })
            }
            Ok(false) => None,
        };
        let answer = match ended {
            Some(ended) => Answer::Ended(entry.finish(ended, counters)),
            None => Answer::Pending,
        };
        self.contain(|| drop((word, entry)));
        (registration, answer)
    }

    /// The call returned after another thread had taken over, which is told.
    #[cold]
    fn come_back_late(&self, answered: Option<(Registration, Answer)>) -> Relieved {
        count(&self.counters.returned);
        let answered = answered.map(|(registration, answer)| match answer {
            Answer::Ended(waker) => {
                self.part(Some(Parting { waker, ..Parting::default() }));
                (registration, Answer::Ended(None))
            }
            Answer::Pending => (registration, Answer::Pending),
        });
        let spare = self.crew.come_back();
        if let Some((registration, answer)) = answered {
            // A closed watcher has forgotten the watch.
            drop(self.send(Letter::Answered(registration, answer), || MonoNs(0)));
        }
        if spare {
            // With a spare there again, what could not be asked can be.
            self.unparker.wake_by_ref();
        }
        Relieved::TakenOver { spare }
    }

    /// Idles once: with nothing registered until a registration comes.
    fn idle(&self, tables: &mut Tables) {
        let nothing = CompletionLine::default();
        let inbox = &self.inbox;
        let (live, event) = (tables.live(), tables.next_event());
        let Tables { idle, lines, .. } = &mut *tables;
        if live == 0 {
            let linger = self.policy.linger;
            if linger > DurNs::ZERO && idle.park_line(&nothing, |_| inbox.is_stirred(), linger) {
                return;
            }
            if inbox.begin_sleep(MonoNs::MAX) {
                self.crew.rest();
                idle.sleep_until(MonoNs::MAX);
                self.crew.stir();
                inbox.end_sleep();
            }
            return;
        }
        let declared = !self.policy.never_sleeps();
        if declared && !inbox.begin_sleep(event) {
            return;
        }
        let bound = event.since(monotonic::now());
        idle.park_line(&nothing, |_| inbox.is_stirred() || lines.any_reached(), bound);
        if declared {
            inbox.end_sleep();
        }
    }

    /// The watcher was dropped: what is left ends with an error.
    fn end_all(&self, mut tables: Guard<'_>) -> Relieved {
        self.take_letters(&mut tables, monotonic::now());
        tables.end_all(closed, &self.counters);
        match self.call(tables, MonoNs::MAX) {
            Ok(_) => Relieved::Closed,
            Err(relieved) => relieved,
        }
    }
}
