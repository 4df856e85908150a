//! What of a plan can run here, decided once from what was probed.

use super::{Park, ParkKind, WaitPlan};
use crate::core::error::{Error, ErrorCode};
use crate::core::fallback::{Link, walk};
use alloc::string::{String, ToString};
use core::fmt;

/// What a park may need.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Capability {
    /// The host can park a thread in hardware on a word that a device writes. Known by the host:
    /// [`HostCaps::device_word_wait`].
    DeviceWordWait,
    /// A store that the device queues behind its work really lands in the word. Known by the
    /// backend: [`DeviceCaps::store`].
    DeviceStore,
}

impl Capability {
    /// The name used in warnings: `device_word_wait` or `device_store`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Capability::DeviceWordWait => "device_word_wait",
            Capability::DeviceStore => "device_store",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What the host offers, probed by the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostCaps {
    /// Whether a thread can park in hardware on a word, or why it cannot.
    pub device_word_wait: Result<(), String>,
}

/// What the device offers, probed by its backend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceCaps {
    /// Whether a store behind the work really lands, or why it does not.
    pub store: Result<(), String>,
}

impl HostCaps {
    /// Why `capability` is missing, as far as a host knows.
    fn why_missing(&self, capability: Capability) -> Option<&str> {
        match capability {
            Capability::DeviceWordWait => why(&self.device_word_wait),
            Capability::DeviceStore => None,
        }
    }
}

impl DeviceCaps {
    /// Why `capability` is missing, as far as a backend knows.
    fn why_missing(&self, capability: Capability) -> Option<&str> {
        match capability {
            Capability::DeviceWordWait => None,
            Capability::DeviceStore => why(&self.store),
        }
    }
}

fn why(offered: &Result<(), String>) -> Option<&str> {
    offered.as_ref().err().map(String::as_str)
}

/// One declared fallback of a park: where `needs` is missing, `to` takes the place of `from`.
pub type Fallback = Link<ParkKind, Capability>;

/// Every declared fallback of a park. `block` and `poll` need nothing.
pub const FALLBACKS: &[Fallback] = &[
    Fallback {
        from: ParkKind::FlagWait,
        needs: Capability::DeviceWordWait,
        to: ParkKind::QueryPoll,
    },
    Fallback { from: ParkKind::FlagWait, needs: Capability::DeviceStore, to: ParkKind::QueryPoll },
    Fallback { from: ParkKind::Spin, needs: Capability::DeviceStore, to: ParkKind::QueryPoll },
];

// A link leads only to a park whose numbers its origin has, and never to `block`, which would drop
// the prediction.
const _: () = {
    let mut at = 0;
    while at < FALLBACKS.len() {
        let Fallback { from, to, .. } = FALLBACKS[at];
        let has_numbers = match to {
            ParkKind::QueryPoll => true,
            ParkKind::Spin => matches!(from, ParkKind::FlagWait),
            ParkKind::Block | ParkKind::FlagWait => false,
        };
        assert!(has_numbers, "a fallback needs numbers that its origin does not have");
        at += 1;
    }
};

impl Park {
    /// This park as one of `kind`, with the numbers that it has.
    fn become_kind(self, kind: ParkKind) -> Park {
        match (kind, self) {
            (kind, park) if kind == park.kind() => park,
            (ParkKind::Spin, Park::FlagWait { backstop_ns, .. }) => Park::Spin { backstop_ns },
            // The chain, checked above, asks for nothing else; and a query every host has.
            _ => Park::QueryPoll,
        }
    }
}

/// A plan, and what of it runs here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolved {
    /// The plan that was asked for.
    pub requested: WaitPlan,
    /// The plan that runs.
    pub plan: WaitPlan,
    /// Where a fallback was taken, a [`ParkFallback`](ErrorCode::ParkFallback) that names the
    /// requested plan, the missing capability, why it is missing, and what runs.
    pub warning: Option<Error>,
}

impl Resolved {
    /// The running plan, and ` (fallback from <requested>)` where a fallback was taken.
    #[must_use]
    pub fn label(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Resolved {
    /// The [`label`](Resolved::label).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plan.fmt(f)?;
        match self.warning {
            Some(_) => write!(f, " (fallback from {})", self.requested),
            None => Ok(()),
        }
    }
}

impl WaitPlan {
    /// What of this plan can run on this host. What only the device can lack is taken as there, so
    /// that a program can resolve before it has a device; [`resolve_on`](Self::resolve_on) asks
    /// both.
    ///
    /// The prediction is kept. Costs nothing but the warning's texts.
    ///
    /// ```
    /// # use gpu_async_reactor::{HostCaps, WaitPlan};
    /// let host = HostCaps { device_word_wait: Err("no WAITPKG bit in CPUID".into()) };
    /// let resolved = WaitPlan::parse("flag:park_us=100,backstop_us=50000")?.resolve(&host);
    /// assert_eq!(resolved.label(), "poll (fallback from flag:park_us=100,backstop_us=50000)");
    /// println!("warning: {}", resolved.warning.unwrap());
    /// # Ok::<(), gpu_async_reactor::Error>(())
    /// ```
    #[must_use]
    pub fn resolve(&self, host: &HostCaps) -> Resolved {
        self.resolve_along(FALLBACKS, |needs| host.why_missing(needs))
    }

