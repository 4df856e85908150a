//! How a watcher waits, and how many threads it may lose.

use crate::core::time::DurNs;
use crate::host::ParkPolicy;

/// How the thread of a [`Watcher`](super::Watcher) waits while something is registered, and when it
/// gives a call up that does not return.
///
/// | preset | while watches are registered | with none | for |
/// |---|---|---|---|
/// | [`SPIN`](Self::SPIN) | spins: a word is seen within 100 ns | asleep after 1 ms | a core to spare |
/// | [`BALANCED`](Self::BALANCED) (the default) | spins 200 us, yields to 1 ms, then sleeps in slices | asleep after 50 us | programs whose waits are short or many |
/// | [`SAVING`](Self::SAVING) | sleeps in slices of 100 us to 2 ms almost at once | asleep at once | when CPU time matters more than 100 us |
///
/// With nothing registered every policy ends in one sleep in the kernel that only a registration ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchPolicy {
    /// How it parks while something is registered. Registering does not restart the policy's phases.
    pub park: ParkPolicy,
    /// How long it goes on looking for registrations, by `park`, after the last watch is gone. It
    /// then sleeps until the next registration, which pays for a system call.
    pub linger: DurNs,
    /// How long one call of a status, of a waker or of a destructor may take before another thread
    /// goes on with everything else. A call is given up after between half of this and all of it.
    ///
    /// A spare thread looks twice in this time, so that it costs `2 / patience` wake-ups a second
    /// while something is registered.
    pub patience: DurNs,
    /// How many threads may be stuck in calls at one time. Once they are, no status is asked before
    /// one comes back: see [`Watcher`](super::Watcher).
    pub stuck_max: usize,
}

impl WatchPolicy {
    /// Spins while anything is registered: one core at 100 %.
    pub const SPIN: WatchPolicy = WatchPolicy {
        park: ParkPolicy::SPIN,
        linger: DurNs::from_ms(1),
        patience: DurNs::from_ms(1),
        stuck_max: 4,
    };

    /// The default.
    pub const BALANCED: WatchPolicy = WatchPolicy {
        park: ParkPolicy::BALANCED,
        linger: DurNs::from_us(50),
        patience: DurNs::from_ms(4),
        stuck_max: 4,
    };

    /// Sleeps almost at once.
    pub const SAVING: WatchPolicy = WatchPolicy {
        park: ParkPolicy::SAVING,
        linger: DurNs::ZERO,
        patience: DurNs::from_ms(10),
        stuck_max: 4,
    };

    /// Whether a park by this policy never sleeps in the kernel.
    pub(super) fn never_sleeps(&self) -> bool {
        self.park.spin == DurNs::MAX
    }
}

impl Default for WatchPolicy {
    /// [`BALANCED`](Self::BALANCED).
    fn default() -> Self {
        WatchPolicy::BALANCED
    }
}
