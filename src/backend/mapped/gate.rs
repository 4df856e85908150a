//! Who is at work in a context, so that the last one out can end it, and nobody comes in behind.
//!
//! Whatever makes something of a context, and each close, is inside meanwhile. A close gives the context back
//! only where it is alone inside, and shuts the gate before it looks whether anything is left:
//!
//! ```text
//! open, n inside --enter--> n + 1 inside          n > 1 --leave, leave_last--> n - 1
//! open, 1 inside --leave_last--> shut, looking --is_over--> shut for good
//!                                              --else-----> open, nobody inside
//! ```
//!
//! Nobody waits for anybody here, so that what is called by somebody inside may itself come in: the
//! destructor of a buffer makes a stream, or closes the device.
//!
//! # Memory ordering
//!
//! Leaving releases what was made, and the shutting acquires it: who is alone inside sees what everybody
//! before made.

use core::sync::atomic::{AtomicUsize, Ordering};

const SHUT: usize = usize::MAX;

/// How many are inside, or `SHUT`.
#[derive(Default)]
pub(super) struct Gate(AtomicUsize);

/// One who is inside. Dropping it leaves.
pub(super) struct Pass<'g>(&'g Gate);

impl Gate {
    /// Comes in, unless the gate is shut.
    pub(super) fn enter(&self) -> Option<Pass<'_>> {
        let enter = |inside| (inside != SHUT).then(|| inside + 1);
        self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, enter).ok()?;
        Some(Pass(self))
    }
}

impl Pass<'_> {
    /// How many others are inside.
    pub(super) fn others(&self) -> usize {
        self.0.0.load(Ordering::Acquire).saturating_sub(1)
    }

    /// Leaves. Who leaves as the last one runs `end` where the gate is shut, and it stays shut where that
    /// says so. Returns whether it does.
    pub(super) fn leave_last(self, end: impl FnOnce() -> bool) -> bool {
        let state = &self.0.0;
        core::mem::forget(self);
        let leave = |inside: usize| Some(if inside == 1 { SHUT } else { inside - 1 });
        let inside = state.fetch_update(Ordering::AcqRel, Ordering::Acquire, leave);
        if inside != Ok(1) {
            return false;
        }
        let is_over = end();
        if !is_over {
            state.store(0, Ordering::Release);
        }
        is_over
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_out_ends_it_and_nobody_comes_in_behind() {
        let gate = Gate::default();
        let (first, second) = (gate.enter().unwrap(), gate.enter().unwrap());
        assert_eq!(first.others(), 1);
        assert!(!first.leave_last(|| unreachable!("another is inside")));
        assert!(second.leave_last(|| {
            assert!(gate.enter().is_none(), "shut while the last one looks");
            true
        }));
        assert!(gate.enter().is_none());
    }

    #[test]
    fn a_gate_whose_last_one_found_something_left_opens_again() {
        let gate = Gate::default();
        assert!(!gate.enter().unwrap().leave_last(|| false));
        drop(gate.enter().unwrap());
        assert!(gate.enter().unwrap().leave_last(|| true));
    }
}