    /// What of this plan can run on this host with this device. Where both lack what the plan
    /// needs, the warning names what the host lacks.
    ///
    /// The prediction is kept. Costs nothing but the warning's texts.
    #[must_use]
    pub fn resolve_on(&self, host: &HostCaps, device: &DeviceCaps) -> Resolved {
        self.resolve_along(FALLBACKS, |needs| {
            host.why_missing(needs).or_else(|| device.why_missing(needs))
        })
    }

    fn resolve_along<'c>(
        &self,
        chain: &[Fallback],
        why_missing: impl Fn(Capability) -> Option<&'c str>,
    ) -> Resolved {
        let walk = walk(self.park.kind(), chain, why_missing);
        let plan = WaitPlan { park: self.park.become_kind(walk.running), ..*self };
        let warning = walk.warning(ErrorCode::ParkFallback, self, plan);
        Resolved { requested: *self, plan, warning }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAIL: &str = "+predict:margin_us=20,min_sleep_us=50,max_sleep_us=20000,window=8";

    fn host(word_wait: bool) -> HostCaps {
        let missing = || String::from("no such bit");
        HostCaps { device_word_wait: word_wait.then_some(()).ok_or_else(missing) }
    }

    fn device(store: bool) -> DeviceCaps {
        DeviceCaps { store: store.then_some(()).ok_or_else(|| String::from("it did not land")) }
    }

    fn plan(park: &str) -> WaitPlan {
        WaitPlan::parse(&(park.to_string() + TAIL)).unwrap()
    }

    #[test]
    fn a_plan_whose_needs_are_met_runs_as_requested_without_a_warning() {
        for text in ["block", "poll", "spin:backstop_us=1", "flag:park_us=1,backstop_us=2"] {
            let plan = WaitPlan::parse(text).unwrap();
            let resolved = plan.resolve_on(&host(true), &device(true));
            assert_eq!(resolved, Resolved { requested: plan, plan, warning: None });
            assert_eq!(resolved.label(), text);
        }
    }

    #[test]
    fn each_park_falls_back_to_poll_where_it_lacks_what_it_needs_and_keeps_its_prediction() {
        let (flag, spin) = (plan("flag:park_us=1,backstop_us=2"), plan("spin:backstop_us=2"));
        let cases = [
            (flag, false, true, Some("device_word_wait")),
            (flag, true, false, Some("device_store")),
            (flag, false, false, Some("device_word_wait")),
            (spin, false, true, None),
            (spin, true, false, Some("device_store")),
            (plan("poll"), false, false, None),
            (WaitPlan { predict: None, park: Park::Block }, false, false, None),
        ];
        for (plan, word_wait, store, missing) in cases {
            let resolved = plan.resolve_on(&host(word_wait), &device(store));
            let needed = resolved.warning.as_ref().map(|warning| warning.args()[1].as_str());
            assert_eq!(needed, missing, "{plan} {word_wait} {store}");
            assert_eq!(resolved.plan.predict, plan.predict);
            let runs = if missing.is_some() { Park::QueryPoll } else { plan.park };
            assert_eq!(resolved.plan.park, runs);
        }
    }

    #[test]
    fn a_host_alone_does_not_judge_what_only_the_device_knows() {
        let spin = plan("spin:backstop_us=2");
        assert_eq!(spin.resolve(&host(false)).warning, None);
        let flag = plan("flag:park_us=1,backstop_us=2");
        assert_eq!(flag.resolve(&host(true)).warning, None);
        assert!(flag.resolve(&host(false)).warning.is_some());
    }

    #[test]
    fn the_warning_and_the_label_name_the_requested_plan_and_what_runs() {
        let flag = plan("flag:park_us=1,backstop_us=2");
        let resolved = flag.resolve(&host(false));
        let warning = resolved.warning.as_ref().unwrap();
        assert_eq!(warning.code(), ErrorCode::ParkFallback);
        assert_eq!(warning.args()[0], flag.label());
        assert_eq!(warning.args()[1..3], ["device_word_wait", "no such bit"]);
        assert_eq!(warning.args()[3], plan("poll").label());
        let label = plan("poll").label() + " (fallback from " + &flag.label() + ")";
        assert_eq!(resolved.label(), label);
    }

    #[test]
    fn a_longer_chain_is_walked_to_the_first_park_that_can_run() {
        let (flag, spin) = (ParkKind::FlagWait, ParkKind::Spin);
        let chain = [
            Fallback { from: flag, needs: Capability::DeviceWordWait, to: spin },
            Fallback { from: spin, needs: Capability::DeviceStore, to: ParkKind::QueryPoll },
        ];
        let plan = plan("flag:park_us=1,backstop_us=2");
        let host = host(false);
        let resolved = plan.resolve_along(&chain, |needs| host.why_missing(needs));
        assert_eq!(resolved.plan.park, Park::Spin { backstop_ns: 2_000 });
        let resolved = plan.resolve_along(&chain, |_| Some("gone"));
        assert_eq!(resolved.plan.park, Park::QueryPoll);
        assert_eq!(resolved.warning.unwrap().args()[1], "device_word_wait and device_store");
    }
}
