//! From two texts to a runtime: parse, probe, resolve.

use super::events;
use super::handle::Handle;
use super::idle::RuntimeIdle;
use super::{Running, Runtime};
use crate::core::doorbell::Doorbell;
use crate::core::error::Result;
use crate::core::executor::Executor;
use crate::core::plan::{DeviceCaps, WaitBands};
use crate::core::setting::{ExecutorKind, Strictness, resolve};
use crate::core::time::DurNs;
use crate::host::{ParkPolicy, StdClock};
use alloc::string::{String, ToString};
use core::cell::RefCell;

/// How a [`Runtime`] is made.
#[derive(Clone, Debug)]
pub struct RuntimeBuilder {
    plan: String,
    executor: String,
    strictness: Strictness,
    device: Option<DeviceCaps>,
    doorbell: Option<Doorbell>,
    policy: Option<ParkPolicy>,
    clock: StdClock,
    park_bound: DurNs,
}

impl RuntimeBuilder {
    pub(super) fn new(plan: &str, executor: &str) -> Self {
        RuntimeBuilder {
            plan: plan.to_string(),
            executor: executor.to_string(),
            strictness: Strictness::Fallback,
            device: None,
            doorbell: None,
            policy: None,
            clock: StdClock::new(),
            park_bound: DurNs::from_ms(1),
        }
    }

    /// Refuses an executor that cannot run here instead of falling back.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.strictness = Strictness::Strict;
        self
    }

    /// Resolves the plans on this device as well. Without it stores are taken to land.
    #[must_use]
    pub fn device(mut self, caps: DeviceCaps) -> Self {
        self.device = Some(caps);
        self
    }

    /// Watches this doorbell, one that lies in memory of the device, instead of one in host memory.
    /// A device that shares no memory with the host at large can ring no other.
    #[must_use]
    pub fn doorbell(mut self, doorbell: Doorbell) -> Self {
        self.doorbell = Some(doorbell);
        self
    }

    /// Parks by `policy` if the hardware cannot, with any executor. A `flag` plan parks in hardware or
    /// falls back; the policy does not change that.
    #[must_use]
    pub fn park_policy(mut self, policy: ParkPolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Tells the time by `clock`: whether sleeps lower the timer slack of the thread.
    #[must_use]
    pub fn clock(mut self, clock: StdClock) -> Self {
        self.clock = clock;
        self
    }

    /// The longest park, and the longest time until the store of a device that does not ring the
    /// doorbell is seen; 1 ms unless set.
    #[must_use]
    pub fn park_bound(mut self, bound: DurNs) -> Self {
        self.park_bound = bound;
        self
    }

    /// Parses both texts, probes the host, resolves, and makes the runtime.
    ///
    /// # Errors
    ///
    /// [`InvalidPlan`](crate::ErrorCode::InvalidPlan) and
    /// [`InvalidExecutor`](crate::ErrorCode::InvalidExecutor) for the texts, which also point at the
    /// fault; [`ExecutorRefused`](crate::ErrorCode::ExecutorRefused) where a fallback was forbidden.
    pub fn build(self) -> Result<Runtime> {
        let requested = WaitBands::parse(&self.plan)?;
        let kind: ExecutorKind = self.executor.parse()?;
        let (idles, executor_caps) = RuntimeIdle::probe(self.clock, self.policy, kind);
        let executor = resolve(kind, self.strictness, &executor_caps)?;
        // What the plans resolve to is what idles: the idle that runs answers for itself.
        let (idle, thread_idles) = idles.of(executor.running);
        let host_caps = idle.host_caps();
        let plans = match &self.device {
            Some(device) => requested.resolve_on(&host_caps, device),
            None => requested.resolve(&host_caps),
        };
        events::resolved(&plans, &executor);
        let tasks = Executor::new();
        let bell = self.doorbell.unwrap_or_default();
        let spawner = tasks.spawner();
        let handle = Handle::new(self.clock, bell, plans, executor, thread_idles, &idle, spawner);
        let running = RefCell::new(Running { executor: tasks, idle });
        Ok(Runtime { handle, running, park_bound: self.park_bound })
    }
}
