//! Running: rounds of polls, looks between them, and idle turns when nothing is ready.

use super::link::Link;
use super::{Executor, MAIN, Place};
use crate::core::doorbell::Doorbell;
use crate::core::error::Result;
use crate::core::idle::Idle;
use crate::core::pace::Pacer;
use crate::core::reactor::{Bystander, Reactor, Turn};
use crate::core::sync::{Ordering, fence};
use crate::core::time::{Clock, DurNs};
use alloc::{rc::Rc, sync::Arc, vec::Vec};
use core::cell::Cell;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};

/// What one run did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct RunStats {
    /// Polls of tasks, the main future included.
    pub polls: u64,
    /// Looks at completions and timers that woke something.
    pub woke: u64,
    /// Times the thread slept until a timer.
    pub slept: u64,
    /// Times the thread parked on a line.
    pub parked: u64,
    /// The time spent sleeping and parked, in nanoseconds.
    pub idle_ns: u64,
    /// Panics of wakers and destructors that were contained.
    pub panics: u64,
}

/// What runs count, readable while they run: neither an error nor a panic of a run loses it.
#[derive(Default)]
pub(crate) struct LiveStats {
    polls: Cell<u64>,
    woke: Cell<u64>,
    slept: Cell<u64>,
    parked: Cell<u64>,
    idle_ns: Cell<u64>,
    panics: Cell<u64>,
}

impl LiveStats {
    /// The counts so far.
    pub(crate) fn get(&self) -> RunStats {
        RunStats {
            polls: self.polls.get(),
            woke: self.woke.get(),
            slept: self.slept.get(),
            parked: self.parked.get(),
            idle_ns: self.idle_ns.get(),
            panics: self.panics.get(),
        }
    }
}

#[inline]
fn add(counter: &Cell<u64>, more: u64) {
    counter.set(counter.get().wrapping_add(more));
}

/// The main future of a run that has none.
type NoMain = core::future::Pending<()>;

impl<F: Future> Executor<F> {
    /// Runs until no task is left.
    ///
    /// `park_bound` is the longest park. With an idle that has no unparker it is also the longest
    /// time until the wake of another thread is seen. With another idle or doorbell than in the run
    /// before, every task gets a new waker and is polled once.
    ///
    /// # Errors
    ///
    /// [`Stalled`](crate::ErrorCode::Stalled) where tasks are left that no store, no timer and no
    /// waker can wake. They stay, and the executor can be run again. Where the last waker is dropped
    /// unused by another thread while this one sleeps, that is found within the park bound or 100 ms,
    /// whichever is longer.
    ///
    /// # Panics
    ///
    /// Where a task panics. That task is gone and its handle says so; the executor can be run again.
    pub fn run<C: Clock, I: Idle>(
        &mut self,
        reactor: &Reactor<'_, C>,
        idle: &mut I,
        park_bound: DurNs,
    ) -> Result<RunStats> {
        let stats = LiveStats::default();
        self.run_counting(reactor, idle, park_bound, &stats)?;
        Ok(stats.get())
    }

    /// The same, counting into `stats` as it goes.
    pub(crate) fn run_counting<C: Clock, I: Idle>(
        &mut self,
        reactor: &Reactor<'_, C>,
        idle: &mut I,
        park_bound: DurNs,
        stats: &LiveStats,
    ) -> Result<()> {
        self.drive::<C, I, NoMain>(reactor, idle, park_bound, None, stats).map(drop)
    }

    /// Runs until `main` has finished, and leaves the tasks that have not. `main` is polled first.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run); `main` is dropped then.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run), and where `main` panics.
    pub fn run_until<C: Clock, I: Idle, M: Future>(
        &mut self,
        reactor: &Reactor<'_, C>,
        idle: &mut I,
        park_bound: DurNs,
        main: M,
    ) -> Result<(M::Output, RunStats)> {
        let stats = LiveStats::default();
        let output = self.run_until_counting(reactor, idle, park_bound, main, &stats)?;
        Ok((output, stats.get()))
    }

    /// The same, counting into `stats` as it goes.
    pub(crate) fn run_until_counting<C: Clock, I: Idle, M: Future>(
        &mut self,
        reactor: &Reactor<'_, C>,
        idle: &mut I,
        park_bound: DurNs,
        main: M,
        stats: &LiveStats,
    ) -> Result<M::Output> {
        let output = self.drive(reactor, idle, park_bound, Some(pin!(main)), stats)?;
        Ok(output.expect("a run with a main future ends with its output"))
    }

