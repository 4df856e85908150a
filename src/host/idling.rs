//! How a thread sleeps until an instant and parks on a line, whatever it sleeps in.

use super::budget::{Budget, Share};
use super::std_clock::StdClock;
use super::std_idle::policy::{ParkPolicy, Step};
use crate::core::line::CompletionLine;
use crate::core::time::{Clock, DurNs, MonoNs};
use core::hint;
use std::thread;

/// Number of checks that a spin makes between two reads of the clock, each of which costs several.
const CHECKS: u32 = 8;

/// Sleeps shorter than this are spun: they are over before the kernel has put the thread to sleep.
const SPIN_INSTEAD_OF_SLEEP: DurNs = DurNs::from_us(3);

/// Parks with less than this in between are one idleness.
const ONE_IDLENESS: DurNs = DurNs::from_us(50);

/// What one sleep in the kernel and its wake cost, roughly. Sleeps are charged to the budget with
/// it, but never refused by it.
const SLEEP_COST: DurNs = DurNs::from_us(5);

/// What a thread sleeps in, and what ends its sleep.
pub(super) trait Sleeper {
    /// Uses up a notification, if there is one.
    fn take(&self) -> bool;

    /// Whether something else has come that ends idling; it may enter the kernel to learn that only
    /// if `may_enter`. Default: nothing else.
    fn look(&self, may_enter: bool) -> bool {
        let _ = may_enter;
        false
    }

    /// Sleeps in the kernel until `at`, a notification, which it uses up, or what `look` reports.
    /// Returns `true` if one of the latter two ended it.
    fn sleep(&self, at: MonoNs) -> bool;
}

/// What a check between two stretches of a park finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Check {
    /// Nothing: the park goes on.
    Pending,
    /// Something to attend to that is not what the thread waits for: the park ends, and the
    /// idleness goes on with the next one.
    Stirred,
    /// What the thread waits for: the idleness is over.
    Ready,
}

/// One thread's idling.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idling<C = StdClock> {
    pub(super) clock: C,
    pub(super) policy: ParkPolicy,
    /// The idleness that the last park was part of, if that may go on.
    idleness: Option<Idleness>,
    /// What spins and yields draw from.
    budget: Budget,
}

#[derive(Clone, Copy, Debug)]
struct Idleness {
    since: MonoNs,
    /// When its last park ended, from where on it ends soon. `MAX` if it does not.
    last: MonoNs,
}

/// Why a park ended.
#[derive(Clone, Copy)]
enum Ended {
    Bound,
    Stirred,
    Ready,
    /// A notification, or what the sleeper reports.
    Woken,
}

impl<C: Clock> Idling<C> {
    pub(super) fn new(clock: C, policy: ParkPolicy) -> Self {
        let budget = Budget::new(Share::new(policy.share_permille, policy.burst()));
        Idling { clock, policy, idleness: None, budget }
    }

    /// The thread did something else than parking by the policy.
    pub(super) fn interrupt(&mut self) {
        self.idleness = None;
    }

    /// Sleeps until `at`, or until something ends it.
    pub(super) fn sleep_until(&mut self, sleeper: &impl Sleeper, at: MonoNs) {
        self.interrupt();
        loop {
            // Without entering the kernel: the sleep below does that.
            if sleeper.take() || sleeper.look(false) {
                return;
            }
            let left = at.since(self.clock.monotonic_ns());
            if left == DurNs::ZERO {
                return;
            }
            if left < SPIN_INSTEAD_OF_SLEEP {
                hint::spin_loop();
            } else if sleeper.sleep(at) {
                return;
            }
        }
    }

