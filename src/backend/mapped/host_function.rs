//! Waiting by a host function: the driver calls the program instead of being watched.
//!
//! For hosts that want no watcher thread and accept the latency of a driver's callback, some tens of
//! microseconds. A host function only wakes. After an error of its context it may not be called at
//! all ("`cuLaunchHostFunc`" of the CUDA driver API), so the status stays the authority, and errors
//! come from the backstop query, on the awaiting task's own timer.

use super::calls::Interface;
use super::lock;
use super::stream::Stream;
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::port::{CompletionPort, DeviceStream};
use crate::core::time::{Clock, DurNs, Timer};
use alloc::{collections::BTreeMap, sync::Arc};
use core::cell::Cell;
use core::ffi::c_void;
use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::task::{Poll, Waker};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

/// The pause between two queries where nothing but the status can tell.
const PAUSE: DurNs = DurNs::from_us(50);

/// A port of a stream whose parks end by a host function, or by the host's timer.
///
/// Use it with a plan that parks, `flag` or `spin`: what such a plan reads as a park on the word is
/// here a park on the call. `poll` asks every 50 us on the timer; `block` blocks the thread.
///
/// Arming costs a mark and the launch of a host function; work behind it waits until the function has
/// returned. The function wakes the task's waker on a thread of the driver's, on which calls of the driver
/// are errors: a waker of an executor only makes the task ready, which is as it should be.
///
/// Dropped, it lets go of the task. The call may still come, and wakes nobody; one that the driver was asked
/// for and that never comes keeps a few bytes, and is counted
/// ([`host_functions`](super::DeviceStats::host_functions)).
pub struct HostFunctionPort<'s, A: Interface, T> {
    stream: &'s Stream<A>,
    time: T,
    armed: Option<(u64, Arc<Signal>)>,
}

/// What the driver's thread and the task share.
struct Signal {
    is_called: AtomicBool,
    waker: Mutex<Option<Waker>>,
    /// Of the context: how many were launched and not called.
    outstanding: Arc<AtomicUsize>,
}

impl Signal {
    fn call(&self) {
        self.is_called.store(true, Ordering::Release);
        self.outstanding.fetch_sub(1, Ordering::AcqRel);
        let waker = lock(&self.waker).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn is_called(&self) -> bool {
        self.is_called.load(Ordering::Acquire)
    }

    /// Whether it was called; if not, `waker` will be woken.
    fn poll(&self, waker: &Waker) -> bool {
        if lock(&self.waker).as_ref().is_some_and(|held| held.will_wake(waker)) {
            // It is there: a call that this look misses takes it.
            return self.is_called();
        }
        let old = self.replace_waker(Some(waker.clone()));
        drop(old);
        // Behind the lock: a call that this look misses comes to the lock later, and takes the waker.
        self.is_called()
    }

    /// Leaves `waker` to the call, and returns what was left before. Wakers are cloned and dropped where no
    /// lock is held: both run foreign code.
    fn replace_waker(&self, waker: Option<Waker>) -> Option<Waker> {
        core::mem::replace(&mut *lock(&self.waker), waker)
    }
}

/// The calls that the driver was asked for and has not made, each by a number that is used once.
///
/// The driver gets the number and no pointer: a call that it makes twice (a launch that another thread's
/// capture has recorded, of which two graphs are run) finds nothing the second time.
struct Launched {
    last: usize,
    signals: BTreeMap<usize, Arc<Signal>>,
}

static LAUNCHED: Mutex<Launched> = Mutex::new(Launched { last: 0, signals: BTreeMap::new() });

impl Launched {
    /// Keeps `signal` until its call: the number of that.
    fn keep(signal: Arc<Signal>) -> usize {
        let mut launched = lock(&LAUNCHED);
        launched.last += 1;
        let number = launched.last;
        launched.signals.insert(number, signal);
        number
    }

    fn take(number: usize) -> Option<Arc<Signal>> {
        lock(&LAUNCHED).signals.remove(&number)
    }
}

/// What the driver calls. Makes no driver call: from here it would be an error.
extern "C" fn called(number: *mut c_void) {
    if let Some(signal) = Launched::take(number.addr()) {
        // A waker is foreign code; it must not unwind into the driver.
        let _ = catch_unwind(AssertUnwindSafe(|| signal.call()));
    }
}

impl<'s, A: Interface, T> HostFunctionPort<'s, A, T> {
    /// Lets go of the task: the call may come late, or never.
    fn disarm(&mut self) {
        let Some((_, signal)) = self.armed.take() else { return };
        if self.stream.core.context.home.is_forked() {
            // The lock may be held by a thread that this process does not have.
            return;
        }
        drop(signal.replace_waker(None));
    }
}

impl<A: Interface, T> Drop for HostFunctionPort<'_, A, T> {
    fn drop(&mut self) {
        self.disarm();
    }
}

