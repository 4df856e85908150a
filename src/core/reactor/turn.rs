//! One turn of a reactor: wake what is due, else idle in the way that what is registered asks for.
//!
//! ```text
//! 1 something due            wake it                             Woke
//! 2 only timers              sleep until the earliest            Slept
//! 3 a slot is watched        park on a line, bounded             Parked
//! 4 nothing registered       a bystander may wake us: sleep      Slept or Parked
//!                            nobody can: error                   Stalled
//! ```
//!
//! # The interleaving that must not lose a wake
//!
//! A store or a foreign wake may come at any time before the thread idles. The order is: take the
//! snapshot of the doorbell; declare the thread idle; look at the slots, the timers and the ready
//! set; idle while the doorbell shows the snapshot. Whoever stores or wakes before the look is seen
//! by it; whoever does after it rings a doorbell that differs from the snapshot, and finds the
//! thread declared idle, so that it uses the unparker.

use super::Reactor;
use super::lines::LineRef;
use super::scan::{STEP_LINES, Seen};
use crate::core::doorbell::line_differs;
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::idle::Idle;
use crate::core::line::CompletionLine;
use crate::core::time::{Clock, DurNs, MonoNs};
use alloc::string::ToString;
use core::cell::Cell;

/// The lines that a spinning thread checks at a time.
const SPIN_LINES: usize = 16;

/// How long the thread sleeps at most where only another thread's waker could end it. The last of
/// them may be dropped unused meanwhile, which tells nobody: then this is when the stall is found.
const STALL_CHECK: DurNs = DurNs::from_ms(100);

/// What a [`turn`](Reactor::turn) did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Something was due and was woken, or became ready otherwise; the thread did not idle.
    Woke,
    /// The thread slept until the earliest timer, or was woken from that sleep.
    Slept,
    /// The thread parked on a line.
    Parked,
}

/// Who else gives the thread work: the ready set of an executor, which other threads wake too.
pub(crate) trait Bystander {
    /// Declares the thread idle; `false` where work came in since it last was.
    fn begin_idle(&self) -> bool;
    /// Whether there is work now.
    fn has_work(&self) -> bool;
    /// Whether another thread may bring work. Called only where nothing is registered.
    fn may_bring_work(&self) -> bool;
    /// Whether who brings work also ends a sleep of the thread.
    fn ends_sleep(&self) -> bool;
    /// The thread is not idle any more.
    fn end_idle(&self);
}

/// Nobody else.
struct Alone;

impl Bystander for Alone {
    fn begin_idle(&self) -> bool {
        true
    }
    fn has_work(&self) -> bool {
        false
    }
    fn may_bring_work(&self) -> bool {
        false
    }
    fn ends_sleep(&self) -> bool {
        false
    }
    fn end_idle(&self) {}
}

impl<'l, C: Clock> Reactor<'l, C> {
    /// Wakes everything due, or, where nothing is, idles once.
    ///
    /// `park_bound` is the longest park, and with a doorbell the longest time between two looks at
    /// all slots. `tasks_left` is how many tasks the caller still has, for the error.
    ///
    /// # Errors
    ///
    /// [`Stalled`](ErrorCode::Stalled) where nothing is registered.
    pub fn turn<I: Idle>(
        &self,
        idle: &mut I,
        park_bound: DurNs,
        tasks_left: usize,
    ) -> Result<Turn> {
        self.turn_beside(idle, park_bound, tasks_left, &Alone)
    }

    pub(crate) fn turn_beside<I: Idle>(
        &self,
        idle: &mut I,
        park_bound: DurNs,
        tasks_left: usize,
        bystander: &impl Bystander,
    ) -> Result<Turn> {
        self.scan_bound.set(park_bound);
        let seen = self.seen_now();
        if !bystander.begin_idle() {
            return Ok(Turn::Woke);
        }
        let ended = EndIdle(bystander);
        let mut now = self.clock.monotonic_ns();
        if self.is_waiting() && self.fire_before_idle(seen.as_ref(), &mut now, bystander)
            || bystander.has_work()
        {
            return Ok(Turn::Woke);
        }
        let (slots, earliest) = {
            let tables = self.tables.borrow();
            (tables.lines.slots(), tables.registered.next_timer())
        };
        let turn = match (slots, earliest) {
            (1.., earliest) => {
                let bound = earliest.map_or(park_bound, |at| park_bound.min(at.since(now)));
                if self.has_spinning_waits() {
                    let spun = self.spin(idle, bound, seen.as_ref(), bystander);
                    // What ended it is woken here and not in the turn to come, and the doorbell, which
                    // another core may be writing to, is not read if a word was seen: each of them
                    // would be on the way of every completion.
                    drop(ended);
                    if spun != Spun::Nothing && self.fire_after_spin(spun, now) {
                        return Ok(Turn::Woke);
                    }
                } else {
                    self.park(idle, bound, seen.as_ref(), bystander);
                }
                return Ok(Turn::Parked);
            }
            (0, Some(earliest)) => {
                let unheard = !bystander.ends_sleep() && bystander.may_bring_work();
                let at = if unheard { earliest.min(now.after(park_bound)) } else { earliest };
                idle.sleep_until(at);
                Turn::Slept
            }
            (0, None) if bystander.may_bring_work() => {
                if bystander.ends_sleep() {
                    idle.sleep_until(now.after(park_bound.max(STALL_CHECK)));
                    Turn::Slept
                } else {
                    let nothing = CompletionLine::default();
                    idle.park_line(&nothing, |_| bystander.has_work(), park_bound);
                    Turn::Parked
                }
            }
            // The last who could bring work may have done so and gone in between.
            (0, None) if bystander.has_work() => Turn::Woke,
            (0, None) => {
                return Err(Error::new(ErrorCode::Stalled, [tasks_left.to_string()]));
            }
        };
        drop(ended);
        Ok(turn)
    }

