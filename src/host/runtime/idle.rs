//! The idle of a runtime's thread: which one runs was settled when the runtime was built.

use crate::core::idle::Idle;
use crate::core::line::CompletionLine;
use crate::core::plan::HostCaps;
use crate::core::setting::{ExecutorCaps, ExecutorKind};
use crate::core::time::{DurNs, MonoNs};
use crate::host::{ParkPolicy, StdClock, StdIdle, io_uring_caps};
use core::task::Waker;

/// How the thread of a runtime idles.
pub(super) enum RuntimeIdle {
    /// With what the standard library's systems offer.
    Std(StdIdle),
    /// In a ring.
    Ring(ring::RingIdle),
}

/// The same call on whichever idle it is.
macro_rules! either {
    ($self:ident, $idle:ident => $call:expr) => {
        match $self {
            RuntimeIdle::Std($idle) => $call,
            RuntimeIdle::Ring($idle) => $call,
        }
    };
}

/// The idles that a host offers, before the executor is settled.
pub(super) struct Probed {
    thread: StdIdle,
    ring: Option<ring::RingIdle>,
}

impl RuntimeIdle {
    /// Probes what every executor may need, and the ring if `kind` is its executor. All of them park
    /// in hardware where the host has it, and else by `policy`.
    pub(super) fn probe(
        clock: StdClock,
        policy: Option<ParkPolicy>,
        kind: ExecutorKind,
    ) -> (Probed, ExecutorCaps) {
        let (probed, _) = StdIdle::probe(clock);
        let thread = match policy {
            Some(policy) => probed.parking_by(policy),
            None => probed,
        };
        let wanted = (kind == ExecutorKind::IoUring).then(|| ring::probe(&thread));
        let (ring, io_uring) = match wanted {
            Some(Ok(ring)) => (Some(ring), Ok(())),
            Some(Err(why)) => (None, Err(why)),
            // Not asked for, so not tried.
            None => (None, Ok(())),
        };
        (Probed { thread, ring }, ExecutorCaps { word_wait: Ok(()), io_uring })
    }

    /// What this idle, the one that runs, offers to wait plans.
    pub(super) fn host_caps(&self) -> HostCaps {
        either!(self, idle => idle.host_caps())
    }
}

/// What this host offers its executors. An idle of the standard library parks on a word by a stated
/// policy, on every host, so `word_wait` is always there. Makes a ring and gives it up.
#[must_use]
pub fn executor_caps() -> ExecutorCaps {
    ExecutorCaps { word_wait: Ok(()), io_uring: io_uring_caps() }
}

impl Probed {
    /// The idle of the executor's thread, and one whose like each port of the `naive` executor gets.
    pub(super) fn of(self, kind: ExecutorKind) -> (RuntimeIdle, StdIdle) {
        let of_ports = self.thread.another();
        let idle = match self.ring {
            Some(ring) if kind == ExecutorKind::IoUring => RuntimeIdle::Ring(ring),
            _ => RuntimeIdle::Std(self.thread),
        };
        (idle, of_ports)
    }
}

impl Idle for RuntimeIdle {
    fn sleep_until(&mut self, at: MonoNs) {
        either!(self, idle => idle.sleep_until(at));
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        either!(self, idle => idle.park_line(line, ready, bound))
    }

    fn spin_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        either!(self, idle => idle.spin_line(line, ready, bound))
    }

    fn unparker(&self) -> Option<Waker> {
        either!(self, idle => idle.unparker())
    }

    fn thread_token(&self) -> Option<fn() -> usize> {
        either!(self, idle => idle.thread_token())
    }

    fn has_io(&self) -> bool {
        either!(self, idle => idle.has_io())
    }

    fn poll_io(&mut self, now: MonoNs) -> bool {
        either!(self, idle => idle.poll_io(now))
    }
}

where_io_uring! {
    mod ring {
        //! The ring, where there is one.

        use crate::host::StdIdle;
        use alloc::string::{String, ToString};

        pub(super) use crate::host::UringIdle as RingIdle;

        pub(super) fn probe(thread: &StdIdle) -> Result<RingIdle, String> {
            let ring = RingIdle::new(thread.clock(), thread.policy());
            ring.map(|ring| ring.parking_like(thread)).map_err(|refusal| refusal.to_string())
        }
    }

    impl RuntimeIdle {
        /// What starts operations on the ring, if the thread idles in one.
        pub(super) fn ring_handle(&self) -> Option<crate::host::UringHandle> {
            match self {
                RuntimeIdle::Std(_) => None,
                RuntimeIdle::Ring(ring) => Some(ring.handle()),
            }
        }
    }
}

where_no_io_uring! {
    mod ring {
        //! No ring, on this system or in this build.

        use crate::host::{StdIdle, io_uring_caps};
        use alloc::string::String;

        /// Never made: the probe fails.
        pub(super) type RingIdle = StdIdle;

        pub(super) fn probe(_: &StdIdle) -> Result<RingIdle, String> {
            Err(io_uring_caps().expect_err("a build without rings says why"))
        }
    }
}

#[cfg(all(test, not(loom), feature = "software"))]
mod tests;
