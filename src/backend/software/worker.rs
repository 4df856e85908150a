//! The scheduler: which stream runs next, who watches the clock, and the worker threads.
//!
//! Of the workers that have nothing to run, one at most is the *timekeeper*: it sleeps until shortly
//! before the earliest timer and spins for the rest. The others sleep until they are needed. A
//! worker that takes short work (a mark, the end of a delay) keeps the timekeeping to itself, since
//! waking another would put a system call into the way of a completion; before long work (a host
//! closure, a copy) it wakes another for the timers and streams that are left.
//!
//! ```text
//!         1                       2
//! Nobody -----> Asleep (kernel) -----> Nobody      1, 3: `Scheduler::keep_time`
//!    |  3                         4                2: its time came, or `Scheduler::alert`
//!    '--------> Spinning -------------> Nobody     4: its time came, or `news` changed
//! ```
//!
//! All edges are taken under the scheduler's lock. A push that finds the timekeeper spinning changes
//! `news` and makes no system call.

use super::device::Shared;
use super::lock;
use super::queue::StreamCore;
use super::run::LateStore;
use crate::core::time::{DurNs, MonoNs};
use crate::monotonic::{self, LowSlack};
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::{sync::Arc, vec::Vec};
use core::cmp::{self, Reverse};
use core::hint;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

pub(super) struct Scheduler {
    state: Mutex<State>,
    /// Where workers that are not the timekeeper sleep.
    bench: Condvar,
    /// Where the timekeeper sleeps.
    bed: Condvar,
    /// Changed where a spinning timekeeper should look at the state again.
    news: AtomicU64,
    spin_before: DurNs,
}

struct State {
    ready: VecDeque<Job>,
    timers: BinaryHeap<Reverse<Alarm>>,
    /// How many timers there ever were: timers of one instant are due in the order they were set.
    set: u64,
    timekeeper: Timekeeper,
    benched: usize,
    closing: bool,
    workers: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Timekeeper {
    Nobody,
    Asleep,
    Spinning,
}

enum Job {
    Run(Arc<StreamCore>),
    Land(LateStore),
}

struct Alarm {
    at: MonoNs,
    turn: u64,
    job: Job,
}

impl PartialEq for Alarm {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Alarm {}

impl PartialOrd for Alarm {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Alarm {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        (self.at, self.turn).cmp(&(other.at, other.turn))
    }
}

impl Scheduler {
    pub(super) fn new(spin_before: DurNs) -> Self {
        Scheduler {
            state: Mutex::new(State {
                ready: VecDeque::new(),
                timers: BinaryHeap::new(),
                set: 0,
                timekeeper: Timekeeper::Nobody,
                benched: 0,
                closing: false,
                workers: 0,
            }),
            bench: Condvar::new(),
            bed: Condvar::new(),
            news: AtomicU64::new(0),
            spin_before,
        }
    }

    /// Makes a stream ready, and a worker look at it.
    pub(super) fn push(&self, stream: Arc<StreamCore>) {
        let mut state = lock(&self.state);
        state.ready.push_back(Job::Run(stream));
        self.alert(&state);
    }

    /// Makes a stream ready, by a worker that looks itself next.
    pub(super) fn push_back_quietly(&self, stream: Arc<StreamCore>) {
        lock(&self.state).ready.push_back(Job::Run(stream));
    }

    pub(super) fn wake_stream_at(&self, at: MonoNs, stream: Arc<StreamCore>) {
        self.set_timer(at, Job::Run(stream));
    }

    pub(super) fn land_at(&self, at: MonoNs, store: LateStore) {
        self.set_timer(at, Job::Land(store));
    }

    /// Sets a timer, by a worker that looks at the clock itself next unless somebody does already.
    fn set_timer(&self, at: MonoNs, job: Job) {
        let mut state = lock(&self.state);
        let turn = state.set;
        state.set += 1;
        state.timers.push(Reverse(Alarm { at, turn, job }));
        let earliest = state.timers.peek().is_some_and(|Reverse(alarm)| alarm.turn == turn);
        match state.timekeeper {
            Timekeeper::Spinning if earliest => self.spread_news(),
            Timekeeper::Asleep if earliest => self.bed.notify_one(),
            _ => {}
        }
    }

