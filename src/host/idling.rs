//! How a thread sleeps until an instant and parks on a line, whatever it sleeps in.

use super::std_clock::StdClock;
use super::std_idle::policy::{ParkPolicy, Step};
use crate::core::line::CompletionLine;
use crate::core::time::{Clock, DurNs, MonoNs};
use core::hint;
use std::thread;

/// How many looks a spin makes between two looks at the clock, each of which costs several.
const LOOKS: u32 = 8;

/// Sleeps shorter than this are spun: they are over before the kernel has put the thread to sleep.
const SPIN_INSTEAD_OF_SLEEP: DurNs = DurNs::from_us(3);

/// Parks with less than this in between are one idleness.
const ONE_IDLENESS: DurNs = DurNs::from_us(50);

/// What a thread sleeps in, and what ends its sleep.
pub(super) trait Sleeper {
    /// Uses up a notification, if there is one.
    fn take(&self) -> bool;

    /// Whether something else has come that ends idling; it may enter the kernel to learn that only
    /// where `may_enter`. Provided: nothing else.
    fn look(&self, may_enter: bool) -> bool {
        let _ = may_enter;
        false
    }

    /// Sleeps in the kernel until `at`, a notification, which it uses up, or what `look` tells of.
    /// Whether it was one of the latter two.
    fn sleep(&self, at: MonoNs) -> bool;
}

/// One thread's idling.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idling {
    pub(super) clock: StdClock,
    pub(super) policy: ParkPolicy,
    /// The idleness that the last park was part of, if that may go on.
    idleness: Option<Idleness>,
}

#[derive(Clone, Copy, Debug)]
struct Idleness {
    since: MonoNs,
    /// When its last park ended.
    last: MonoNs,
}

impl Idling {
    pub(super) fn new(clock: StdClock, policy: ParkPolicy) -> Self {
        Idling { clock, policy, idleness: None }
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
    pub(super) fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        sleeper: &impl Sleeper,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        let began = self.clock.monotonic_ns();
        let end = began.after(bound);
        let since = self.idle_since(began);
        self.interrupt();
        let mut now = began;
        loop {
            let step = self.policy.step(now.since(since));
            for _ in 0..if step == Step::Spin { LOOKS } else { 1 } {
                if ready(line) {
                    return true;
                }
                if sleeper.take() {
                    return ready(line);
                }
                hint::spin_loop();
            }
            if sleeper.look(true) {
                return ready(line);
            }
            if now >= end {
                self.idleness = Some(Idleness { since, last: now });
                return false;
            }
            match step {
                Step::Spin => {}
                Step::Yield => thread::yield_now(),
                // A store between the look above and the kernel's sleep is seen after the slice: that
                // is what the slice is short for. What ends the idling is not missed.
                Step::Sleep(slice) => {
                    if sleeper.sleep(now.after(slice).min(end)) {
                        return ready(line);
                    }
                }
            }
            now = self.clock.monotonic_ns();
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
            for _ in 0..LOOKS {
                if ready(line) {
                    return true;
                }
                if sleeper.take() {
                    return ready(line);
                }
                hint::spin_loop();
            }
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
