//! The threads: one on duty, one spare, and those that are stuck in a call.
//!
//! The spare looks twice in a patience whether the thread on duty is away in the same call as
//! before. If so it takes over, and a new spare is started, unless as many threads are stuck as may
//! be. A thread that comes back is the spare again, or ends if there is one.
//!
//! A spare that the system refuses is asked for again once a patience. A thread on duty that ends
//! by a panic of its own, for which a line's `as_ref` is enough, is taken over from like one that
//! hangs, but does not count as stuck.

use super::counters::count;
use super::duty::{Call, NO_DEVICE};
use super::policy::WatchPolicy;
use super::roster::{Roster, TakenOver};
use super::scan::{Relieved, Shared};
use crate::core::error::{Error, Result};
use crate::core::time::MonoNs;
use crate::monotonic;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::sync::Arc;
use core::cell::Cell;
use core::time::Duration;
use std::io;
use std::thread::{self, ThreadId};
use std::time::Instant;

/// Starts a thread. A test refuses it.
pub(super) type StartThread = fn(Box<dyn FnOnce() + Send>) -> io::Result<ThreadId>;

pub(super) fn start_thread(life: Box<dyn FnOnce() + Send>) -> io::Result<ThreadId> {
    let thread = thread::Builder::new().name("watcher".to_string()).spawn(life)?;
    Ok(thread.thread().id())
}

pub(super) struct Crew {
    pub(super) roster: Roster,
    start: StartThread,
}

impl Crew {
    pub(super) fn new(start: StartThread) -> Self {
        Crew { roster: Roster::new(), start }
    }
}

/// Starts the thread on duty and its spare.
pub(super) fn start(shared: &Arc<Shared>) -> Result<()> {
    spawn(shared, true)?;
    spawn(shared, false)
}

fn spawn(shared: &Arc<Shared>, on_duty: bool) -> Result<()> {
    let of_thread = shared.clone();
    let Crew { roster, start } = &shared.crew;
    let spawned = roster
        .enlist(on_duty, monotonic::now(), || start(Box::new(move || serve(&of_thread, on_duty))));
    spawned.map_err(|error| Error::backend("start a watcher thread", error.to_string()))
}

/// Tries once more to start the spare that the system refused, once a patience; not one that there
/// may not be.
#[cold]
pub(super) fn retry_spare(shared: &Arc<Shared>, now: MonoNs) {
    let policy = &shared.policy;
    if shared.crew.roster.wants_spare(now, policy.stuck_max, policy.patience) {
        // Refused again: it is tried again.
        drop(spawn(shared, false));
    }
}

/// The life of a thread.
fn serve(shared: &Arc<Shared>, on_duty: bool) {
    let enlisted = Enlisted { shared, serving: Cell::new(false) };
    let mut hanging = if on_duty { Some(NO_DEVICE) } else { stand_by(shared) };
    while let Some(device) = hanging {
        enlisted.serving.set(true);
        let relieved = shared.be_on_duty(device);
        enlisted.serving.set(false);
        hanging = match relieved {
            Relieved::Closed => {
                shared.crew.roster.close();
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
        let Shared { crew, duty, .. } = &**self.shared;
        if crew.roster.leave(self.serving.get(), duty) {
            drop(spawn(self.shared, false));
        }
    }
}

/// Is the spare. Returns once this thread has taken over, with the device that the call asks which
/// it took over from, or `None` once the watcher has ended.
fn stand_by(shared: &Arc<Shared>) -> Option<usize> {
    let between_looks = Duration::from(shared.policy.patience) / 2;
    // The call that the thread on duty is away in, and since when at least.
    let mut seen: Option<(Call, Instant)> = None;
    let mut quiet = 0;
    while shared.crew.roster.stand(&mut quiet, between_looks) {
        let now = Instant::now();
        seen = match (shared.duty.look(), seen) {
            (Some(call), Some((same, since))) if call == same => {
                // The wait may have ended early.
                if now - since >= between_looks {
                    if let Some(device) = take_over(shared, call) {
                        return Some(device);
                    }
                }
                seen
            }
            (away, _) => away.map(|call| (call, now)),
        };
    }
    None
}

/// Takes the duty from the thread that is away in `call`, which then counts as stuck, and starts
/// another spare if there may be one. Returns the device that the call asks; `None` if that thread
/// is back.
fn take_over(shared: &Arc<Shared>, call: Call) -> Option<usize> {
    let stuck_max = shared.policy.stuck_max;
    let TakenOver { device, is_stuck, another } =
        shared.crew.roster.take_over(&shared.duty, call, stuck_max)?;
    if is_stuck {
        count(&shared.counters.abandoned);
    }
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
    use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
        let lock = Arc::new(std::sync::Mutex::new(()));
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
        shared.crew.roster.wait_for_end(end_bound(&shared.policy));
        assert_eq!(shared.crew.roster.count(), (0, 0));
    }
}
