//! The thread on duty: take letters in, look at words and times, ask what is due, idle.

use super::counters::{Counters, count};
use super::crew::{self, Crew, StartThread};
use super::duty::{Duty, NO_DEVICE};
use super::entry::{Ended, Entry, Status, Terms};
use super::future::closed;
use super::inbox::{Inbox, shard_of_thread};
use super::policy::WatchPolicy;
use super::sync::{Mutex, MutexGuard, lock};
use super::table::{Ask, Parting, Tables};
use crate::contain::contain;
use crate::core::idle::Idle;
use crate::core::line::{CompletionLine, OwnedDescriptor};
use crate::core::reactor::lines::LineRef;
use crate::core::reactor::waiters::Registration;
use crate::core::time::{DurNs, MonoNs};
use crate::host::StdIdle;
use crate::host::idling::Check;
use crate::monotonic;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::Waker;

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
    /// A call that was given up has returned: the device that it asked, and what came of it.
    Returned(usize, Option<(Registration, Answer)>),
}

/// What came of a call of a status.
pub(super) enum Answer {
    Pending,
    /// The watch has ended.
    Ended {
        /// Whom to wake, unless that was done.
        waker: Option<Waker>,
        /// The next one of its slot is to be asked at once: it may have ended with it.
        next: bool,
    },
}

/// Why a thread is on duty no longer.
pub(super) enum Relieved {
    /// Another one has taken over. `spare`: this one stands by for it; otherwise it is one too
    /// many.
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
    /// When the oldest watch began, as of the last look; `MAX` if there is none.
    pub(super) oldest: AtomicU64,
    /// Wakes the thread on duty, whichever that is: they share one idle.
    pub(super) unparker: Waker,
}

type Guard<'a> = MutexGuard<'a, Tables>;

impl Shared {
    pub(super) fn new(
        policy: WatchPolicy,
        idle: StdIdle,
        unparker: Waker,
        start: StartThread,
    ) -> Self {
        Shared {
            policy,
            inbox: Inbox::new(),
            duty: Duty::default(),
            tables: Mutex::new(Tables::new(idle)),
            crew: Crew::new(start),
            counters: Counters::default(),
            oldest: AtomicU64::new(u64::MAX),
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

    /// Is on duty until relieved. The thread before may be stuck in a status call of a `hanging`
    /// device.
    pub(super) fn be_on_duty(self: &Arc<Self>, hanging: usize) -> Relieved {
        let mut tables = lock(&self.tables);
        tables.hangs(hanging, monotonic::now());
        loop {
            let began = monotonic::now();
            if !self.crew.roster.has_spare() {
                crew::retry_spare(self, began);
            }
            self.take_letters(&mut tables, began);
            if self.inbox.is_closed() {
                return self.end_all(tables);
            }
            tables.scan(began);
            let stuck = (!self.crew.roster.has_spare()).then(|| self.crew.roster.stuck());
            tables.attend(began, self.policy.patience, stuck, &self.counters);
            self.oldest.store(tables.oldest().0, Ordering::Relaxed);
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
                    tables.enter(entry, descriptor, terms, now, &self.counters);
                }
                Letter::Leave(entry) => {
                    tables.leave(entry);
                    count(&self.counters.dropped);
                }
                Letter::Returned(device, answered) => {
                    tables.returned(device);
                    if let Some((registration, answer)) = answered {
                        let ended = tables.answered(registration, answer, monotonic::now);
                        tables.partings.extend(ended);
                    }
                }
            }
        }
        if entered > 0 {
            self.counters.registered.fetch_add(entered, Ordering::Relaxed);
        }
        tables.letters = letters;
    }

