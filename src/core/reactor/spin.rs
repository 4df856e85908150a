//! Waits that spin: the thread checks the words of all of them in one loop, and waits of one slot
//! share their status queries.

use super::lines::Watched;
use super::waiters::Registration;
use super::{Reactor, Tables};
use crate::core::line::OwnedDescriptor;
use crate::core::time::{Clock, DurNs, MonoNs};
use core::cell::Cell;
use core::future::poll_fn;
use core::task::{Poll, Waker};

/// Why a wait that spins was resumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpinEvent {
    /// The word was reached.
    Reached,
    /// A status query is due, and it is this wait's turn to make it.
    QueryDue,
    /// The deadline has passed.
    Expired,
}

/// One wait that spins. Registers at its first poll; unregisters when it is dropped.
pub(crate) struct SpinWait<'r, 'l, C: Clock> {
    reactor: &'r Reactor<'l, C>,
    watched: Watched<'l>,
    backstop: DurNs,
    until: Option<MonoNs>,
    registration: Option<Registration>,
    is_expired: bool,
}

impl<'l, C: Clock> Reactor<'l, C> {
    /// A wait for `descriptor` that keeps the thread spinning while nothing else is ready. A status
    /// query is due each `backstop`, once for all such waits of the slot.
    pub(crate) fn spin_owned(
        &self,
        descriptor: OwnedDescriptor,
        backstop: DurNs,
        until: Option<MonoNs>,
    ) -> SpinWait<'_, 'l, C> {
        let watched = Watched::Owned(descriptor);
        let registration = None;
        SpinWait { reactor: self, watched, backstop, until, registration, is_expired: false }
    }

    /// Whether the thread is to spin rather than park.
    pub(super) fn has_spinning_waits(&self) -> bool {
        self.tables.borrow().registered.groups.members() != 0
    }

    /// Counts a wait that spins, registered or not, until the guard is dropped.
    pub(crate) fn count_spin(&self) -> SpinCount<'_> {
        self.spins.set(self.spins.get() + 1);
        SpinCount(&self.spins)
    }

    fn join_group(&self, registration: Registration, backstop: DurNs) {
        let now = self.clock.monotonic_ns();
        let mut tables = self.tables.borrow_mut();
        let Tables { registered, waiters, .. } = &mut *tables;
        let waiter = waiters.at(registration.place);
        let Some(slot) = waiter.slot else { return };
        waiter.group = registered.groups.join(slot, backstop, now);
    }

    /// The status that a wait of `registration` was told ends it, and may end the others of its slot
    /// as well: takes it out, and makes the next one's query due.
    fn pass_on(&self, registration: Registration) {
        let slot = self.tables.borrow().waiters.get(registration).and_then(|waiter| waiter.slot);
        self.forget(registration);
        if let Some(slot) = slot {
            self.tables.borrow_mut().registered.groups.hurry(slot);
        }
    }
}

/// One of the waits of a reactor that spin.
pub(crate) struct SpinCount<'r>(&'r Cell<u32>);

impl SpinCount<'_> {
    /// Whether it is the only one: one load.
    ///
    /// A wait that spins alone checks its word in polls of its own, which are resumed some 0.3 us
    /// earlier than one that has to be woken, because all that comes after the completion has just
    /// been run. Many that did so would cost each other a poll a round, and a query each.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.0.get() == 1
    }
}

impl Drop for SpinCount<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl<C: Clock> SpinWait<'_, '_, C> {
    /// Waits for the next event. After [`QueryDue`](SpinEvent::QueryDue) the caller makes the query
    /// and, if that says pending, calls this again.
    pub(crate) async fn next(&mut self) -> SpinEvent {
        poll_fn(|cx| self.poll(cx.waker())).await
    }

    fn poll(&mut self, waker: &Waker) -> Poll<SpinEvent> {
        if self.watched.as_descriptor().is_complete() {
            self.give_up();
            return Poll::Ready(SpinEvent::Reached);
        }
        if self.until.is_some_and(|until| self.reactor.clock.monotonic_ns() >= until) {
            self.is_expired = true;
            return Poll::Ready(SpinEvent::Expired);
        }
        let its_turn = self.registration.is_some_and(|known| {
            let tables = self.reactor.tables.borrow();
            tables.waiters.get(known).is_some_and(|waiter| waiter.owner.is_none())
        });
        let registered = self.registration.is_some_and(|known| self.reactor.renew(known, waker));
        if !registered {
            let registration =
                self.reactor.register(Some(&self.watched), self.until, waker.clone());
            self.reactor.join_group(registration, self.backstop);
            self.registration = Some(registration);
        }
        if its_turn && registered { Poll::Ready(SpinEvent::QueryDue) } else { Poll::Pending }
    }

    /// Whether the deadline has passed: it ends after one more query.
    pub(crate) fn is_expired(&self) -> bool {
        self.is_expired
    }

    /// The query has ended this wait: the others of its slot need not wait for their backstop.
    pub(crate) fn end_by_query(&mut self) {
        if let Some(registration) = self.registration.take() {
            self.reactor.pass_on(registration);
        }
    }

    fn give_up(&mut self) {
        if let Some(registration) = self.registration.take() {
            self.reactor.forget(registration);
        }
    }
}

impl<C: Clock> Drop for SpinWait<'_, '_, C> {
    fn drop(&mut self) {
        self.give_up();
    }
}