impl<'s, A: Interface, T: Clock + Timer> HostFunctionPort<'s, A, T> {
    /// A port of everything queued on `stream`; `time` bounds its parks.
    pub fn new(stream: &'s Stream<A>, time: T) -> Self {
        HostFunctionPort { stream, time, armed: None }
    }

    async fn sleep(&self, time: DurNs) {
        self.time.sleep_until(self.time.monotonic_ns().after(time)).await;
    }
}

impl<A: Interface, T: Clock + Timer> CompletionPort for HostFunctionPort<'_, A, T> {
    type Error = Error;

    fn begin(&mut self) {
        self.disarm();
    }

    fn query(&mut self) -> Result<bool> {
        match &self.armed {
            Some((number, _)) => self.stream.query_mark(*number),
            None => self.stream.query(),
        }
    }

    async fn block(&mut self) -> Result<()> {
        match &self.armed {
            Some((number, _)) => self.stream.synchronize_mark(*number),
            None => self.stream.synchronize(),
        }
    }

    async fn poll(&mut self) -> Result<()> {
        if self.armed.is_none() {
            self.stream.check_poll()?;
        }
        while !self.query()? {
            self.sleep(PAUSE).await;
        }
        Ok(())
    }

    fn arm(&mut self) -> Result<()> {
        self.disarm();
        let number = self.stream.mark()?;
        let core = &self.stream.core;
        let outstanding = core.context.host_functions.clone();
        outstanding.fetch_add(1, Ordering::AcqRel);
        let is_called = AtomicBool::new(false);
        let signal = Arc::new(Signal { is_called, waker: Mutex::new(None), outstanding });
        let launch = Launched::keep(signal.clone());
        let is_asked = Cell::new(false);
        let launched = core.enqueue("launch a host function", |api| {
            is_asked.set(true);
            let data = core::ptr::without_provenance_mut(launch);
            // SAFETY: the stream is live, as long as its core is; `called` takes any number, any number of
            // times.
            unsafe { api.launch(core.handle, called, data) }
        });
        if let Err(error) = launched {
            // Where the driver errs, nobody can tell whether it will call: the signal stays, and counted.
            if !is_asked.get() || error.code() == ErrorCode::SymbolMissing {
                Launched::take(launch);
                signal.outstanding.fetch_sub(1, Ordering::AcqRel);
            }
            return Err(error);
        }
        self.armed = Some((number, signal));
        Ok(())
    }

    async fn park(&mut self, bound: DurNs) -> Result<bool> {
        // The lock of the signal may be held by a thread that a forked child does not have.
        self.stream.core.context.home.check_alive("park")?;
        let Some((_, signal)) = &self.armed else { return Ok(false) };
        let mut alarm = pin!(self.sleep(bound));
        let is_called = poll_fn(|cx| {
            if signal.poll(cx.waker()) {
                return Poll::Ready(true);
            }
            alarm.as_mut().poll(cx).map(|()| false)
        });
        Ok(is_called.await)
    }

    fn seen(&mut self) -> bool {
        self.armed.as_ref().is_some_and(|(_, signal)| signal.is_called())
    }

    /// The breath of a `spin` plan: a park of 50 us, which the call ends.
    async fn pause(&mut self) {
        // It has no error to give.
        let _ = self.park(PAUSE).await;
    }
}

impl<A: Interface, T> fmt::Debug for HostFunctionPort<'_, A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostFunctionPort")
            .field("stream", self.stream)
            .field("armed", &self.armed.as_ref().map(|(number, _)| number))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_made_twice_or_was_never_asked_for_is_one_call_at_most() {
        let outstanding = Arc::new(AtomicUsize::new(1));
        let (is_called, waker) = (AtomicBool::new(false), Mutex::new(None));
        let signal = Arc::new(Signal { is_called, waker, outstanding: outstanding.clone() });
        let number = core::ptr::without_provenance_mut(Launched::keep(signal.clone()));
        called(core::ptr::without_provenance_mut(usize::MAX));
        assert!(!signal.is_called());
        called(number);
        called(number);
        assert!(signal.is_called());
        assert_eq!((outstanding.load(Ordering::Relaxed), Arc::strong_count(&signal)), (0, 1));
    }
}