    /// Parks by the policy until `ready`, something that ends it, or `bound`. Returns `ready`.
    #[cfg_attr(not(feature = "io-uring"), allow(dead_code, reason = "the ring's"))]
    pub(super) fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        sleeper: &impl Sleeper,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        let check = |line: &CompletionLine| if ready(line) { Check::Ready } else { Check::Pending };
        self.park(sleeper, line, check, bound)
    }

    /// Parks by the policy until `check` finds something, something else ends it, or `bound`.
    /// Returns `true` if `check` answers [`Ready`](Check::Ready) then.
    pub(super) fn park<R: Fn(&CompletionLine) -> Check>(
        &mut self,
        sleeper: &impl Sleeper,
        line: &CompletionLine,
        check: R,
        bound: DurNs,
    ) -> bool {
        let began = self.clock.monotonic_ns();
        let since = self.idle_since(began);
        let (mut charged, budget) = (began, self.budget);
        let ended = self.park_since(since, &mut charged, sleeper, line, &check, began.after(bound));
        let ended = match ended {
            Ended::Woken => match check(line) {
                Check::Pending => Ended::Woken,
                Check::Stirred => Ended::Stirred,
                Check::Ready => Ended::Ready,
            },
            ended => ended,
        };
        if !self.budget.is_unlimited() {
            let now = self.clock.monotonic_ns();
            self.budget.spend(now, now.since(charged));
            charged = now;
        }
        if matches!(ended, Ended::Ready) && charged.since(since) <= self.policy.phases() {
            // Well spent: waits this short are what the policy spins and yields for.
            self.budget = budget;
        }
        self.idleness = match ended {
            Ended::Bound => Some(Idleness { since, last: charged }),
            // However long it takes to attend to.
            Ended::Stirred => Some(Idleness { since, last: MonoNs::MAX }),
            Ended::Ready | Ended::Woken => None,
        };
        matches!(ended, Ended::Ready)
    }

    /// Parks until `end`, in an idleness that began at `since`. What it spends up to `charged` is
    /// charged.
    fn park_since<R: Fn(&CompletionLine) -> Check>(
        &mut self,
        since: MonoNs,
        charged: &mut MonoNs,
        sleeper: &impl Sleeper,
        line: &CompletionLine,
        check: &R,
        end: MonoNs,
    ) -> Ended {
        loop {
            let now = *charged;
            let step = self.policy.step(now.since(since), self.budget.has_any(now));
            for _ in 0..if step == Step::Spin { CHECKS } else { 1 } {
                match check(line) {
                    Check::Pending => {}
                    Check::Stirred => return Ended::Stirred,
                    Check::Ready => return Ended::Ready,
                }
                if sleeper.take() {
                    return Ended::Woken;
                }
                hint::spin_loop();
            }
            if sleeper.look(true) {
                return Ended::Woken;
            }
            if now >= end {
                return Ended::Bound;
            }
            let woken = match step {
                Step::Spin => false,
                Step::Yield => {
                    thread::yield_now();
                    false
                }
                // A store between the check above and the kernel's sleep is seen after the slice:
                // that is what the slice is short for. What ends the idling is not missed.
                Step::Sleep(slice) => sleeper.sleep(now.after(slice).min(end)),
            };
            *charged = self.clock.monotonic_ns();
            let spent = match step {
                Step::Sleep(_) => SLEEP_COST.min(charged.since(now)),
                Step::Spin | Step::Yield => charged.since(now),
            };
            self.budget.spend(*charged, spent);
            if woken {
                return Ended::Woken;
            }
        }
    }

    /// Spins until `ready`, something that ends it, or `bound`. Returns `ready`.
    pub(super) fn spin_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        sleeper: &impl Sleeper,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        self.interrupt();
        let end = self.clock.monotonic_ns().after(bound);
        loop {
            // The pause, which takes longer than several checks, comes once for all of them.
            for _ in 0..CHECKS {
                if ready(line) {
                    return true;
                }
                if sleeper.take() {
                    return ready(line);
                }
            }
            hint::spin_loop();
            if sleeper.look(true) {
                return ready(line);
            }
            if self.clock.monotonic_ns() >= end {
                return false;
            }
        }
    }

    /// When the idleness that a park at `now` is part of began.
    fn idle_since(&self, now: MonoNs) -> MonoNs {
        match self.idleness {
            Some(idleness) if now.since(idleness.last) <= ONE_IDLENESS => idleness.since,
            _ => now,
        }
    }
}

#[cfg(test)]
mod tests;