    /// Completes a scan that is under way, and makes a new one if it is due: then everything that
    /// was rung for up to `seen` has been seen. Returns `true` if it woke something or if the
    /// bystander has work, before it is complete. `now` is brought up to date.
    ///
    /// A scan under way is not begun anew, so that a thread that is interrupted each time reaches
    /// every line all the same.
    fn fire_before_idle(
        &self,
        seen: Option<&Seen>,
        now: &mut MonoNs,
        bystander: &impl Bystander,
    ) -> bool {
        let mut is_new = false;
        loop {
            if !self.is_scanning()
                && !core::mem::replace(&mut is_new, true)
                && self.is_scan_due(seen, *now)
            {
                self.begin_scan();
            }
            if self.step(STEP_LINES, *now) {
                return true;
            }
            if !self.is_scanning() && is_new {
                return false;
            }
            // Steps take time: alarms may be due meanwhile, and the bound of the idle is told from
            // its beginning.
            *now = self.clock.monotonic_ns();
            if bystander.has_work() {
                return true;
            }
        }
    }

    fn park<I: Idle>(
        &self,
        idle: &mut I,
        bound: DurNs,
        seen: Option<&Seen>,
        bystander: &impl Bystander,
    ) {
        if let (Some(watch), Some(seen)) = (&self.doorbell, seen) {
            let rung =
                |line: &CompletionLine| line_differs(line, seen.words()) || bystander.has_work();
            idle.park_line(watch.doorbell.line(), rung, bound);
            return;
        }
        // The line and its targets are copied: an idle is the caller's code and may come back here.
        let watched = self.tables.borrow_mut().lines.next_to_watch();
        let Some((line, targets)) = watched else { return };
        let line: &LineRef<'l> = &line;
        if let Some(line) = line.line() {
            let ready = |line: &CompletionLine| targets.any_reached(line) || bystander.has_work();
            idle.park_line(line, ready, bound);
        }
    }

    /// Spins on the words themselves and on the doorbell: on all of the lines if they are few, else on
    /// some of them at a time, so that a device that does not ring is seen soon as well.
    fn spin<I: Idle>(
        &self,
        idle: &mut I,
        bound: DurNs,
        seen: Option<&Seen>,
        bystander: &impl Bystander,
    ) -> Spun {
        let (position, spun) = (Cell::new(0), Cell::new(Spun::Nothing));
        let any_reached = || {
            let (reached, next) =
                self.tables.borrow().lines.any_reached_of(position.get(), SPIN_LINES);
            position.set(next);
            if reached {
                spun.set(Spun::Reached);
            }
            reached
        };
        if let (Some(watch), Some(seen)) = (&self.doorbell, seen) {
            let rung = |line: &CompletionLine| {
                let rung = line_differs(line, seen.words());
                if rung {
                    spun.set(Spun::Rung);
                }
                rung
            };
            let ready = |line: &CompletionLine| any_reached() || bystander.has_work() || rung(line);
            idle.spin_line(watch.doorbell.line(), ready, bound);
        } else {
            let nothing = CompletionLine::default();
            idle.spin_line(&nothing, |_| any_reached() || bystander.has_work(), bound);
        }
        spun.get()
    }

    /// Wakes what ended a spin that began at `now`.
    fn fire_after_spin(&self, spun: Spun, now: MonoNs) -> bool {
        // The doorbell counts as seen only if a scan begins with it.
        let begins = !self.is_scanning()
            && (spun == Spun::Reached || self.is_scan_due(self.seen_now().as_ref(), now));
        if begins {
            self.begin_scan();
        }
        // In short steps: what is found is woken before the rest is scanned, in the next turn.
        while self.is_scanning() {
            if self.step(SPIN_LINES, now) {
                return true;
            }
        }
        false
    }
}

/// What ended a spin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spun {
    /// The bound, or work of the bystander.
    Nothing,
    /// A word was reached.
    Reached,
    /// The doorbell was rung.
    Rung,
}

/// Declares the thread busy again, also where an idle panics.
struct EndIdle<'b, B: Bystander>(&'b B);

impl<B: Bystander> Drop for EndIdle<'_, B> {
    fn drop(&mut self) {
        self.0.end_idle();
    }
}
