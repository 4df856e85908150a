//! The port that parks the calling thread.

use super::CompletionPort;
use super::point::{StreamPoint, Ticket};
use super::recheck;
use super::stream::DeviceStream;
use crate::core::error::{Error, Result};
use crate::core::idle::Idle;
use crate::core::line::reached;
use crate::core::time::DurNs;

/// A port of a stream whose parks, polls and pauses keep the thread.
///
/// Its futures finish at their first poll, so that a wait on it, with a timer that blocks, can be
/// driven by [`run_inline`](crate::run_inline).
#[derive(Debug)]
pub struct ThreadPort<S, I> {
    point: StreamPoint<S>,
    idle: I,
}

impl<S: DeviceStream, I: Idle> ThreadPort<S, I> {
    /// A port of everything queued on `stream`; it parks by `idle`.
    pub fn new(stream: S, idle: I) -> Self {
        ThreadPort { point: StreamPoint::new(stream), idle }
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
    pub fn at(&mut self, ticket: Ticket) -> ThreadPort<&S, &mut I> {
        ThreadPort { point: self.point.at(ticket), idle: &mut self.idle }
    }

    /// The same with an idle of its own, so that ports of several points can be held at once.
    pub fn at_with<J: Idle>(&self, ticket: Ticket, idle: J) -> ThreadPort<&S, J> {
        ThreadPort { point: self.point.at(ticket), idle }
    }

    /// The idle.
    pub fn idle(&self) -> &I {
        &self.idle
    }
}

impl<S: DeviceStream, I: Idle> CompletionPort for ThreadPort<S, I> {
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
        let mut hints = 0;
        while !self.point.query()? {
            if self.point.seen() {
                // The word is there and the status is not.
                hints = recheck::pause_by_hints(hints);
            } else {
                core::hint::spin_loop();
            }
        }
        Ok(())
    }

    fn arm(&mut self) -> Result<()> {
        self.point.arm()
    }

    async fn park(&mut self, bound: DurNs) -> Result<bool> {
        let Some(number) = self.point.number() else { return Ok(false) };
        let stream = self.point.stream();
        let slot = stream.slot();
        let line = (**stream.line()).as_ref();
        Ok(self.idle.park_line(line, |line| reached(line, slot, number), bound))
    }

    fn seen(&mut self) -> bool {
        self.point.seen()
    }
}