    fn drive<C: Clock, I: Idle, M: Future>(
        &mut self,
        reactor: &Reactor<'_, C>,
        idle: &mut I,
        park_bound: DurNs,
        mut main: Option<Pin<&mut M>>,
        stats: &LiveStats,
    ) -> Result<Option<M::Output>> {
        let link = self.connect(reactor.doorbell(), idle);
        let inbox = self.inbox.clone();
        let _running = Running::start(&link, || inbox.joins.clear_polling());
        let panics = CountPanics::start(&stats.panics, &self.contained, reactor.contained());
        let mut pacer = Pacer::new();
        let witness = Cell::new(0);
        if main.is_some() {
            self.admit_main(&link);
        }
        loop {
            self.attend();
            if self.round.is_empty() {
                let Executor { round, places, .. } = self;
                link.drain(round, |index| &places[index as usize].task);
            }
            if self.round.is_empty() {
                if self.live == 0 && main.is_none() {
                    return Ok(None);
                }
                panics.count();
                self.idle(&link, reactor, idle, park_bound, main.is_some(), &witness, stats)?;
                continue;
            }
            while let Some(index) = self.round.pop() {
                add(&stats.polls, 1);
                self.places[index as usize].task.begin_poll();
                if index == MAIN {
                    if let Some(main) = &mut main {
                        let waker = &self.places[MAIN as usize].waker;
                        self.inbox.joins.set_polling(waker.data(), MAIN);
                        if let Poll::Ready(output) =
                            main.as_mut().poll(&mut Context::from_waker(waker))
                        {
                            return Ok(Some(output));
                        }
                    }
                } else {
                    self.poll(index);
                }
                self.attend();
                if (reactor.is_waiting() || idle.has_io()) && pacer.step() {
                    let now = reactor.monotonic_ns();
                    if reactor.is_waiting() {
                        add(&stats.woke, u64::from(reactor.fire_between_polls(pacer.every(), now)));
                    }
                    if idle.has_io() {
                        add(&stats.woke, u64::from(idle.poll_io(now)));
                    }
                    pacer.looked(now);
                }
            }
        }
    }

    /// Puts the task of the main future first into the round, and takes it out of any list that a
    /// wake since its last poll has put it into.
    ///
    /// A task stands in at most one list. An earlier main may have been woken in its last poll, so
    /// that it stands in a stack, or a panic may have left it in the round. Were it only pushed once
    /// more, its link would be written while a stack still runs through it, and that stack would
    /// become a circle.
    fn admit_main(&mut self, link: &Link) {
        let Executor { round, places, .. } = self;
        if link.has_ready() {
            let mut ready = Vec::with_capacity(places.len());
            link.drain(&mut ready, |index| &places[index as usize].task);
            // A round is popped from its end: what an earlier run has left of it comes first.
            ready.append(round);
            *round = ready;
        }
        round.retain(|&index| index != MAIN);
        places[MAIN as usize].task.mark_queued();
        round.push(MAIN);
    }

    #[allow(clippy::too_many_arguments, reason = "the state of one run, taken apart")]
    fn idle<C: Clock, I: Idle>(
        &self,
        link: &Link,
        reactor: &Reactor<'_, C>,
        idle: &mut I,
        park_bound: DurNs,
        has_main: bool,
        witness: &Cell<usize>,
        stats: &LiveStats,
    ) -> Result<()> {
        let began = reactor.monotonic_ns();
        let attention = &self.inbox.joins.attention;
        let ready_set = ReadySet { link, places: &self.places, attention, has_main, witness };
        let tasks_left = self.live + usize::from(has_main);
        match reactor.turn_beside(idle, park_bound, tasks_left, &ready_set)? {
            Turn::Woke => {
                add(&stats.woke, 1);
                return Ok(());
            }
            Turn::Slept => add(&stats.slept, 1),
            Turn::Parked => add(&stats.parked, 1),
        }
        add(&stats.idle_ns, reactor.monotonic_ns().since(began).0);
        Ok(())
    }

