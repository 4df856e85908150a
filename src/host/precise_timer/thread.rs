//! The life of the timer's thread.

use super::Shared;
use super::board::Next;
use crate::core::idle::Idle;
use crate::host::std_idle::StdIdle;
use crate::monotonic;
use alloc::vec::Vec;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Sleeps until the earliest deadline less the lead, and wakes what is due, with no lock held.
///
/// A waker may do anything: set and drop sleeps of this timer, drop its last handle, or panic, which
/// ends neither the thread nor the sleeps of others.
pub(super) fn keep_time(shared: &Shared, mut idle: StdIdle) {
    let mut due = Vec::new();
    let mut last = monotonic::now();
    loop {
        let now = monotonic::now();
        let next = shared.board().next(now, shared.lead.get(), &mut due);
        match next {
            // The unparker is sticky: a deadline that was set since the look ends this sleep at once.
            Next::Sleep(until) => idle.sleep_until(until),
            Next::Wake => {
                shared.lead.afford(now.since(last), due.len());
                last = now;
                for waker in due.drain(..) {
                    let woken = catch_unwind(AssertUnwindSafe(|| waker.wake()));
                    // The hook has printed the message. The payload may panic once more when dropped.
                    woken.unwrap_or_else(core::mem::forget);
                }
            }
            Next::End => return,
        }
    }
}