    /// Asks, wakes and drops until `until`, or until there is nothing left to. Gives the tables
    /// back unless the thread was taken over in one of these calls.
    fn call<'a>(&'a self, mut tables: Guard<'a>, until: MonoNs) -> Result<Guard<'a>, Relieved> {
        let mut parting: Option<Parting> = None;
        let mut calls = 0;
        loop {
            // Somebody else must be there to go on if this one hangs.
            let ask = if self.crew.roster.has_spare() { tables.next_to_ask() } else { None };
            let parts = parting.take().or_else(|| tables.partings.pop_front());
            if ask.is_none() && parts.is_none() && tables.gone.is_empty() {
                return Ok(tables);
            }
            let mut gone = core::mem::take(&mut tables.gone);
            let tidies = parts.is_some() || !gone.is_empty();
            let mut device = match &ask {
                Some(ask) if !tidies => ask.device,
                _ => NO_DEVICE,
            };
            let mut call = self.duty.begin_call(device);
            drop(tables);
            if tidies {
                self.part(parts);
                self.let_go(&mut gone);
                // A call of its own, so that a waker that hangs is not taken for the device.
                if let Some(ask) = &ask {
                    if !self.duty.end_call(call) {
                        return Err(self.come_back_unasked(ask));
                    }
                    device = ask.device;
                    call = self.duty.begin_call(device);
                }
            }
            let answered = ask.map(|ask| self.ask(ask));
            if !self.duty.end_call(call) {
                return Err(self.come_back_late(device, answered));
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

    /// Drops what has ended, and wakes.
    fn part(&self, parting: Option<Parting>) {
        if let Some(Parting { entry, descriptor, waker }) = parting {
            // Each alone: a destructor that panics costs nobody a wake.
            self.contain(|| drop(entry));
            self.contain(|| drop(descriptor));
            if let Some(waker) = waker {
                self.contain(|| waker.wake());
            }
        }
    }

    /// Drops lines that nobody waits on any more.
    fn let_go(&self, gone: &mut Vec<LineRef<'static>>) {
        for line in gone.drain(..) {
            self.contain(|| drop(line));
        }
    }

    /// Runs a user's waker or destructor. Its panic ends there.
    fn contain(&self, code: impl FnOnce()) {
        if contain(code).is_none() {
            count(&self.counters.panics);
        }
    }

    fn ask(&self, ask: Ask) -> (Registration, Answer) {
        let Ask { registration, entry, began, reached_at, word, last, queries, .. } = ask;
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
            Some(ended) => {
                let next = matches!(ended, Ended::Done { reached: false, .. } | Ended::Failed(_));
                Answer::Ended { waker: entry.finish(ended, counters), next }
            }
            None => Answer::Pending,
        };
        self.contain(|| drop(word));
        self.contain(|| drop(entry));
        (registration, answer)
    }

    /// A waker or a destructor returned after another thread had taken over, which asks `ask` anew.
    #[cold]
    fn come_back_unasked(&self, ask: &Ask) -> Relieved {
        self.come_back_late(NO_DEVICE, Some((ask.registration, Answer::Pending)))
    }

    /// The call returned after another thread had taken over, which gets the answer and may ask
    /// `device` again.
    #[cold]
    fn come_back_late(&self, device: usize, answered: Option<(Registration, Answer)>) -> Relieved {
        count(&self.counters.returned);
        let answered = answered.map(|(registration, answer)| match answer {
            Answer::Ended { waker, next } => {
                self.part(Some(Parting { waker, ..Parting::default() }));
                (registration, Answer::Ended { waker: None, next })
            }
            Answer::Pending => (registration, Answer::Pending),
        });
        let spare = self.crew.roster.come_back();
        // A closed watcher has forgotten the watch.
        drop(self.send(Letter::Returned(device, answered), || MonoNs(0)));
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
            let stirred = |_: &_| if inbox.is_stirred() { Check::Stirred } else { Check::Pending };
            if linger > DurNs::ZERO {
                idle.park(&nothing, stirred, linger);
            }
            if inbox.begin_sleep(MonoNs::MAX) {
                self.crew.roster.rest();
                idle.sleep_until(MonoNs::MAX);
                self.crew.roster.stir();
                inbox.end_sleep();
            }
            return;
        }
        let declared = !self.policy.park.never_sleeps();
        if declared && !inbox.begin_sleep(event) {
            return;
        }
        let mut bound = event.since(monotonic::now());
        if !self.crew.roster.has_spare() {
            // The system is asked again for a thread.
            bound = bound.min(self.policy.patience);
        }
        let check = |_: &_| match (lines.any_reached(), inbox.is_stirred()) {
            (true, _) => Check::Ready,
            (false, true) => Check::Stirred,
            (false, false) => Check::Pending,
        };
        idle.park(&nothing, check, bound);
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
