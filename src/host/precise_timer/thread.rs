//! The life of the timer's thread.

use super::Shared;
use super::board::Next;
use crate::contain::contain;
use crate::core::idle::Idle;
use crate::host::std_idle::StdIdle;
use crate::monotonic;
use alloc::vec::Vec;

/// Sleeps until the earliest deadline less the lead, and wakes what is due, with no lock held.
///
/// A waker may do anything: set and drop sleeps of this timer, drop its last handle, or panic,
/// which ends neither the thread nor the sleeps of others.
pub(super) fn keep_time(shared: &Shared, mut idle: StdIdle) {
    let mut due = Vec::new();
    loop {
        let now = monotonic::now();
        let next = shared.board().next(now, shared.lead.affordable(now), &mut due);
        match next {
            // The unparker is sticky: a deadline that was set since the look ends this sleep at
            // once.
            Next::Sleep(until) => idle.sleep_until(until),
            Next::Wake => {
                for waker in due.drain(..) {
                    contain(|| waker.wake());
                }
            }
            Next::End => return,
        }
    }
}
