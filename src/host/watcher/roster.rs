//! Who is on duty, who stands by, and who is stuck: the crew's book, under one lock.
//!
//! There is one spare at most. It comes by [`enlist`](Roster::enlist), or by
//! [`come_back`](Roster::come_back) of a thread that was taken over, whichever is first; the other
//! of the two then finds that there is one.
//!
//! # The interleaving that must not lose the spare
//!
//! ```text
//! on duty:  rest: resting = true | asleep | stir: resting = false, the spare's sleep ends | call that hangs
//! spare:    ... resting, time after time | asleep until told ..........................| looks again
//! ```
//!
//! The spare decides to sleep by what it reads under the lock under which it then says so, and
//! `stir` takes both back under that lock. Had it decided by an earlier look, it could fall asleep
//! after `stir` for good, and nobody would take over from a thread that hangs.

use super::duty::{Call, Duty, NO_DEVICE};
use super::sync::{Condvar, Mutex, MutexGuard, lock};
use crate::core::sync::{AtomicBool, Ordering};
use crate::core::time::{DurNs, MonoNs};
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;
use std::io;
use std::sync::PoisonError;
use std::thread::{self, ThreadId};

/// After how many looks at a thread on duty that sleeps the spare sleeps too, until it is notified.
const QUIET_LOOKS: u32 = if cfg!(loom) { 1 } else { 8 };

pub(super) struct Roster {
    state: Mutex<State>,
    changed: Condvar,
    has_spare: AtomicBool,
}

#[derive(Default)]
struct State {
    threads: Vec<ThreadId>,
    /// Which of them is on duty, or was when it ended.
    on_duty: Option<ThreadId>,
    /// That one has ended by a panic.
    died: bool,
    /// When the system refused a spare last.
    refused: MonoNs,
    /// Standing by, or on the way there: 0 or 1.
    spares: usize,
    stuck: usize,
    /// The thread on duty sleeps with nothing registered.
    resting: bool,
    /// The spare does not look before it is notified.
    spare_asleep: bool,
    closed: bool,
}

/// What was taken over.
pub(super) struct TakenOver {
    /// The device that the call asks whose thread is stuck.
    pub(super) device: usize,
    /// That thread is alive, and counts as stuck.
    pub(super) is_stuck: bool,
    /// There may be another spare.
    pub(super) another: bool,
}

