//! The futures of a reactor. Each registers at a poll that finds it pending, and unregisters when
//! it resolves or is dropped. What was fired is looked at again rather than believed.

use super::Reactor;
use super::lines::Watched;
use super::waiters::Registration;
use crate::core::time::{Clock, MonoNs};
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};

/// Resolves to whether a descriptor was complete before its deadline. Made by [`Reactor::ready`].
#[must_use = "a future does nothing until it is awaited"]
pub struct Ready<'r, 'l, C: Clock> {
    reactor: &'r Reactor<'l, C>,
    watched: Watched<'l>,
    until: Option<MonoNs>,
    registration: Option<Registration>,
}

impl<'r, 'l, C: Clock> Ready<'r, 'l, C> {
    pub(super) fn new(
        reactor: &'r Reactor<'l, C>,
        watched: Watched<'l>,
        until: Option<MonoNs>,
    ) -> Self {
        Ready { reactor, watched, until, registration: None }
    }

    fn resolved(&self) -> Option<bool> {
        if self.watched.as_descriptor().is_complete() {
            return Some(true);
        }
        // The clock is read only where a deadline needs it. A number that lands between the look
        // above and the clock read was reached no later than the deadline: it wins the tie.
        let until = self.until?;
        (self.reactor.clock.monotonic_ns() >= until)
            .then(|| self.watched.as_descriptor().is_complete())
    }
}

impl<C: Clock> Future for Ready<'_, '_, C> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let this = &mut *self;
        if let Some(resolved) = this.resolved() {
            if let Some(registration) = this.registration.take() {
                this.reactor.forget(registration);
            }
            return Poll::Ready(resolved);
        }
        let registered =
            this.registration.is_some_and(|known| this.reactor.renew(known, cx.waker()));
        if !registered {
            let waker = cx.waker().clone();
            this.registration = Some(this.reactor.register(Some(&this.watched), this.until, waker));
        }
        Poll::Pending
    }
}

impl<C: Clock> Drop for Ready<'_, '_, C> {
    fn drop(&mut self) {
        if let Some(registration) = self.registration.take() {
            self.reactor.forget(registration);
        }
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
    reactor: &'r Reactor<'l, C>,
    at: MonoNs,
    registration: Option<Registration>,
}

impl<'r, 'l, C: Clock> Alarmed<'r, 'l, C> {
    pub(super) fn new(reactor: &'r Reactor<'l, C>, at: MonoNs) -> Self {
        Alarmed { reactor, at, registration: None }
    }
}

impl<C: Clock> Future for Alarmed<'_, '_, C> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.reactor.clock.monotonic_ns() >= this.at {
            if let Some(registration) = this.registration.take() {
                this.reactor.forget(registration);
            }
            return Poll::Ready(());
        }
        let registered =
            this.registration.is_some_and(|known| this.reactor.renew(known, cx.waker()));
        if !registered {
            let waker = cx.waker().clone();
            this.registration = Some(this.reactor.register(None, Some(this.at), waker));
        }
        Poll::Pending
    }
}

impl<C: Clock> Drop for Alarmed<'_, '_, C> {
    fn drop(&mut self) {
        if let Some(registration) = self.registration.take() {
            self.reactor.forget(registration);
        }
    }
}

impl<C: Clock> fmt::Debug for Alarmed<'_, '_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarmed").field("at", &self.at).finish()
    }
}
