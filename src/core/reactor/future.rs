//! The futures of a reactor. Each registers at a poll that finds it pending, and unregisters when
//! it resolves or is dropped. What was fired is looked at again rather than believed.

use super::Reactor;
use super::lines::Watched;
use super::waiters::Registration;
use crate::core::time::{Clock, MonoNs};
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

/// What a future has registered, if anything: unregistered when it resolves and when it is dropped.
struct Seat<'r, 'l, C: Clock> {
    reactor: &'r Reactor<'l, C>,
    registration: Option<Registration>,
}

impl<'r, 'l, C: Clock> Seat<'r, 'l, C> {
    fn new(reactor: &'r Reactor<'l, C>) -> Self {
        Seat { reactor, registration: None }
    }

    /// Sees to it that `waker` is woken once `watched` is complete or `until` has come.
    fn keep(&mut self, watched: Option<&Watched<'l>>, until: Option<MonoNs>, waker: &Waker) {
        let registered = self.registration.is_some_and(|known| self.reactor.renew(known, waker));
        if !registered {
            self.registration = Some(self.reactor.register(watched, until, waker.clone()));
        }
    }

    fn give_up(&mut self) {
        if let Some(registration) = self.registration.take() {
            self.reactor.forget(registration);
        }
    }
}

impl<C: Clock> Drop for Seat<'_, '_, C> {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Resolves to whether a descriptor was complete before its deadline. Made by [`Reactor::ready`].
#[must_use = "a future does nothing until it is awaited"]
pub struct Ready<'r, 'l, C: Clock> {
    seat: Seat<'r, 'l, C>,
    watched: Watched<'l>,
    until: Option<MonoNs>,
}

impl<'r, 'l, C: Clock> Ready<'r, 'l, C> {
    pub(super) fn new(
        reactor: &'r Reactor<'l, C>,
        watched: Watched<'l>,
        until: Option<MonoNs>,
    ) -> Self {
        Ready { seat: Seat::new(reactor), watched, until }
    }

    fn resolved(&self) -> Option<bool> {
        if self.watched.as_descriptor().is_complete() {
            return Some(true);
        }
        // The clock is read only where a deadline needs it. A number that lands between the look
        // above and the clock read was reached no later than the deadline: it wins the tie.
        let until = self.until?;
        (self.seat.reactor.clock.monotonic_ns() >= until)
            .then(|| self.watched.as_descriptor().is_complete())
    }
}

impl<C: Clock> Future for Ready<'_, '_, C> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let this = &mut *self;
        if let Some(resolved) = this.resolved() {
            this.seat.give_up();
            return Poll::Ready(resolved);
        }
        this.seat.keep(Some(&this.watched), this.until, cx.waker());
        Poll::Pending
    }
}

impl<C: Clock> fmt::Debug for Ready<'_, '_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready").field("on", &self.watched).field("until", &self.until).finish()
    }
}

/// Resolves once the clock reaches an instant. Made by [`Reactor::alarm`].
#[must_use = "a future does nothing until it is awaited"]
pub struct Alarmed<'r, 'l, C: Clock> {
    seat: Seat<'r, 'l, C>,
    at: MonoNs,
}

impl<'r, 'l, C: Clock> Alarmed<'r, 'l, C> {
    pub(super) fn new(reactor: &'r Reactor<'l, C>, at: MonoNs) -> Self {
        Alarmed { seat: Seat::new(reactor), at }
    }
}

impl<C: Clock> Future for Alarmed<'_, '_, C> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.seat.reactor.clock.monotonic_ns() >= this.at {
            this.seat.give_up();
            return Poll::Ready(());
        }
        this.seat.keep(None, Some(this.at), cx.waker());
        Poll::Pending
    }
}

impl<C: Clock> fmt::Debug for Alarmed<'_, '_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarmed").field("at", &self.at).finish()
    }
}
