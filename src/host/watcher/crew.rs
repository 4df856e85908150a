//! The threads: one on duty, one spare, and those that are stuck in a call.
//!
//! The spare looks twice in a patience whether the thread on duty is away in the same call as
//! before. If so it takes over, and a new spare is started, unless as many threads are stuck as may
//! be. A thread that comes back is the spare again, or ends where there is one.

use super::counters::count;
use super::duty::Call;
use super::policy::WatchPolicy;
use super::scan::{Relieved, Shared};
use crate::core::error::{Error, Result};
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;

/// After how many looks at a thread on duty that sleeps the spare sleeps too, until told.
const QUIET_LOOKS: u32 = 8;

pub(super) struct Crew {
    state: Mutex<State>,
    changed: Condvar,
    has_spare: AtomicBool,
}

#[derive(Default)]
struct State {
    threads: Vec<ThreadId>,
    /// Standing by, or on the way there: 0 or 1.
    spares: usize,
    stuck: usize,
    /// The thread on duty sleeps with nothing registered.
    resting: bool,
    /// The spare does not look before it is told.
    spare_asleep: bool,
    closed: bool,
}

impl Crew {
    pub(super) fn new() -> Self {
        Crew { state: Mutex::default(), changed: Condvar::new(), has_spare: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody would take over from a thread that hangs.
    #[inline]
    pub(super) fn has_spare(&self) -> bool {
        self.has_spare.load(Ordering::Relaxed)
    }

    /// How many threads are stuck in a call.
    pub(super) fn stuck(&self) -> usize {
        self.lock().stuck
    }

    /// The thread on duty goes to sleep with nothing registered.
    pub(super) fn rest(&self) {
        self.lock().resting = true;
    }

    /// It is awake again.
    pub(super) fn stir(&self) {
        let mut state = self.lock();
        state.resting = false;
        if core::mem::take(&mut state.spare_asleep) {
            drop(state);
            self.changed.notify_all();
        }
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

    /// Waits until every thread has ended but those that are stuck, for `bound` at the most. Not on
    /// one of them.
    pub(super) fn wait_for_end(&self, bound: Duration) {
        let state = self.lock();
        if !state.threads.contains(&thread::current().id()) {
            let busy = |state: &mut State| state.threads.len() > state.stuck;
            drop(self.changed.wait_timeout_while(state, bound, busy));
        }
    }
}

/// Starts the thread on duty and its spare.
pub(super) fn start(shared: &Arc<Shared>) -> Result<()> {
    spawn(shared, true)?;
    spawn(shared, false)
}

fn spawn(shared: &Arc<Shared>, on_duty: bool) -> Result<()> {
    let of_thread = shared.clone();
    let crew = &shared.crew;
    // Locked until the thread is in the list: it may end at once.
    let mut state = crew.lock();
    if !on_duty && state.spares > 0 {
        // A thread that came back meanwhile.
        return Ok(());
    }
    let spawned = thread::Builder::new()
        .name("watcher".to_string())
        .spawn(move || serve(&of_thread, on_duty));
    let thread =
        spawned.map_err(|error| Error::backend("start a watcher thread", error.to_string()))?;
    state.threads.push(thread.thread().id());
    if !on_duty {
        state.spares += 1;
        crew.has_spare.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// The life of a thread.
fn serve(shared: &Arc<Shared>, on_duty: bool) {
    let crew = &shared.crew;
    let mut on_duty = on_duty || stand_by(shared);
    while on_duty {
        on_duty = match shared.be_on_duty() {
            Relieved::Closed => {
                crew.lock().closed = true;
                false
            }
            Relieved::TakenOver { spare } => spare && stand_by(shared),
        };
    }
    let me = thread::current().id();
    crew.lock().threads.retain(|thread| *thread != me);
    crew.changed.notify_all();
}

/// Is the spare. `true` once this thread has taken over, `false` once the watcher has ended.
fn stand_by(shared: &Arc<Shared>) -> bool {
    let crew = &shared.crew;
    let between_looks = Duration::from(shared.policy.patience) / 2;
    // The call that the thread on duty is away in, and since when at least.
    let mut seen: Option<(Call, Instant)> = None;
    let mut quiet = 0;
    loop {
        let mut state = crew.lock();
        quiet = if state.resting { quiet + 1 } else { 0 };
        if state.closed {
            state.spares -= 1;
            return false;
        }
        if quiet > QUIET_LOOKS {
            state.spare_asleep = true;
            drop(crew.changed.wait_while(state, |state| state.spare_asleep && !state.closed));
        } else {
            drop(crew.changed.wait_timeout(state, between_looks));
        }
        let now = Instant::now();
        seen = match (shared.duty.look(), seen) {
            (Some(call), Some((same, since))) if call == same => {
                // The wait may have ended early.
                if now - since >= between_looks && take_over(shared, call) {
                    return true;
                }
                seen
            }
            (away, _) => away.map(|call| (call, now)),
        };
    }
}

/// Takes the duty from the thread that is away in `call`, which then counts as stuck, and starts
/// another spare if there may be one. `false` where that thread is back.
fn take_over(shared: &Arc<Shared>, call: Call) -> bool {
    let crew = &shared.crew;
    let another = {
        // Locked over both: the thread that finds itself taken over comes here next.
        let mut state = crew.lock();
        if !shared.duty.take_over(call) {
            return false;
        }
        state.stuck += 1;
        state.spares -= 1;
        crew.has_spare.store(state.spares > 0, Ordering::Relaxed);
        state.stuck < shared.policy.stuck_max
    };
    count(&shared.counters.abandoned);
    if another {
        // Where the system refuses a thread, no status is asked until one comes back.
        drop(spawn(shared, false));
    }
    true
}

/// What a closed watcher waits for its threads: long enough for the spare to take over and to end
/// what is left, should the thread on duty be stuck.
pub(super) fn end_bound(policy: &WatchPolicy) -> Duration {
    Duration::from(policy.patience) * 2 + Duration::from_millis(100)
}
