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
/// With nothing registered every policy ends in one sleep in the kernel that only a registration
/// ends.
///
/// Any values are allowed: a patience is never shorter than 100 us, and one thread may always be
/// stuck.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchPolicy {
    /// How it parks while something is registered. A registration beside others does not restart
    /// the policy's phases; the first one after a rest does, and so does a word that was reached.
    /// In each case [`ParkPolicy::share_permille`] bounds what they cost.
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
    /// How many threads may be stuck in calls at one time, of as many devices: while a status call
    /// of one device does not return, no other one of that device is made. Once they are, no status
    /// is asked before one comes back: see [`Watcher`](super::Watcher).
    pub stuck_max: usize,
}

/// A shorter one would have the spare thread look without a pause, and take every call for one that
/// hangs.
const SHORTEST_PATIENCE: DurNs = DurNs::from_us(100);

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

    /// The policy as it is followed.
    pub(super) fn clamped(self) -> Self {
        let patience = self.patience.max(SHORTEST_PATIENCE);
        WatchPolicy { patience, stuck_max: self.stuck_max.max(1), ..self }
    }
}

impl Default for WatchPolicy {
    /// [`BALANCED`](Self::BALANCED).
    fn default() -> Self {
        WatchPolicy::BALANCED
    }
}
