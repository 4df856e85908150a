//! One context of one driver: how its calls are made, and what went wrong in it.

use super::calls::Interface;
use super::driver::Shared;
use crate::core::error::Error;
use crate::core::error::Result;
use crate::exit;
use crate::fork::Birth;
use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::OnceLock;

/// Where the calls of a context are made.
pub(super) struct Home<A: Interface> {
    pub(super) driver: Arc<Shared<A>>,
    pub(super) context: A::Context,
    /// What tells the context from a later one with the same handle, where the driver has such a thing.
    identity: OnceLock<u64>,
    birth: Birth,
    /// The first status that stays for ever.
    fault: OnceLock<Error>,
    /// Calls that failed where nobody awaits their result.
    teardown_failures: AtomicUsize,
}

impl<A: Interface> Home<A> {
    pub(super) fn new(driver: Arc<Shared<A>>, context: A::Context) -> Self {
        Home {
            driver,
            context,
            identity: OnceLock::new(),
            birth: Birth::here(),
            fault: OnceLock::new(),
            teardown_failures: AtomicUsize::new(0),
        }
    }

    pub(super) fn is_forked(&self) -> bool {
        self.birth.is_forked()
    }

    /// The sticky status of the context, once a call has found it.
    pub(super) fn fault(&self) -> Option<&Error> {
        self.fault.get()
    }

    /// Refuses `call` in a forked child, and behind a sticky status.
    #[inline]
    pub(super) fn check(&self, call: &str) -> Result<()> {
        self.birth.check(call)?;
        self.fault.get().map_or(Ok(()), |fault| Err(fault.clone()))
    }

    /// Refuses `call` in a forked child.
    pub(super) fn check_alive(&self, call: &str) -> Result<()> {
        self.birth.check(call)
    }

    /// Runs `calls` with this context current and allowed beside captures, and puts both back. Refused in a
    /// forked child, and while the process is exiting.
    pub(super) fn within<T>(&self, call: &str, calls: impl FnOnce(&A) -> Result<T>) -> Result<T> {
        let _calling = exit::calling(self.birth, call)?;
        let entered = self.note(self.driver.api.enter(self.context))?;
        let inside = Inside { home: self, entered };
        let result = self.check_identity().and_then(|()| calls(&self.driver.api));
        drop(inside);
        self.note(result)
    }

    /// Whether the context of the handle is still the one that it was, and works: one driver call, where the
    /// driver can tell.
    pub(super) fn is_the_same(&self) -> bool {
        // An error that does not stay says nothing.
        let _ = self.within("device", |_| Ok(()));
        self.fault().is_none()
    }

    /// Refuses what is no more: a reset of the device by another library ends the context, and a later
    /// reference revives its handle, behind which no stream, event or memory of ours is any more.
    fn check_identity(&self) -> Result<()> {
        let api = &self.driver.api;
        let now = api.identity()?;
        if *self.identity.get_or_init(|| now) == now { Ok(()) } else { Err(api.destroyed()) }
    }

    /// Gives a reference to the context back, which need not be current.
    ///
    /// # Safety
    ///
    /// The caller owns the reference.
    pub(super) unsafe fn release(&self) -> Result<()> {
        let _calling = exit::calling(self.birth, "release")?;
        // SAFETY: passed on.
        unsafe { self.driver.api.release(self.context) }
    }

    /// Remembers a status that stays.
    fn note<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            if error.status_number().is_some_and(A::is_sticky) {
                self.fault.get_or_init(|| error.clone());
            }
        }
        result
    }

    /// Counts the failure of a call whose result nobody awaits. Returns whether it succeeded.
    pub(super) fn counted<T>(&self, result: Result<T>) -> bool {
        if result.is_err() {
            self.teardown_failures.fetch_add(1, Ordering::Relaxed);
        }
        result.is_ok()
    }

    pub(super) fn teardown_failures(&self) -> usize {
        self.teardown_failures.load(Ordering::Relaxed)
    }
}

/// There while the context is entered.
struct Inside<'h, A: Interface> {
    home: &'h Home<A>,
    entered: A::Entered,
}

impl<A: Interface> Drop for Inside<'_, A> {
    fn drop(&mut self) {
        let left = self.home.driver.api.leave(self.entered);
        self.home.counted(left);
    }
}

impl<A: Interface> fmt::Debug for Home<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Home")
            .field("context", &self.context)
            .field("fault", &self.fault.get())
            .finish_non_exhaustive()
    }
}
