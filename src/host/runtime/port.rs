//! The port that a runtime makes of a stream: on its reactor, or on the thread for `naive`.

use crate::core::error::{Error, Result};
use crate::core::port::{CompletionPort, DeviceStream, ReactorPort, ThreadPort, Ticket};
use crate::core::time::DurNs;
use crate::host::{StdClock, StdIdle};

/// A port of a stream, made by [`Handle::port`](super::Handle::port).
#[derive(Debug)]
pub struct RuntimePort<'h, S>(pub(super) Kind<'h, S>);

#[derive(Debug)]
pub(super) enum Kind<'h, S> {
    Thread(ThreadPort<S, StdIdle>),
    Reactor(ReactorPort<'h, 'static, S, StdClock>),
}

/// The same call on whichever port it is.
macro_rules! either {
    ($self:ident, $port:ident => $call:expr) => {
        match &mut $self.0 {
            Kind::Thread($port) => $call,
            Kind::Reactor($port) => $call,
        }
    };
}

impl<S: DeviceStream> RuntimePort<'_, S> {
    /// The stream.
    pub fn stream(&self) -> &S {
        match &self.0 {
            Kind::Thread(port) => port.stream(),
            Kind::Reactor(port) => port.stream(),
        }
    }

    /// Queues the store now, behind everything queued so far, so that this point can be waited for
    /// after more was queued.
    ///
    /// # Errors
    ///
    /// That of [`DeviceStream::mark`].
    pub fn mark(&mut self) -> Result<Ticket> {
        either!(self, port => port.mark())
    }

    /// A port of the point of `ticket`, which must be one of this stream's. Arming it queues nothing.
    pub fn at(&mut self, ticket: Ticket) -> RuntimePort<'_, &S> {
        match &mut self.0 {
            Kind::Thread(port) => {
                let idle = port.idle().another();
                RuntimePort(Kind::Thread(port.at_with(ticket, idle)))
            }
            Kind::Reactor(port) => RuntimePort(Kind::Reactor(port.at(ticket))),
        }
    }
}

impl<S: DeviceStream> CompletionPort for RuntimePort<'_, S> {
    type Error = Error;

    fn begin(&mut self) {
        either!(self, port => port.begin());
    }

    fn query(&mut self) -> Result<bool> {
        either!(self, port => port.query())
    }

    async fn block(&mut self) -> Result<()> {
        either!(self, port => port.block().await)
    }

    async fn poll(&mut self) -> Result<()> {
        either!(self, port => port.poll().await)
    }

    fn arm(&mut self) -> Result<()> {
        either!(self, port => port.arm())
    }

    async fn park(&mut self, bound: DurNs) -> Result<bool> {
        either!(self, port => port.park(bound).await)
    }

    fn seen(&mut self) -> bool {
        either!(self, port => port.seen())
    }

    async fn pause(&mut self) {
        either!(self, port => port.pause().await);
    }
}
