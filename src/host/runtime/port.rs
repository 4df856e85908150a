//! The port that a runtime makes of a stream: on its reactor, or on the thread for `naive`.

use super::handle::Handle;
use crate::core::error::{Error, Result};
use crate::core::port::{CompletionPort, DeviceStream, ReactorPort, Spun, ThreadPort, Ticket};
use crate::core::time::{Clock, DurNs, MonoNs};
use crate::host::{StdClock, StdIdle};

/// A port of a stream, made by [`Handle::port`](super::Handle::port).
///
/// Outside its running runtime its [`park`](CompletionPort::park) is an error, as the waits of the
/// handle are. Polls and pauses yield and so make progress under any executor.
#[derive(Debug)]
pub struct RuntimePort<'h, S> {
    pub(super) kind: Kind<'h, S>,
    pub(super) handle: &'h Handle,
}

#[derive(Debug)]
pub(super) enum Kind<'h, S> {
    Thread(ThreadPort<S, StdIdle>),
    Reactor(ReactorPort<'h, 'static, S, StdClock>),
}

/// The same call on whichever port it is.
macro_rules! either {
    ($self:ident, $port:ident => $call:expr) => {
        match &mut $self.kind {
            Kind::Thread($port) => $call,
            Kind::Reactor($port) => $call,
        }
    };
}

impl<S: DeviceStream> RuntimePort<'_, S> {
    /// The stream.
    pub fn stream(&self) -> &S {
        match &self.kind {
            Kind::Thread(port) => port.stream(),
            Kind::Reactor(port) => port.stream(),
        }
    }

    /// Queues the store now, after everything queued so far, so that this point can be waited for
    /// after more was queued.
    ///
    /// # Errors
    ///
    /// That of [`DeviceStream::mark`].
    pub fn mark(&self) -> Result<Ticket> {
        match &self.kind {
            Kind::Thread(port) => port.mark(),
            Kind::Reactor(port) => port.mark(),
        }
    }

    /// A port of the point of `ticket`, which must be one of this stream's. Arming it queues nothing.
    /// Ports of several tickets can be held and awaited at once.
    #[must_use]
    pub fn at(&self, ticket: Ticket) -> RuntimePort<'_, &S> {
        let kind = match &self.kind {
            // Each has an idle of its own, as two of them may park at the same time.
            Kind::Thread(port) => Kind::Thread(port.at_with(ticket, port.idle().another())),
            Kind::Reactor(port) => Kind::Reactor(port.at(ticket)),
        };
        RuntimePort { kind, handle: self.handle }
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
        let handle = self.handle;
        either!(self, port => handle.within("a park", port.park(bound)).await?)
    }

    fn seen(&mut self) -> bool {
        either!(self, port => port.seen())
    }

    async fn pause(&mut self) {
        either!(self, port => port.pause().await);
    }

    async fn spin<T: Clock>(
        &mut self,
        time: &T,
        backstop: DurNs,
        until: Option<MonoNs>,
    ) -> Result<Spun> {
        match &mut self.kind {
            Kind::Thread(port) => port.spin(time, backstop, until).await,
            Kind::Reactor(port) => {
                self.handle.within("a spin", port.spin(time, backstop, until)).await?
            }
        }
    }
}
