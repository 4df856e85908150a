//! The two ways a thread can wait: keeping it, or awaiting a reactor.

use gpu_async_reactor::backend::software::SoftwareStream;
use gpu_async_reactor::host::{StdClock, StdIdle};
use gpu_async_reactor::{
    DurNs, Reactor, ReactorPort, Result, ThreadPort, Ticket, WaitPlan, Waited, wait,
};

/// A stream, and a way to wait for points of it.
#[allow(async_fn_in_trait, reason = "waits run on one thread; their futures need not be Send")]
pub trait Lane {
    /// The stream.
    fn stream(&self) -> &SoftwareStream;

    /// Queues a store behind the work; the point that it stands for.
    ///
    /// # Errors
    ///
    /// The device's.
    fn mark(&mut self) -> Result<Ticket>;

    /// Waits for the point by `plan`.
    ///
    /// # Errors
    ///
    /// The device's.
    async fn wait_at(
        &mut self,
        ticket: Ticket,
        plan: &WaitPlan,
        sleep: Option<DurNs>,
    ) -> Result<Waited>;
}

/// The thread does nothing but wait; every future is ready at its first poll.
pub struct OnThread {
    /// Parks the thread.
    pub port: ThreadPort<SoftwareStream, StdIdle>,
    /// Sleeps by blocking the thread.
    pub clock: StdClock,
}

impl Lane for OnThread {
    fn stream(&self) -> &SoftwareStream {
        self.port.stream()
    }

    fn mark(&mut self) -> Result<Ticket> {
        self.port.mark()
    }

    async fn wait_at(
        &mut self,
        ticket: Ticket,
        plan: &WaitPlan,
        sleep: Option<DurNs>,
    ) -> Result<Waited> {
        wait(plan, sleep, &mut self.port.at(ticket), &self.clock).await
    }
}

/// Other tasks run while this one waits.
pub struct OnReactor<'r> {
    /// Awaits the reactor.
    pub port: ReactorPort<'r, 'static, SoftwareStream, StdClock>,
    /// Sleeps by its alarms.
    pub reactor: &'r Reactor<'static, StdClock>,
}

impl Lane for OnReactor<'_> {
    fn stream(&self) -> &SoftwareStream {
        self.port.stream()
    }

    fn mark(&mut self) -> Result<Ticket> {
        self.port.mark()
    }

    async fn wait_at(
        &mut self,
        ticket: Ticket,
        plan: &WaitPlan,
        sleep: Option<DurNs>,
    ) -> Result<Waited> {
        wait(plan, sleep, &mut self.port.at(ticket), self.reactor).await
    }
}