    /// Called by a worker that is about to run something long.
    pub(super) fn share_before_long_work(&self) {
        let state = lock(&self.state);
        if state.benched > 0 && !(state.ready.is_empty() && state.timers.is_empty()) {
            self.bench.notify_one();
        }
    }

    /// No new work will come: workers end once nothing is ready and no timer is set.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.closing = true;
        self.spread_news();
        self.bench.notify_all();
        self.bed.notify_all();
    }

    /// Counts a worker that is about to start.
    pub(super) fn add_worker(&self) {
        lock(&self.state).workers += 1;
    }

    /// Counts a worker that did not start. True for the last.
    pub(super) fn remove_worker(&self) -> bool {
        let mut state = lock(&self.state);
        state.workers -= 1;
        state.workers == 0
    }

    fn spread_news(&self) {
        self.news.fetch_add(1, Ordering::Relaxed);
    }

    /// Has some worker look at what is ready.
    fn alert(&self, state: &State) {
        match state.timekeeper {
            Timekeeper::Spinning => self.spread_news(),
            _ if state.benched > 0 => self.bench.notify_one(),
            Timekeeper::Asleep => self.bed.notify_one(),
            // Every worker is at work and looks here next.
            Timekeeper::Nobody => {}
        }
    }

    /// What to run next; none once the device is closing and nothing is left.
    fn next(&self) -> Option<Job> {
        let mut state = lock(&self.state);
        loop {
            state.collect_due();
            if let Some(job) = state.ready.pop_front() {
                return Some(job);
            }
            let earliest = state.timers.peek().map(|Reverse(alarm)| alarm.at);
            state = match earliest {
                None if state.closing => return None,
                Some(at) if state.timekeeper == Timekeeper::Nobody => self.keep_time(state, at),
                _ => {
                    state.benched += 1;
                    let mut state = wait(&self.bench, state);
                    state.benched -= 1;
                    state
                }
            };
        }
    }

    /// Waits for `at`, or for news.
    fn keep_time<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        at: MonoNs,
    ) -> MutexGuard<'s, State> {
        let left = at.since(monotonic::now());
        if left > self.spin_before {
            state.timekeeper = Timekeeper::Asleep;
            let sleep = DurNs(left.0 - self.spin_before.0).into();
            // For the sleep alone: the program's closures run on this thread, and may start others.
            let _slack = LowSlack::begin();
            let woken = self.bed.wait_timeout(state, sleep);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        } else {
            state.timekeeper = Timekeeper::Spinning;
            // Read under the lock: a push after this either finds the timekeeper spinning, and
            // changes it, or comes once the lock is taken again.
            let news = self.news.load(Ordering::Relaxed);
            drop(state);
            while monotonic::now() < at && self.news.load(Ordering::Relaxed) == news {
                hint::spin_loop();
            }
            state = lock(&self.state);
        }
        state.timekeeper = Timekeeper::Nobody;
        state
    }

    /// What is still there once every worker has ended. Dropped by the caller, without a lock.
    fn clear(&self) -> Vec<Job> {
        let mut state = lock(&self.state);
        let timers = core::mem::take(&mut state.timers);
        state.ready.drain(..).chain(timers.into_iter().map(|Reverse(alarm)| alarm.job)).collect()
    }
}

impl State {
    fn collect_due(&mut self) {
        if self.timers.is_empty() {
            return;
        }
        let now = monotonic::now();
        while self.timers.peek().is_some_and(|Reverse(alarm)| alarm.at <= now) {
            let Reverse(alarm) = self.timers.pop().expect("seen above");
            self.ready.push_back(alarm.job);
        }
    }
}

fn wait<'s>(on: &Condvar, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
    on.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// The life of a worker thread.
pub(super) fn work(shared: &Arc<Shared>) {
    while let Some(job) = shared.scheduler.next() {
        match job {
            Job::Run(stream) => stream.run(),
            Job::Land(store) => store.land(),
        }
    }
    shared.scheduler.bench.notify_all();
    if shared.scheduler.remove_worker() {
        settle(shared);
    }
}

/// The last worker has ended: faults what can never finish, and breaks the references between the
/// device and what is still queued.
pub(super) fn settle(shared: &Shared) {
    for stream in shared.live_streams() {
        stream.abandon();
    }
    drop(shared.scheduler.clear());
    lock(&shared.pool).retire_draining();
}
