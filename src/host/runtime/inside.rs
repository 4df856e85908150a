//! Which runtime runs on this thread.
//!
//! A wait of a runtime is woken by that runtime's reactor, and the reactor takes its turns only
//! while the runtime runs. Polled by anything else the wait would be pending for ever. Runtimes may
//! be nested on one thread; only the innermost one takes turns.
//!
//! ```text
//! a.block_on { wait of a: fine;  b.block_on { wait of b: fine, of a: OutsideRuntime } }
//! ```
//!
//! An executor of another kind that blocks the thread within a task of a runtime, a nested
//! `block_on` of tokio for example, is not seen from here: it stops that runtime altogether.

use crate::core::error::{Error, ErrorCode, Result};
use core::cell::Cell;
use core::future::poll_fn;
use core::marker::PhantomData;
use core::pin::pin;
use core::task::Poll;

std::thread_local! {
    /// The innermost runtime that runs on this thread; `NONE` if there is none.
    static INNERMOST: Cell<RuntimeId> = const { Cell::new(RuntimeId::NONE) };
}

/// The identity of a runtime, unique while a handle of it exists: the address of what they share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RuntimeId(usize);

/// The runtime runs on this thread until the guard is dropped, by a panic too.
pub(super) struct Inside {
    outer: RuntimeId,
    /// Of one thread.
    _not_send: PhantomData<*const ()>,
}

impl RuntimeId {
    const NONE: RuntimeId = RuntimeId(0);

    pub(super) fn of<T>(shared: *const T) -> Self {
        RuntimeId(shared.addr())
    }

    /// Notes that this runtime runs on the calling thread.
    pub(super) fn enter(self) -> Inside {
        Inside { outer: INNERMOST.replace(self), _not_send: PhantomData }
    }

    /// Whether this runtime is the innermost one on the calling thread. One thread-local load.
    #[inline]
    pub(super) fn runs_here(self) -> bool {
        INNERMOST.get() == self
    }

    /// The error where it is not. `what` is awaited.
    #[inline]
    pub(super) fn check(self, what: &str) -> Result<()> {
        if self.runs_here() { Ok(()) } else { Err(outside(what)) }
    }

    /// Awaits `future`, `what` by name, and checks at each poll of it that the runtime runs here: a
    /// future that was suspended inside can be polled elsewhere later.
    pub(super) async fn within<F: Future>(self, what: &str, future: F) -> Result<F::Output> {
        let mut future = pin!(future);
        poll_fn(|cx| match self.check(what) {
            Ok(()) => future.as_mut().poll(cx).map(Ok),
            Err(error) => Poll::Ready(Err(error)),
        })
        .await
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INNERMOST.set(self.outer);
    }
}

#[cold]
fn outside(what: &str) -> Error {
    Error::new(ErrorCode::OutsideRuntime, [what])
}
