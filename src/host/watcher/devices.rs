//! Devices of which a status call does not return.
//!
//! While one is away, no other status of its device is asked: the watches whose turn it is are held
//! here, and are given back once the call returns. A device thus holds one thread of the crew at
//! most.

use super::duty::NO_DEVICE;
use crate::core::reactor::waiters::Registration;
use crate::core::time::{DurNs, MonoNs};
use alloc::vec::Vec;

/// A call that has been away for this long hangs; one that was given up before may only wait for
/// its turn on a machine whose cores are taken.
const SURELY: DurNs = DurNs::from_ms(500);

#[derive(Default)]
pub(super) struct Devices {
    hanging: Vec<Hanging>,
    /// Whose turn it was.
    held: Vec<Registration>,
    /// Since when no device at all can be asked, for want of a thread that would take over.
    blocked: Option<MonoNs>,
}

struct Hanging {
    device: usize,
    since: MonoNs,
}

impl Devices {
    /// A call of `device` was given up at `now`.
    pub(super) fn hangs(&mut self, device: usize, now: MonoNs) {
        if device != NO_DEVICE {
            self.hanging.push(Hanging { device, since: now });
        }
    }

    /// It has returned. Gives back whose turn it is now, of all devices.
    pub(super) fn returned(&mut self, device: usize) -> impl Iterator<Item = Registration> + '_ {
        if let Some(at) = self.hanging.iter().position(|hanging| hanging.device == device) {
            self.hanging.swap_remove(at);
        }
        self.held.drain(..)
    }

    /// Whether a status of `device` must not be asked.
    #[inline]
    pub(super) fn is_hanging(&self, device: usize) -> bool {
        self.hanging.iter().any(|hanging| hanging.device == device)
    }

    /// Whether a call of `device` hangs for so long that its other watches are given up.
    #[inline]
    pub(super) fn is_given_up(&self, device: usize, now: MonoNs) -> bool {
        self.hanging
            .iter()
            .any(|hanging| hanging.device == device && now.since(hanging.since) >= SURELY)
    }

    /// Whether for long no device could be asked: `is_blocked` at `now`, and at every look before for
    /// as long as a call takes that surely hangs.
    pub(super) fn is_all_given_up(&mut self, is_blocked: bool, now: MonoNs) -> bool {
        let since = *self.blocked.get_or_insert(now);
        if !is_blocked {
            self.blocked = None;
        }
        is_blocked && now.since(since) >= SURELY
    }

    /// Holds a watch of a device that hangs, one of `live`. Those that ended meanwhile, which
    /// `is_live` knows, are cleared out once they are more than half.
    pub(super) fn hold(
        &mut self,
        registration: Registration,
        live: usize,
        is_live: impl Fn(Registration) -> bool,
    ) {
        self.held.push(registration);
        if self.held.len() > 2 * live + 64 {
            self.held.retain(|&registration| is_live(registration));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn registration(ticket: u64) -> Registration {
        Registration { place: 0, ticket }
    }

    #[test]
    fn a_device_hangs_until_each_of_its_calls_has_returned() {
        let mut devices = Devices::default();
        let began = MonoNs(1_000);
        devices.hangs(NO_DEVICE, began);
        assert!(!devices.is_hanging(NO_DEVICE));
        devices.hangs(7, began);
        devices.hangs(8, began);
        assert!(devices.is_hanging(7) && devices.is_hanging(8) && !devices.is_hanging(9));
        assert!(!devices.is_given_up(7, began) && devices.is_given_up(7, began.after(SURELY)));
        devices.hold(registration(3), 10, |_| true);
        assert_eq!(devices.returned(8).map(|held| held.ticket).collect::<Vec<_>>(), [3]);
        assert!(devices.is_hanging(7) && !devices.is_hanging(8));
        assert_eq!(devices.returned(7).count(), 0);
        assert!(!devices.is_hanging(7));
    }

    #[test]
    fn all_devices_are_given_up_only_if_none_could_be_asked_all_the_time() {
        let mut devices = Devices::default();
        let at = |ms| MonoNs(DurNs::from_ms(ms).0);
        assert!(!devices.is_all_given_up(false, at(1)) && !devices.is_all_given_up(true, at(900)));
        assert!(
            !devices.is_all_given_up(true, at(1_399)) && devices.is_all_given_up(true, at(1_400))
        );
        assert!(!devices.is_all_given_up(false, at(1_401)));
        assert!(!devices.is_all_given_up(true, at(1_402)));
    }

    #[test]
    fn what_has_ended_while_its_device_hangs_is_not_kept() {
        let mut devices = Devices::default();
        devices.hangs(7, MonoNs(1));
        for ticket in 0..10_000 {
            devices.hold(registration(ticket), 1, |held| held.ticket == ticket);
            assert!(devices.held.len() <= 67);
        }
    }
}
