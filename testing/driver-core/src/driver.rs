//! The gate that every entry point goes through.
//!
//! In this order: a call after the library's end is logged and ends the process; a forked child is refused without a lock; the call is counted, and stands still where
//! calls of its entry point are made to; an armed failure answers without effect; then the entry point itself runs under the device's lock, which it gives
//! up only to wait.

use crate::forked::Forked;
use crate::refusal::{Outcome, Refusal};
use crate::rules::{LastError, Rules};
use crate::state::State;
use crate::work::in_host_function;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// The pause between two looks of a wait that does not sleep, in which others take the lock.
const SPIN_HINTS: u32 = 2_000;

/// The entry points that are about the last error, and leave it as it is.
const LAST_ERROR: [&str; 3] = ["hipGetLastError", "hipPeekAtLastError", "hipGetErrorName"];

/// The fake device of one driver library.
pub struct Driver {
    state: Mutex<State>,
    /// Notified whenever work has ended, and with every injection.
    moved: Condvar,
    forked: Forked,
    /// The library's destructors have run.
    ended: AtomicBool,
    rules: &'static Rules,
    next: Arc<AtomicU64>,
}

/// One call of an entry point, with the device's lock.
pub struct Call {
    pub(crate) driver: &'static Driver,
    /// None only while waiting.
    state: Option<MutexGuard<'static, State>>,
    pub(crate) entry: &'static str,
}

impl Driver {
    /// A device of its own, which lives as long as the process.
    #[must_use]
    pub fn leak(rules: &'static Rules) -> &'static Driver {
        // Reachable, so that a leak checker does not take them for lost.
        static ALL: Mutex<Vec<&'static Driver>> = Mutex::new(Vec::new());
        let next = Arc::new(AtomicU64::new(1));
        let driver: &'static Driver = Box::leak(Box::new(Driver {
            state: Mutex::new(State::new(rules, next.clone())),
            moved: Condvar::new(),
            forked: Forked::new(rules.entries),
            ended: AtomicBool::new(false),
            rules,
            next,
        }));
        ALL.lock().unwrap_or_else(PoisonError::into_inner).push(driver);
        driver
    }

    /// The device of this library.
    pub fn of_library(rules: &'static Rules) -> &'static Driver {
        static DRIVER: OnceLock<&'static Driver> = OnceLock::new();
        DRIVER.get_or_init(|| Driver::leak(rules))
    }

    /// Runs the entry point `entry`, and returns its status code.
    pub fn call(
        &'static self,
        entry: &'static str,
        body: impl FnOnce(&mut Call) -> Outcome,
    ) -> i32 {
        if self.ended.load(Ordering::SeqCst) {
            crate::ended::called(entry);
        }
        if self.forked.is_child() {
            self.forked.log(entry);
            return (self.rules.code)(Refusal::NotInitialized);
        }
        let mut call = self.enter(entry);
        if in_host_function() && !self.rules.host_functions_may_call {
            call.log(format!("{entry}: called by a host function"));
            return (self.rules.code)(Refusal::NotPermitted);
        }
        let armed = call.injections.count(entry);
        call.stand_at_entry();
        let code = match armed {
            Some(code) => code,
            None => body(&mut call).map_or_else(self.rules.code, |()| 0),
        };
        call.remember_status(code);
        code
    }

    /// The same for the control interface: nothing is counted, nothing refused.
    pub(crate) fn enter(&'static self, entry: &'static str) -> Call {
        Call { driver: self, state: Some(self.lock()), entry }
    }

    /// Locks, whoever panicked before: a test that panicked has not been in here.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The library is being torn down, by the last of its destructors.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        crate::ended::linger();
    }

    pub(crate) fn announce(&self) {
        self.moved.notify_all();
    }

    pub(crate) fn forked(&self) -> &Forked {
        &self.forked
    }

    pub(crate) fn fresh_state(&self) -> State {
        State::new(self.rules, self.next.clone())
    }
}

impl Call {
    /// Waits, without the lock, until `over` holds.
    pub(crate) fn wait_until(&mut self, mut over: impl FnMut(&mut State) -> bool) {
        let state = self.state.take().expect("there outside of waits");
        let waited = self.driver.moved.wait_while(state, |state| !over(state));
        self.state = Some(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits like [`wait_until`](Self::wait_until), on the processor all the while: what a vendor's
    /// blocking wait does unless it was asked to sleep.
    pub(crate) fn spin_until(&mut self, mut over: impl FnMut(&mut State) -> bool) {
        while !over(self) {
            self.state = None;
            (0..SPIN_HINTS).for_each(|_| std::hint::spin_loop());
            self.state = Some(self.driver.lock());
        }
    }

    /// Makes `code`, which this call answers, the thread's last error by the vendor's rules.
    fn remember_status(&mut self, code: i32) {
        if LAST_ERROR.contains(&self.entry) {
            return;
        }
        let not_ready = (self.rules.code)(Refusal::NotReady);
        let remembered = match self.traits().last_error {
            LastError::None => false,
            LastError::EachCall => true,
            LastError::Failures => code != 0 && code != not_ready,
        };
        if remembered {
            self.thread().last_error = code;
        }
    }

    /// The thread's last error, as a refusal where there is one; forgotten if `forget`.
    ///
    /// # Errors
    ///
    /// The last error.
    pub fn last_error(&mut self, forget: bool) -> Outcome {
        let last = self.thread().last_error;
        if forget {
            self.thread().last_error = 0;
        }
        if last == 0 { Ok(()) } else { Err(Refusal::Code(last)) }
    }

    /// Refuses a call before the initialising one.
    ///
    /// # Errors
    ///
    /// That.
    pub fn initialized(&mut self) -> Outcome {
        if self.initialized { Ok(()) } else { Err(Refusal::NotInitialized) }
    }
}

impl Deref for Call {
    type Target = State;

    fn deref(&self) -> &State {
        self.state.as_ref().expect("there outside of waits")
    }
}

impl DerefMut for Call {
    fn deref_mut(&mut self) -> &mut State {
        self.state.as_mut().expect("there outside of waits")
    }
}
