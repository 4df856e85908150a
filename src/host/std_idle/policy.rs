//! How a park without a hardware monitor is spent.

use crate::core::time::DurNs;
use crate::host::budget::WHOLE;

/// How a thread parks on a line if the CPU cannot watch it: first it spins, then it yields, then
/// it sleeps in slices, checking the line in between.
///
/// The times count from the beginning of the *idleness*, which goes on over parks that end because
/// their bound passed: a wait of 50 ms that parks 500 times for 100 us spins once. It begins anew
/// after a sleep, after a park that ended with `ready` or by the unparker, and if more than
/// 50 us lie between two parks.
///
/// A device's store is seen within about 100 ns while spinning, within 1 us while yielding on an
/// idle machine, and within a slice and the kernel's wake-up (together `slice` + 50 us, typically)
/// while sleeping. A store during the sleep cannot end it: no device makes the system call for
/// that. The unparker ends it at once.
///
/// # How much of a core
///
/// Spinning and yielding draw from a budget: [`share_permille`](Self::share_permille) of the time
/// that passes, saved up to ten times `spin` and `yielding` together. Over any time an idle spins and
/// yields *in vain* for at most that share of it, and that burst, whatever the waits are like and
/// however many there are. Once the budget is used up, a park sleeps in slices from its beginning.
/// Sleeps are charged too, 5 us each, but never refused, so that the share covers them as long as
/// they alone do not exceed it.
///
/// A park that ends with what it waited for before its first sleep costs the budget nothing: waits
/// that short are what the phases are for. So BALANCED ends waits of up to 1 ms as if spinning, also
/// if they come back to back, and then takes as much of the core as they last; a step every 2 ms or
/// more rarely, which is longer than the phases, is bounded by the share. Time in a yield counts
/// whether or not another thread had the core meanwhile.
///
/// CPU of a wait of 50 ms, from the test `a_wait_of_50_ms_costs_a_bounded_share_of_a_core` in
/// `tests/std_idle.rs`, which prints it, on a virtual machine with two cores: BALANCED 3 % of a
/// core in parks of 1 ms or more, 4 to 7 % in parks of 100 us; SAVING 1 to 2 %, and 4 to 5 %. Each
/// park ends the sleep that it is in, so short parks cost more than long ones.
///
/// | preset | spin | yield until | slices | share | for |
/// |---|---|---|---|---|---|
/// | [`SPIN`](Self::SPIN) | for ever | | | all | a core that has nothing else to do |
/// | [`BALANCED`](Self::BALANCED) (the default) | 200 us | 1 ms | 50 us to 1 ms | 10 % | waits under 1 ms as if spinning, little CPU in longer ones |
/// | [`SAVING`](Self::SAVING) | 5 us | 20 us | 100 us to 2 ms | 5 % | when CPU time matters more than 100 us |
///
/// Any values are allowed: a slice is never shorter than 10 us, and a share of more than 1,000 is
/// 1,000.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParkPolicy {
    /// How long to spin, with pause hints.
    pub spin: DurNs,
    /// How long to yield the core to other threads after that.
    pub yielding: DurNs,
    /// The shortest sleep in the kernel. A sixteenth of the idleness so far is slept at a time
    /// where that is longer, so that a long wait costs little and ends at most some 6 % late.
    pub min_slice: DurNs,
    /// The longest sleep in the kernel.
    pub max_slice: DurNs,
    /// How much of a core spins and yields that end in a sleep may take over time, in thousandths;
    /// 1,000: no limit.
    /// With 0 a park sleeps from its beginning.
    pub share_permille: u16,
}

/// The shortest slice of any policy: a shorter one would be a loop of system calls.
const SHORTEST_SLICE: DurNs = DurNs::from_us(10);

/// How many times its phases a policy may spend at once.
const BURST: u64 = 10;

impl ParkPolicy {
    /// Spins for as long as it takes: one core at 100 %.
    pub const SPIN: ParkPolicy = ParkPolicy {
        spin: DurNs::MAX,
        yielding: DurNs::ZERO,
        min_slice: DurNs::ZERO,
        max_slice: DurNs::ZERO,
        share_permille: 1_000,
    };

    /// The default.
    pub const BALANCED: ParkPolicy = ParkPolicy {
        spin: DurNs::from_us(200),
        yielding: DurNs::from_us(800),
        min_slice: DurNs::from_us(50),
        max_slice: DurNs::from_ms(1),
        share_permille: 100,
    };

    /// Sleeps almost at once.
    pub const SAVING: ParkPolicy = ParkPolicy {
        spin: DurNs::from_us(5),
        yielding: DurNs::from_us(15),
        min_slice: DurNs::from_us(100),
        max_slice: DurNs::from_ms(2),
        share_permille: 50,
    };

    /// What to do after `idle_for` of idleness, if spinning and yielding are `affordable` or if
    /// not.
    pub(in crate::host) fn step(&self, idle_for: DurNs, affordable: bool) -> Step {
        if affordable && idle_for < self.spin {
            Step::Spin
        } else if affordable && idle_for < self.phases() {
            Step::Yield
        } else {
            let slice = (idle_for.0 / 16).max(self.min_slice.0).min(self.max_slice.0);
            Step::Sleep(DurNs(slice).max(SHORTEST_SLICE))
        }
    }

    /// The time before the first sleep.
    pub(in crate::host) fn phases(&self) -> DurNs {
        DurNs(self.spin.0.saturating_add(self.yielding.0))
    }

    /// What may be spun and yielded at once, beyond the share.
    pub(in crate::host) fn burst(&self) -> DurNs {
        DurNs(self.phases().0.saturating_mul(BURST))
    }

    /// Whether a park by this policy never sleeps in the kernel.
    pub(in crate::host) fn never_sleeps(&self) -> bool {
        self.spin == DurNs::MAX && self.share_permille >= WHOLE
    }
}

impl Default for ParkPolicy {
    /// [`BALANCED`](Self::BALANCED).
    fn default() -> Self {
        ParkPolicy::BALANCED
    }
}

/// How the next stretch of a park is spent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::host) enum Step {
    Spin,
    Yield,
    Sleep(DurNs),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_park_spins_then_yields_then_sleeps_longer_and_longer() {
        let policy = ParkPolicy::default();
        let step = |us| policy.step(DurNs::from_us(us), true);
        assert_eq!(step(0), Step::Spin);
        assert_eq!(step(199), Step::Spin);
        assert_eq!(step(200), Step::Yield);
        assert_eq!(step(999), Step::Yield);
        assert_eq!(step(1_000), Step::Sleep(DurNs(62_500)));
        assert_eq!(
            ParkPolicy::SAVING.step(DurNs::from_us(20), true),
            Step::Sleep(DurNs::from_us(100))
        );
        assert_eq!(step(8_000), Step::Sleep(DurNs::from_us(500)));
        assert_eq!(policy.step(DurNs::ZERO, false), Step::Sleep(policy.min_slice));
        assert_eq!(step(60_000_000), Step::Sleep(policy.max_slice));
        assert_eq!(ParkPolicy::SPIN.step(DurNs(u64::MAX - 1), true), Step::Spin);
    }
}