    /// The link for this doorbell and idle. Where that is another one than in the last run, the
    /// wakers of the last run tell the wrong one: every task gets a new waker, and is polled once
    /// so that it passes it on. What was ready stays in its order, before the others.
    fn connect<I: Idle>(&mut self, doorbell: Option<&Doorbell>, idle: &I) -> Arc<Link> {
        let (unparker, thread_token) = (idle.unparker(), idle.thread_token());
        if let Some(link) = &self.link {
            if link.serves(doorbell, unparker.as_ref(), thread_token) {
                return link.clone();
            }
        }
        let link = Arc::new(Link::new(doorbell.cloned(), unparker, thread_token));
        let last = self.link.replace(link.clone());
        if self.places.is_empty() {
            self.places.push(Place::vacant(&link, MAIN));
        }
        let Some(last) = last else { return link };

        let mut ready = Vec::with_capacity(self.places.len());
        last.drain(&mut ready, |index| &self.places[index as usize].task);
        ready.append(&mut self.round);
        let mut listed = alloc::vec![false; self.places.len()];
        ready.iter().for_each(|&index| listed[index as usize] = true);
        let waiting = (0..self.places.len() as u32).rev().filter(|&index| !listed[index as usize]);
        self.round.extend(waiting);
        self.round.append(&mut ready);
        for (index, place) in self.places.iter_mut().enumerate() {
            let Place { future, join, .. } =
                core::mem::replace(place, Place::vacant(&link, index as u32));
            place.future = future;
            place.join = join;
        }
        let places = &self.places;
        self.round.retain(|&index| places[index as usize].future.is_some());
        self.round.iter().for_each(|&index| places[index as usize].task.mark_queued());
        link
    }
}

/// Counts the panics that a run contained, at each idle and when the run returns or unwinds.
struct CountPanics<'a> {
    into: &'a Cell<u64>,
    executor: Rc<Cell<u64>>,
    reactor: &'a Cell<u64>,
    counted: Cell<u64>,
}

impl<'a> CountPanics<'a> {
    fn start(into: &'a Cell<u64>, executor: &Rc<Cell<u64>>, reactor: &'a Cell<u64>) -> Self {
        let counted = Cell::new(executor.get() + reactor.get());
        CountPanics { into, executor: executor.clone(), reactor, counted }
    }

    fn count(&self) {
        let now = self.executor.get() + self.reactor.get();
        add(self.into, now - self.counted.replace(now));
    }
}

impl Drop for CountPanics<'_> {
    fn drop(&mut self) {
        self.count();
    }
}

/// This thread runs the executor; until it returns or unwinds.
struct Running<'l, E: Fn()> {
    link: &'l Link,
    end: E,
}

impl<'l, E: Fn()> Running<'l, E> {
    fn start(link: &'l Link, end: E) -> Self {
        link.start_running();
        Running { link, end }
    }
}

impl<E: Fn()> Drop for Running<'_, E> {
    fn drop(&mut self) {
        self.link.stop_running();
        (self.end)();
    }
}

/// The executor, as the reactor sees it when it wants to idle.
struct ReadySet<'e, F: Future> {
    link: &'e Link,
    places: &'e [Place<F>],
    attention: &'e Cell<bool>,
    has_main: bool,
    /// The place last found to have a waker elsewhere: most likely it still has.
    witness: &'e Cell<usize>,
}

impl<F: Future> ReadySet<'_, F> {
    fn is_witness(&self, index: usize) -> bool {
        let place = &self.places[index];
        let in_use = place.future.is_some() || (index == MAIN as usize && self.has_main);
        in_use && place.has_wakers()
    }
}

impl<F: Future> Bystander for ReadySet<'_, F> {
    fn begin_idle(&self) -> bool {
        self.link.begin_idle()
    }

    fn has_work(&self) -> bool {
        self.link.has_ready() || self.attention.get()
    }

    /// Somebody can wake a task only through a waker of it. O(1) while the same task is waited for,
    /// else a look at each place.
    fn may_bring_work(&self) -> bool {
        let count = self.places.len();
        let first = self.witness.get();
        let found = (first..count).chain(0..first).find(|&index| self.is_witness(index));
        // A waker that was used and dropped in between: see its push once its drop was seen.
        fence(Ordering::Acquire);
        self.witness.set(found.unwrap_or(0));
        found.is_some()
    }

    fn ends_sleep(&self) -> bool {
        self.link.has_unparker()
    }

    fn end_idle(&self) {
        self.link.end_idle();
    }
}
