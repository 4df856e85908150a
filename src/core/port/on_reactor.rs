//! The port whose waiting is an await on a reactor, so that other tasks run meanwhile.

use super::CompletionPort;
use super::point::{StreamPoint, Ticket};
use super::stream::DeviceStream;
use crate::core::error::{Error, Result};
use crate::core::executor::yield_now;
use crate::core::reactor::Reactor;
use crate::core::time::{Clock, DurNs};

/// A port of a stream whose parks, polls and pauses are awaits on a [`Reactor`].
///
/// [`block`](CompletionPort::block) blocks the thread, and every task of it, in the driver.
pub struct ReactorPort<'r, 'l, S, C> {
    point: StreamPoint<S>,
    reactor: &'r Reactor<'l, C>,
}

impl<'r, 'l, S: DeviceStream, C: Clock> ReactorPort<'r, 'l, S, C> {
    /// A port of everything queued on `stream`; it parks on `reactor`, whose executor polls it.
    pub fn new(stream: S, reactor: &'r Reactor<'l, C>) -> Self {
        ReactorPort { point: StreamPoint::new(stream), reactor }
    }

    /// The stream.
    pub fn stream(&self) -> &S {
        self.point.stream()
    }

    /// Queues the store now, behind everything queued so far, so that this point can be waited for
    /// after more was queued.
    ///
    /// # Errors
    ///
    /// That of [`DeviceStream::mark`].
    pub fn mark(&self) -> Result<Ticket> {
        self.point.mark()
    }

    /// A port of the point of `ticket`, which must be one of this stream's. Arming it queues
    /// nothing.
    pub fn at(&self, ticket: Ticket) -> ReactorPort<'r, 'l, &S, C> {
        ReactorPort { point: self.point.at(ticket), reactor: self.reactor }
    }
}

impl<S: DeviceStream, C: Clock> CompletionPort for ReactorPort<'_, '_, S, C> {
    type Error = Error;

    fn begin(&mut self) {
        self.point.begin();
    }

    fn query(&mut self) -> Result<bool> {
        self.point.query()
    }

    async fn block(&mut self) -> Result<()> {
        self.point.synchronize()
    }

    async fn poll(&mut self) -> Result<()> {
        self.point.check_poll()?;
        while !self.point.query()? {
            yield_now().await;
        }
        Ok(())
    }

    fn arm(&mut self) -> Result<()> {
        self.point.arm()
    }

    async fn park(&mut self, bound: DurNs) -> Result<bool> {
        let Some(descriptor) = self.point.descriptor() else {
            yield_now().await;
            return Ok(false);
        };
        let until = self.reactor.clock().monotonic_ns().after(bound);
        Ok(self.reactor.ready_owned(descriptor, Some(until)).await)
    }

    fn seen(&mut self) -> bool {
        self.point.seen()
    }

    async fn pause(&mut self) {
        yield_now().await;
    }
}

impl<S, C> core::fmt::Debug for ReactorPort<'_, '_, S, C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ReactorPort").finish_non_exhaustive()
    }
}
