//! The idle of a runtime's thread: which one runs was settled when the runtime was built.

use crate::core::idle::Idle;
use crate::core::line::CompletionLine;
use crate::core::plan::HostCaps;
use crate::core::setting::{ExecutorCaps, ExecutorKind};
use crate::core::time::{DurNs, MonoNs};
use crate::host::{ParkPolicy, StdClock, StdIdle};
use alloc::string::ToString;
use core::task::Waker;

/// How the thread of a runtime idles.
pub(super) enum RuntimeIdle {
    /// With what the standard library's systems offer.
    Std(StdIdle),
}

/// The idles that a host offers, before the executor is settled.
pub(super) struct Probed {
    thread: StdIdle,
}

impl RuntimeIdle {
    /// Probes what every executor may need.
    pub(super) fn probe(
        clock: StdClock,
        policy: Option<ParkPolicy>,
    ) -> (Probed, HostCaps, ExecutorCaps) {
        let (probed, host) = StdIdle::probe(clock);
        let thread = policy.map_or(probed, |policy| StdIdle::with(clock, policy));
        (Probed { thread }, host, executor_caps())
    }
}

/// What this host offers its executors. An idle of the standard library parks on a word by a stated
/// policy, on every host, so `word_wait` is always there.
#[must_use]
pub fn executor_caps() -> ExecutorCaps {
    let io_uring = Err("this build has no host over io_uring".to_string());
    ExecutorCaps { word_wait: Ok(()), io_uring }
}

impl Probed {
    /// The idle of the executor's thread, and one whose like each port of the `naive` executor gets.
    pub(super) fn of(self, _kind: ExecutorKind) -> (RuntimeIdle, StdIdle) {
        let of_ports = self.thread.another();
        (RuntimeIdle::Std(self.thread), of_ports)
    }
}

impl Idle for RuntimeIdle {
    fn sleep_until(&mut self, at: MonoNs) {
        match self {
            RuntimeIdle::Std(idle) => idle.sleep_until(at),
        }
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        match self {
            RuntimeIdle::Std(idle) => idle.park_line(line, ready, bound),
        }
    }

    fn unparker(&self) -> Option<Waker> {
        match self {
            RuntimeIdle::Std(idle) => idle.unparker(),
        }
    }

    fn thread_token(&self) -> Option<fn() -> usize> {
        match self {
            RuntimeIdle::Std(idle) => idle.thread_token(),
        }
    }
}
