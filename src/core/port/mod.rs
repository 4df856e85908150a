//! Ports: what a wait may do with one point of one stream, and the waits themselves.
//!
//! [`CompletionPort`] is the contract that [`wait()`] drives. [`DeviceStream`] is what a vendor's stream
//! can do; [`ThreadPort`] and [`ReactorPort`] make a port of any of them, one parking the thread,
//! the other awaiting a [`Reactor`](crate::Reactor). No backend has a waiting loop of its own.

mod inline;
mod on_reactor;
mod on_thread;
mod point;
mod recheck;
mod spin;
mod stream;
mod wait;

pub use inline::run_inline;
pub use on_reactor::ReactorPort;
pub use on_thread::ThreadPort;
pub use point::Ticket;
pub use spin::{SpinEnd, Spun};
pub use stream::DeviceStream;
#[allow(unused_imports, reason = "whose backends are there, the features say")]
pub(crate) use stream::forward_stream;
pub use wait::{End, WaitError, Waited, wait, wait_until};

use super::time::{Clock, DurNs, MonoNs};

/// One point of one stream that a [`wait()`] can wait for.
///
/// # What a query asks
///
/// Before [`arm`](Self::arm), [`query`](Self::query) is the status of everything queued. After it,
/// `query` is the status of what was queued before the armed store, and not of what came after:
/// otherwise a program that queues ahead would never see a wait end. [`begin`](Self::begin) returns
/// to the first meaning.
///
/// # Errors
///
/// An error of any method is the wait's error, at once and unchanged.
#[allow(async_fn_in_trait, reason = "waits run on one thread; their futures need not be Send")]
pub trait CompletionPort {
    /// What the device's status can say instead of done or pending.
    type Error;

    /// A new wait begins: whatever an earlier wait on this port armed is forgotten. Default: does
    /// nothing.
    fn begin(&mut self) {}

    /// The status now: `true` once done. A driver call.
    fn query(&mut self) -> Result<bool, Self::Error>;

    /// The vendor's blocking wait. It blocks the thread, on a reactor as well.
    async fn block(&mut self) -> Result<(), Self::Error>;

    /// Queries until done.
    async fn poll(&mut self) -> Result<(), Self::Error>;

    /// Queues the store of the word after everything queued so far.
    fn arm(&mut self) -> Result<(), Self::Error>;

    /// Parks until the word is reached (`true`) or `bound` has passed (`false`). May return earlier.
    async fn park(&mut self, bound: DurNs) -> Result<bool, Self::Error>;

    /// Whether the word is reached: one load. Default: `false`.
    fn seen(&mut self) -> bool {
        false
    }

    /// Called between two checks. Default: a pause hint.
    async fn pause(&mut self) {
        core::hint::spin_loop();
    }

    /// Checks the word in a pause loop, and makes a status query each `backstop`, until the word is
    /// reached, a query says done, or `until` has come on `time`.
    ///
    /// Default: [`seen`](Self::seen) and [`pause`](Self::pause) in a loop, and
    /// [`query`](Self::query). A port whose thread serves many waits overrides it, so that they spin
    /// in one loop and share their queries.
    async fn spin<T: Clock>(
        &mut self,
        time: &T,
        backstop: DurNs,
        until: Option<MonoNs>,
    ) -> Result<Spun, Self::Error> {
        spin::alone(self, time, backstop, until).await
    }
}

impl<P: CompletionPort + ?Sized> CompletionPort for &mut P {
    type Error = P::Error;

    fn begin(&mut self) {
        (**self).begin();
    }

    fn query(&mut self) -> Result<bool, Self::Error> {
        (**self).query()
    }

    async fn block(&mut self) -> Result<(), Self::Error> {
        (**self).block().await
    }

    async fn poll(&mut self) -> Result<(), Self::Error> {
        (**self).poll().await
    }

    fn arm(&mut self) -> Result<(), Self::Error> {
        (**self).arm()
    }

    async fn park(&mut self, bound: DurNs) -> Result<bool, Self::Error> {
        (**self).park(bound).await
    }

    fn seen(&mut self) -> bool {
        (**self).seen()
    }

    async fn pause(&mut self) {
        (**self).pause().await;
    }

    async fn spin<T: Clock>(
        &mut self,
        time: &T,
        backstop: DurNs,
        until: Option<MonoNs>,
    ) -> Result<Spun, Self::Error> {
        (**self).spin(time, backstop, until).await
    }
}