impl Roster {
    pub(super) fn new() -> Self {
        let state = Mutex::new(State::default());
        Roster { state, changed: Condvar::new(), has_spare: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whether another thread would take over from one that hangs.
    #[inline]
    pub(super) fn has_spare(&self) -> bool {
        self.has_spare.load(Ordering::Relaxed)
    }

    /// Number of threads that are stuck in a call.
    pub(super) fn stuck(&self) -> usize {
        self.lock().stuck
    }

    /// Enters the thread that `start` starts, on duty or as the spare unless there is one.
    ///
    /// # Errors
    ///
    /// That of `start`, which was called at `now`.
    pub(super) fn enlist(
        &self,
        on_duty: bool,
        now: MonoNs,
        start: impl FnOnce() -> io::Result<ThreadId>,
    ) -> io::Result<()> {
        // Locked until the thread is in the list: it may end at once.
        let mut state = self.lock();
        if !on_duty && state.spares > 0 {
            // A thread that came back meanwhile.
            return Ok(());
        }
        let thread = start().inspect_err(|_| state.refused = now)?;
        state.threads.push(thread);
        if on_duty {
            state.on_duty = Some(thread);
        } else {
            state.spares += 1;
            self.has_spare.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether a spare is to be asked for again: there is none, there may be one beside those that
    /// are stuck, and the system has not refused one for a patience.
    pub(super) fn wants_spare(&self, now: MonoNs, stuck_max: usize, patience: DurNs) -> bool {
        let state = self.lock();
        let allowed = state.spares == 0 && state.stuck < stuck_max;
        allowed && now.since(state.refused) >= patience
    }

    /// The thread on duty goes to sleep with nothing registered.
    pub(super) fn rest(&self) {
        self.lock().resting = true;
    }

    /// It is awake again.
    pub(super) fn stir(&self) {
        let mut state = self.lock();
        state.resting = false;
        if mem::take(&mut state.spare_asleep) {
            drop(state);
            self.changed.notify_all();
        }
    }

    /// The spare waits until it looks the next time: for `time`, or until it is notified if the
    /// thread on duty has been asleep for long, which `quiet` counts. `false` once everything has
    /// ended; it is the spare no more then.
    #[must_use]
    pub(super) fn stand(&self, quiet: &mut u32, time: Duration) -> bool {
        let mut state = self.lock();
        *quiet = if state.resting { *quiet + 1 } else { 0 };
        if state.closed {
            state.spares -= 1;
            return false;
        }
        if *quiet > QUIET_LOOKS {
            state.spare_asleep = true;
            while state.spare_asleep && !state.closed {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        } else {
            self.wait_for(state, time);
        }
        true
    }

    /// The spare takes the duty from the thread that is away in `call`. `None` if that one is back.
    pub(super) fn take_over(&self, duty: &Duty, call: Call, stuck_max: usize) -> Option<TakenOver> {
        // Locked over both: the thread that finds itself taken over comes here next.
        let mut state = self.lock();
        let device = duty.take_over(call)?;
        state.on_duty = Some(thread::current().id());
        state.spares -= 1;
        self.has_spare.store(state.spares > 0, Ordering::Relaxed);
        if mem::take(&mut state.died) {
            // No call of it is left that could return.
            return Some(TakenOver { device: NO_DEVICE, is_stuck: false, another: true });
        }
        state.stuck += 1;
        Some(TakenOver { device, is_stuck: true, another: state.stuck < stuck_max })
    }

    /// A thread that was taken over is back. `true`: it is the spare now; otherwise there is one
    /// already, and it ends.
    pub(super) fn come_back(&self) -> bool {
        let mut state = self.lock();
        state.stuck -= 1;
        let needed = state.spares == 0;
        if needed {
            state.spares = 1;
            self.has_spare.store(true, Ordering::Relaxed);
        }
        needed
    }

    /// Nothing is left to be on duty for.
    pub(super) fn close(&self) {
        self.lock().closed = true;
    }

    /// The calling thread ends. `serving`: by a panic, while it was on duty or away in a call; it
    /// is then given up for good. Returns `true` if there is nobody to take over from it.
    pub(super) fn leave(&self, serving: bool, duty: &Duty) -> bool {
        let me = thread::current().id();
        let mut state = self.lock();
        state.threads.retain(|thread| *thread != me);
        let mut needs_spare = false;
        if serving && state.on_duty == Some(me) {
            if duty.look().is_none() {
                // Away for ever, so that the spare takes over.
                let _ = duty.begin_call(NO_DEVICE);
            }
            state.died = true;
            state.resting = false;
            state.spare_asleep = false;
            needs_spare = state.spares == 0;
        } else if serving {
            state.stuck -= 1;
        }
        drop(state);
        self.changed.notify_all();
        needs_spare
    }

    #[cfg(not(loom))]
    fn wait_for(&self, state: MutexGuard<'_, State>, time: Duration) {
        drop(self.changed.wait_timeout(state, time));
    }

    /// The model has no time.
    #[cfg(loom)]
    fn wait_for(&self, state: MutexGuard<'_, State>, _: Duration) {
        drop(state);
        loom::thread::yield_now();
    }

    /// Waits until every thread has ended but those that are stuck, for `bound` at most. Not on one
    /// of them.
    #[cfg(not(loom))]
    pub(super) fn wait_for_end(&self, bound: Duration) {
        let state = self.lock();
        if !state.threads.contains(&thread::current().id()) {
            let busy = |state: &mut State| state.threads.len() > state.stuck;
            drop(self.changed.wait_timeout_while(state, bound, busy));
        }
    }

    /// The model's threads are joined.
    #[cfg(loom)]
    pub(super) fn wait_for_end(&self, _: Duration) {}

    /// How many stand by, and how many threads there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> (usize, usize) {
        let state = self.lock();
        (state.spares, state.threads.len())
    }
}
