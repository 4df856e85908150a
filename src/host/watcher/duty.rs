//! Which thread of the crew is on duty, and whether it is away in a call of the user's code.
//!
//! ```text
//!            1 begin_call                 2 end_call
//!  AT WORK --------------> AWAY (call n) ------------> AT WORK   the same thread goes on
//!                               |
//!                               '-- 3 take_over ------> AT WORK   another one does
//! ```
//!
//! | edge | by | function | |
//! |---|---|---|---|
//! | 1 | the thread on duty | [`begin_call`](Duty::begin_call) | before it gives the tables back |
//! | 2 | the thread on duty | [`end_call`](Duty::end_call) | the call returned; `false`: it was taken over |
//! | 3 | the spare | [`take_over`](Duty::take_over) | two looks half the patience apart saw the same call |
//!
//! Edges 2 and 3 are the same compare-exchange, so that exactly one of the two threads has the
//! duty afterwards, and the call that 3 takes over is the one that was looked at, not a later one:
//! calls are numbered, and no number comes again.
//!
//! # The interleaving that must not end with two, or none, on duty
//!
//! ```text
//! on duty:  begin_call(n) | release tables | call ......... | end_call(n)
//! spare:    ........ look: n ........ look: n, take_over(n) ...
//! ```
//!
//! Had `end_call` been a plain store, a late thread would go on with tables that the spare holds.
//!
//! # Memory ordering
//!
//! What one thread on duty did is visible to the next by the tables' lock, which the one gave back
//! before its call and the other takes after it took over. The device that a call asks is written
//! before edge 1, a release, and read after edge 3, an acquire; until edge 2 or 3 nobody writes it
//! anew.

use crate::core::sync::{AtomicU64, AtomicUsize, Ordering};

/// The device of a call that asks no status.
pub(super) const NO_DEVICE: usize = 0;

/// Which call the thread on duty is away in.
#[derive(Default)]
pub(super) struct Duty {
    /// The number of the present call, odd, or of the time between two calls, even.
    number: AtomicU64,
    /// The device whose status the present call asks, or [`NO_DEVICE`].
    device: AtomicUsize,
}

/// A call of the thread on duty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Call(u64);

impl Duty {
    /// The thread on duty goes away, to ask a status of `device` if there is one. It gives the
    /// tables back after this.
    #[inline]
    pub(super) fn begin_call(&self, device: usize) -> Call {
        self.device.store(device, Ordering::Relaxed);
        // Only the thread on duty changes an even number.
        let call = self.number.load(Ordering::Relaxed) + 1;
        self.number.store(call, Ordering::Release);
        Call(call)
    }

    /// It is back. `false` if another thread has the duty by now.
    #[inline]
    #[must_use]
    pub(super) fn end_call(&self, call: Call) -> bool {
        self.change(call)
    }

    /// The call that the thread on duty is away in, if it is.
    pub(super) fn look(&self) -> Option<Call> {
        let number = self.number.load(Ordering::Relaxed);
        (number % 2 == 1).then_some(Call(number))
    }

    /// Takes the duty from the thread that is away in `call`, and returns the device that the call
    /// asks. `None` if that thread is back.
    #[must_use]
    pub(super) fn take_over(&self, call: Call) -> Option<usize> {
        self.change(call).then(|| self.device.load(Ordering::Relaxed))
    }

    #[inline]
    fn change(&self, Call(call): Call) -> bool {
        self.number.compare_exchange(call, call + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}
