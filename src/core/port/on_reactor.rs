//! The port whose waiting is an await on a reactor, so that other tasks run meanwhile.

use super::CompletionPort;
use super::point::{StreamPoint, Ticket};
use super::recheck::Recheck;
use super::spin::{self, SpinEnd, Spun};
use super::stream::DeviceStream;
use crate::core::error::{Error, Result};
use crate::core::executor::yield_now;
use crate::core::reactor::{Reactor, SpinEvent};
use crate::core::time::{Clock, DurNs, MonoNs};

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
        let mut recheck: Option<Recheck> = None;
        while !self.point.query()? {
            if recheck.is_none() && self.point.seen() {
                recheck = Some(Recheck::new(self.reactor));
            }
            match &recheck {
                // The word is there and the status is not.
                Some(recheck) => recheck.pause(self, self.reactor, None).await,
                None => yield_now().await,
            }
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

    /// One loop of the thread for all waits of the reactor that spin, and one status query each
    /// backstop for all of them on this stream. A wait that spins alone spins by itself.
    async fn spin<T: Clock>(
        &mut self,
        time: &T,
        backstop: DurNs,
        until: Option<MonoNs>,
    ) -> Result<Spun> {
        let Some(descriptor) = self.point.descriptor() else {
            return spin::alone(self, time, backstop, until).await;
        };
        let count = self.reactor.count_spin();
        let alone = spin::alone_while(self, time, backstop, until, || count.is_alone()).await?;
        let mut queries = match alone {
            Ok(spun) => return Ok(spun),
            Err(queries) => queries,
        };
        let mut wait = self.reactor.spin_owned(descriptor, backstop, until);
        loop {
            match wait.next().await {
                SpinEvent::Reached => return Ok(Spun { end: SpinEnd::Reached, queries }),
                SpinEvent::QueryDue | SpinEvent::Expired => queries += 1,
            }
            match self.point.query() {
                Ok(false) if !wait.is_expired() => {}
                Ok(false) => return Ok(Spun { end: SpinEnd::Expired, queries }),
                Ok(true) => {
                    wait.end_by_query();
                    return Ok(Spun::done(self, queries));
                }
                Err(error) => {
                    wait.end_by_query();
                    return Err(error);
                }
            }
        }
    }
}

impl<S, C> core::fmt::Debug for ReactorPort<'_, '_, S, C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ReactorPort").finish_non_exhaustive()
    }
}
