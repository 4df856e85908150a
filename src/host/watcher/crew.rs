//! The threads: one on duty, one spare, and those that are stuck in a call.
//!
//! The spare looks twice in a patience whether the thread on duty is away in the same call as
//! before. If so it takes over, and a new spare is started, unless as many threads are stuck as may
//! be. A thread that comes back is the spare again, or ends if there is one.
//!
//! A spare that the system refuses is asked for again once a patience. A thread on duty that ends by a panic of
//! its own, for which a line's `as_ref` is enough, is taken over from like one that hangs, but does not
//! count as stuck.

use super::counters::count;
use super::duty::{Call, NO_DEVICE};
use super::policy::WatchPolicy;
use super::scan::{Relieved, Shared};
use crate::core::error::{Error, Result};
use crate::core::time::MonoNs;
use crate::monotonic;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;

/// After how many looks at a thread on duty that sleeps the spare sleeps too, until told.
const QUIET_LOOKS: u32 = 8;

/// Starts a thread. A test refuses it.
pub(super) type StartThread = fn(Box<dyn FnOnce() + Send>) -> io::Result<ThreadId>;

pub(super) fn start_thread(life: Box<dyn FnOnce() + Send>) -> io::Result<ThreadId> {
    let thread = thread::Builder::new().name("watcher".to_string()).spawn(life)?;
    Ok(thread.thread().id())
}

pub(super) struct Crew {
    start: StartThread,
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
    /// The spare does not look before it is told.
    spare_asleep: bool,
    closed: bool,
}

impl Crew {
    pub(super) fn new(start: StartThread) -> Self {
        Crew {
            start,
            state: Mutex::default(),
            changed: Condvar::new(),
            has_spare: AtomicBool::new(false),
        }
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
    let thread = match (crew.start)(Box::new(move || serve(&of_thread, on_duty))) {
        Ok(thread) => thread,
        Err(error) => {
            state.refused = monotonic::now();
            return Err(Error::backend("start a watcher thread", error.to_string()));
        }
    };
    state.threads.push(thread);
    if on_duty {
        state.on_duty = Some(thread);
    } else {
        state.spares += 1;
        crew.has_spare.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Tries once more to start the spare that the system refused, once a patience; not one that there may not be.
#[cold]
pub(super) fn retry_spare(shared: &Arc<Shared>, now: MonoNs) {
    let is_due = {
        let state = shared.crew.lock();
        let allowed = state.spares == 0 && state.stuck < shared.policy.stuck_max;
        allowed && now.since(state.refused) >= shared.policy.patience
    };
    if is_due {
        // Refused again: it is tried again.
        drop(spawn(shared, false));
    }
}

/// The life of a thread.
fn serve(shared: &Arc<Shared>, on_duty: bool) {
    let enlisted = Enlisted { shared, serving: Cell::new(false) };
    let crew = &shared.crew;
    let mut hanging = if on_duty { Some(NO_DEVICE) } else { stand_by(shared) };
    while let Some(device) = hanging {
        enlisted.serving.set(true);
        let relieved = shared.be_on_duty(device);
        enlisted.serving.set(false);
        hanging = match relieved {
            Relieved::Closed => {
                crew.lock().closed = true;
                None
            }
            Relieved::TakenOver { spare: true } => stand_by(shared),
            Relieved::TakenOver { spare: false } => None,
        };
    }
}

/// A thread's place in the crew, given back however the thread ends.
struct Enlisted<'a> {
    shared: &'a Arc<Shared>,
    /// It is on duty, or was when it went away in a call.
    serving: Cell<bool>,
}

impl Drop for Enlisted<'_> {
    fn drop(&mut self) {
        let crew = &self.shared.crew;
        let me = thread::current().id();
        let mut state = crew.lock();
        state.threads.retain(|thread| *thread != me);
        let mut needs_spare = false;
        if self.serving.get() {
            // By a panic.
            if state.on_duty == Some(me) {
                if self.shared.duty.look().is_none() {
                    // Away for ever, so that the spare takes over.
                    let _ = self.shared.duty.begin_call(NO_DEVICE);
                }
                state.died = true;
                state.resting = false;
                state.spare_asleep = false;
                needs_spare = state.spares == 0;
            } else {
                state.stuck -= 1;
            }
        }
        drop(state);
        crew.changed.notify_all();
        if needs_spare {
            drop(spawn(self.shared, false));
        }
    }
}

/// Is the spare. Returns once this thread has taken over, with the device that the call asks which it took over
/// from, or `None` once the watcher has ended.
fn stand_by(shared: &Arc<Shared>) -> Option<usize> {
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
            return None;
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
                let device =
                    if now - since >= between_looks { take_over(shared, call) } else { None };
                if device.is_some() {
                    return device;
                }
                seen
            }
            (away, _) => away.map(|call| (call, now)),
        };
    }
}

