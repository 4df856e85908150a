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
//! None: what one thread on duty did is visible to the next by the tables' lock, which the one gave
//! back before its call and the other takes after it took over.

use crate::core::sync::{AtomicU64, Ordering};

/// The number of the present call, odd, or of the time between two calls, even.
#[derive(Default)]
pub(super) struct Duty(AtomicU64);

/// A call of the thread on duty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Call(u64);

impl Duty {
    /// The thread on duty goes away. It gives the tables back after this.
    #[inline]
    pub(super) fn begin_call(&self) -> Call {
        // Only the thread on duty changes an even number.
        let call = self.0.load(Ordering::Relaxed) + 1;
        self.0.store(call, Ordering::Relaxed);
        Call(call)
    }

    /// It is back. `false` where another thread has the duty by now.
    #[inline]
    #[must_use]
    pub(super) fn end_call(&self, call: Call) -> bool {
        self.change(call)
    }

    /// The call that the thread on duty is away in, if it is.
    pub(super) fn look(&self) -> Option<Call> {
        let number = self.0.load(Ordering::Relaxed);
        (number % 2 == 1).then_some(Call(number))
    }

    /// Takes the duty from the thread that is away in `call`. `false` where it is back.
    #[must_use]
    pub(super) fn take_over(&self, call: Call) -> bool {
        self.change(call)
    }

    #[inline]
    fn change(&self, Call(call): Call) -> bool {
        self.0.compare_exchange(call, call + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}
