//! How many cheap steps to take between two looks that cost more than a step.
//!
//! A clock read costs several task switches and dozens of looks at a word. The pacer spaces the
//! reads so that they cost a few percent of the steps between them, and no more than
//! [`MAX_STEPS`] steps pass without one however long a step gets.

use super::time::MonoNs;

/// The most steps between two looks.
pub(crate) const MAX_STEPS: u32 = 16;

/// The time between two looks that is aimed at: some sixteen times what a clock read costs.
const AIM_NS: u64 = 400;

#[derive(Debug)]
pub(crate) struct Pacer {
    left: u32,
    every: u32,
    looked_at: MonoNs,
}

impl Pacer {
    /// The first look is due at the first step.
    pub(crate) fn new() -> Self {
        Pacer { left: 1, every: 1, looked_at: MonoNs(0) }
    }

    /// Counts a step; says whether a look is due, after which [`looked`](Self::looked) is called.
    #[inline]
    pub(crate) fn step(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }

    /// How many steps were taken when a look is due.
    pub(crate) fn every(&self) -> u32 {
        self.every
    }

    /// A look was made at `now`.
    pub(crate) fn looked(&mut self, now: MonoNs) {
        let elapsed = now.since(self.looked_at).0;
        self.looked_at = now;
        if elapsed < AIM_NS {
            self.every = (self.every * 2).min(MAX_STEPS);
        } else if elapsed > 2 * AIM_NS {
            self.every = ((u64::from(self.every) * AIM_NS / elapsed) as u32).max(1);
        }
        self.left = self.every;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DurNs;

    /// Steps until the next look is due, each taking `step_ns`.
    fn steps_to_look(pacer: &mut Pacer, now: &mut MonoNs, step_ns: u64) -> u32 {
        for steps in 1.. {
            *now = now.after(DurNs(step_ns));
            if pacer.step() {
                pacer.looked(*now);
                return steps;
            }
        }
        unreachable!("a look is due after at most MAX_STEPS steps")
    }

    #[test]
    fn cheap_steps_are_looked_at_seldom_and_long_ones_each() {
        let (mut pacer, mut now) = (Pacer::new(), MonoNs(1_000_000));
        (0..10).for_each(|_| _ = steps_to_look(&mut pacer, &mut now, 5));
        assert_eq!(steps_to_look(&mut pacer, &mut now, 5), MAX_STEPS);
        steps_to_look(&mut pacer, &mut now, 1_000_000);
        assert_eq!(steps_to_look(&mut pacer, &mut now, 1_000_000), 1);
    }
}