/// Takes the duty from the thread that is away in `call`, which then counts as stuck, and starts
/// another spare if there may be one. Returns the device that the call asks; `None` if that thread is back.
fn take_over(shared: &Arc<Shared>, call: Call) -> Option<usize> {
    let crew = &shared.crew;
    let (device, another) = {
        // Locked over both: the thread that finds itself taken over comes here next.
        let mut state = crew.lock();
        let device = shared.duty.take_over(call)?;
        state.on_duty = Some(thread::current().id());
        state.spares -= 1;
        crew.has_spare.store(state.spares > 0, Ordering::Relaxed);
        if core::mem::take(&mut state.died) {
            // No call of it is left that could return.
            (NO_DEVICE, true)
        } else {
            state.stuck += 1;
            count(&shared.counters.abandoned);
            (device, state.stuck < shared.policy.stuck_max)
        }
    };
    if another {
        // If the system refuses a thread, no status is asked until it gives one or one comes back.
        drop(spawn(shared, false));
    }
    Some(device)
}

/// What a closed watcher waits for its threads: long enough for the spare to take over and to end
/// what is left, should the thread on duty be stuck.
pub(super) fn end_bound(policy: &WatchPolicy) -> Duration {
    Duration::from(policy.patience) * 2 + Duration::from_millis(100)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::core::idle::Idle;
    use crate::core::line::{CompletionLine, OwnedDescriptor, Slot};
    use crate::core::time::DurNs;
    use crate::fork::Own;
    use crate::host::watcher::future::Watch;
    use crate::host::watcher::{WatchError, WatchOptions};
    use crate::host::{StdClock, StdIdle};
    use core::pin::Pin;
    use core::sync::atomic::AtomicUsize;
    use core::task::{Context, Poll, Waker};

    static REFUSING: AtomicBool = AtomicBool::new(false);
    static REFUSED: AtomicUsize = AtomicUsize::new(0);

    fn start_or_refuse(life: Box<dyn FnOnce() + Send>) -> io::Result<ThreadId> {
        if REFUSING.load(Ordering::Relaxed) {
            REFUSED.fetch_add(1, Ordering::Relaxed);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        start_thread(life)
    }

    fn ended<F>(mut watch: Watch<F>) -> crate::host::watcher::WatchResult
    where
        F: FnMut() -> Result<bool> + Send + 'static,
    {
        loop {
            let polled = Pin::new(&mut watch).poll(&mut Context::from_waker(Waker::noop()));
            if let Poll::Ready(result) = polled {
                return result;
            }
            thread::yield_now();
        }
    }

    #[test]
    fn a_spare_thread_that_the_system_refused_is_asked_for_again_and_statuses_are_asked_then() {
        let policy = WatchPolicy { patience: DurNs::from_ms(2), ..WatchPolicy::BALANCED };
        let idle = StdIdle::with(StdClock::new(), policy.park);
        let unparker = idle.unparker().unwrap();
        let shared = Arc::new(Shared::new(policy, idle, unparker, start_or_refuse));
        start(&shared).unwrap();
        let watch =
            |device: usize, target: u64, status: Box<dyn FnMut() -> Result<bool> + Send>| {
                let line = CompletionLine::shared();
                let word = OwnedDescriptor { line, slot: Slot::ALL[0], target };
                let options = WatchOptions::new(DurNs::from_ms(1)).device(device);
                Watch::new(Own::new(shared.clone()), word, options, status)
            };
        // The spare that takes over from this one finds no successor.
        REFUSING.store(true, Ordering::Relaxed);
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().unwrap();
        let of_status = lock.clone();
        let mut hangs = watch(
            1,
            0,
            Box::new(move || {
                drop(of_status.lock());
                Ok(true)
            }),
        );
        assert!(Pin::new(&mut hangs).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        while shared.counters.get().abandoned == 0 {
            thread::yield_now();
        }
        // Nobody can be asked meanwhile, and the system is asked once a patience, not all the time.
        let began = Instant::now();
        let result = ended(watch(2, 1, Box::new(|| Ok(true))));
        assert!(matches!(result, Err(WatchError::Watcher(_))), "{result:?}");
        let mut waiting = watch(3, 1, Box::new(|| Ok(true)));
        while REFUSED.load(Ordering::Relaxed) < 5 {
            // Something is registered, so the thread on duty does not rest.
            let polled = Pin::new(&mut waiting).poll(&mut Context::from_waker(Waker::noop()));
            if polled.is_ready() {
                waiting = watch(3, 1, Box::new(|| Ok(true)));
            }
            thread::yield_now();
        }
        assert!(began.elapsed() >= Duration::from_millis(6), "four times once a patience");
        REFUSING.store(false, Ordering::Relaxed);
        // It is given one, while the first call hangs still.
        while ended(watch(2, 1, Box::new(|| Ok(true)))).is_err() {}
        assert_eq!(shared.counters.get().returned, 0);
        drop((waiting, held));
        ended(hangs).unwrap();
        shared.inbox.close();
        shared.unparker.wake_by_ref();
        crew_ends(&shared);
    }

    fn crew_ends(shared: &Shared) {
        shared.crew.wait_for_end(end_bound(&shared.policy));
        assert!(shared.crew.lock().threads.is_empty());
    }
}
