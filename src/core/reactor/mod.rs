//! The reactor: turns words that were reached and instants that have come into wakes.
//!
//! ```text
//!             poll, not complete                     fire: reached or due
//! [new Ready] ------------------> [registered waker] --------------------> [woken, unregistered]
//!                  |        ^  poll: newer waker  |                              |
//!                  |        +---------------------+ drop: unregistered           | poll: looks again
//!                  +--> resolved <-----------------------------------------------+
//! ```
//!
//! One thread. What is registered stands in tables: the lines ([`lines`]), the timers, the waiters,
//! and the [`groups`] of waits that share their status queries. A wake, a clone or a drop of a waker
//! runs arbitrary code, as does the drop of an owned line: no table is borrowed across any of them.
//! Wakers are collected, the borrow ends, then they are woken. A panic of one is
//! [contained](contain) and counted; all others are woken.
//!
//! # Costs
//!
//! Registering, polling again and forgetting are O(log n) at worst, and O(1) if a slot has one
//! waiter and no deadline. [`fire`](Reactor::fire) costs two cache lines for each line that has a
//! waiter, the work of what completed, and a clock read if there is a timer; with a doorbell
//! that was not rung it costs one cache line and a clock read, whatever the number of lines. No wait
//! allocates once the tables have grown.

mod address_map;
mod future;
mod groups;
pub(crate) mod heap;
pub(crate) mod lines;
#[cfg(all(loom, test))]
mod model;
mod scan;
mod spin;
mod turn;
pub(crate) mod waiters;

pub use future::{Alarmed, Ready};
pub(crate) use spin::SpinEvent;
pub(crate) use turn::Bystander;
pub use turn::Turn;

use super::doorbell::Doorbell;
use super::line::{MemoryDescriptor, OwnedDescriptor};
use super::time::{Clock, DurNs, MonoNs, Timer};
use crate::contain::contain;
use core::cell::{Cell, RefCell};
use core::task::Waker;
use groups::Groups;
use heap::IndexHeap;
use lines::{LineRef, LineTable, Watched};
use scan::{Fired, ScanPace, Seen};
use waiters::{Registration, Waiters};

/// The longest time between two scans of all slots before the first [`turn`](Reactor::turn) has
/// stated a park bound.
const FIRST_SCAN_BOUND: DurNs = DurNs::from_ms(1);

/// Waits of one thread: descriptors of words and alarms, each with a waker.
///
/// `'l` is how long borrowed lines live; a reactor whose lines are all owned is a
/// `Reactor<'static, C>`. The reactor is itself a [`Clock`] and a [`Timer`].
pub struct Reactor<'l, C> {
    clock: C,
    tables: RefCell<Tables<'l>>,
    /// How many futures are registered; readable without a borrow.
    registered: Cell<usize>,
    doorbell: Option<Watch>,
    /// The last park bound: the longest time between two scans of all slots.
    scan_bound: Cell<DurNs>,
    /// When the last scan of all slots ended.
    scanned_at: Cell<MonoNs>,
    pace: Cell<ScanPace>,
    /// How many waits spin, registered or not.
    spins: Cell<u32>,
    /// Emptied buffers of `fire`, kept for their memory.
    scratch: Cell<Fired<'l>>,
    /// Panics of wakers and of destructors of lines.
    contained: Cell<u64>,
}

struct Watch {
    doorbell: Doorbell,
    /// What it showed when the last scan began.
    seen: Cell<Seen>,
}

#[derive(Default)]
struct Tables<'l> {
    lines: LineTable<'l>,
    waiters: Waiters<Waker>,
    registered: Registered,
}

/// When the waiters are due, and how many there are.
#[derive(Default)]
struct Registered {
    timers: IndexHeap<(MonoNs, u64)>,
    groups: Groups,
    alarms: usize,
    descriptors: usize,
}

impl Registered {
    fn count(&self) -> usize {
        self.descriptors + self.alarms
    }

    fn push_timer(&mut self, waiters: &mut Waiters<Waker>, key: (MonoNs, u64), place: u32) {
        self.timers.push(key, place, |id, at| waiters.at(id).timer_at = at);
    }

    fn remove_timer(&mut self, waiters: &mut Waiters<Waker>, timer_at: u32) {
        self.timers.remove(timer_at, |id, at| waiters.at(id).timer_at = at);
    }

    /// When the earliest timer, of a wait or of a group, is due.
    #[inline]
    fn next_timer(&self) -> Option<MonoNs> {
        let wait = self.timers.peek().map(|((at, _), _)| at);
        match (wait, self.groups.next_due()) {
            (Some(wait), Some(group)) => Some(wait.min(group)),
            (wait, group) => wait.or(group),
        }
    }

    /// The waiter at `place`, which stands in no queue of a slot any more, is not registered any
    /// more: removes its timer, takes it out of its group and frees it. Returns its waker.
    #[inline]
    fn release(&mut self, waiters: &mut Waiters<Waker>, place: u32) -> Option<Waker> {
        let waiter = waiters.peek(place);
        let (timer_at, group, is_alarm) = (waiter.timer_at, waiter.group, waiter.slot.is_none());
        if timer_at != heap::NOWHERE {
            self.remove_timer(waiters, timer_at);
        }
        if group != heap::NOWHERE {
            self.groups.leave(group);
        }
        if is_alarm {
            self.alarms -= 1;
        } else {
            self.descriptors -= 1;
        }
        waiters.free(place)
    }
}

impl<'l, C: Clock> Reactor<'l, C> {
    /// A reactor without a doorbell: it parks on one line at a time and finds completions on the
    /// others within the park bound.
    pub fn new(clock: C) -> Self {
        Reactor::build(clock, None)
    }

    /// A reactor that parks on the line of `doorbell`, whatever the number of lines, and looks at
    /// the slots once it was rung. All slots are also looked at once a park bound, so that a device
    /// that does not ring is found within it.
    pub fn with_doorbell(clock: C, doorbell: &Doorbell) -> Self {
        let seen = Cell::new(Seen::now(doorbell));
        let watch = Watch { doorbell: doorbell.clone(), seen };
        Reactor::build(clock, Some(watch))
    }

    fn build(clock: C, doorbell: Option<Watch>) -> Self {
        Reactor {
            scanned_at: Cell::new(clock.monotonic_ns()),
            clock,
            tables: RefCell::default(),
            registered: Cell::new(0),
            doorbell,
            scan_bound: Cell::new(FIRST_SCAN_BOUND),
            pace: Cell::default(),
            spins: Cell::new(0),
            scratch: Cell::default(),
            contained: Cell::new(0),
        }
    }

    /// The clock that deadlines and alarms are told by.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// The doorbell that this reactor parks on, if it has one.
    pub fn doorbell(&self) -> Option<&Doorbell> {
        self.doorbell.as_ref().map(|watch| &watch.doorbell)
    }

    /// Resolves to `true` once `descriptor` is complete, or to `false` once the clock reaches
    /// `until` first; completion wins a tie. It registers at its first poll.
    pub fn ready(
        &self,
        descriptor: MemoryDescriptor<'l>,
        until: Option<MonoNs>,
    ) -> Ready<'_, 'l, C> {
        Ready::new(self, Watched::Borrowed(descriptor), until)
    }

    /// The same for a line that is kept alive as long as the future is registered, a future that was
    /// forgotten rather than dropped included.
    pub fn ready_owned(
        &self,
        descriptor: OwnedDescriptor,
        until: Option<MonoNs>,
    ) -> Ready<'_, 'l, C> {
        Ready::new(self, Watched::Owned(descriptor), until)
    }

    /// Resolves once the clock reaches `at`.
    pub fn alarm(&self, at: MonoNs) -> Alarmed<'_, 'l, C> {
        Alarmed::new(self, at)
    }

    /// How many descriptors and how many alarms are registered. A descriptor with a deadline counts
    /// as a descriptor only.
    pub fn pending(&self) -> (usize, usize) {
        let tables = self.tables.borrow();
        (tables.registered.descriptors, tables.registered.alarms)
    }

    /// How many panics of wakers and of destructors of lines were contained, since the reactor was
    /// made.
    #[must_use]
    pub fn contained_panics(&self) -> u64 {
        self.contained.get()
    }

    /// The counter of [`contained_panics`](Self::contained_panics).
    pub(crate) fn contained(&self) -> &Cell<u64> {
        &self.contained
    }

    /// Whether anything is registered: one load.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.registered.get() != 0
    }

    /// Calls code of the program whose panic must not take anything else along.
    fn contain(&self, code: impl FnOnce()) {
        if contain(code).is_none() {
            self.contained.set(self.contained.get() + 1);
        }
    }

    fn register(
        &self,
        watched: Option<&Watched<'l>>,
        until: Option<MonoNs>,
        waker: Waker,
    ) -> Registration {
        let mut tables = self.tables.borrow_mut();
        let Tables { lines, waiters, registered } = &mut *tables;
        let slot = watched.map(|watched| lines.enter(watched));
        let target = watched.map_or(0, |watched| watched.as_descriptor().target());
        let registration = waiters.insert(slot, target, waker);
        match slot {
            Some(slot) => {
                lines.queue(slot, registration.place, target, waiters);
                registered.descriptors += 1;
            }
            None => registered.alarms += 1,
        }
        if let Some(at) = until {
            registered.push_timer(waiters, (at, registration.ticket), registration.place);
        }
        self.registered.set(registered.count());
        registration
    }

    /// Makes `registration` wake `waker`. Returns `false` if it was fired already.
    fn renew(&self, registration: Registration, waker: &Waker) -> bool {
        let would_wake = self.tables.borrow().waiters.would_wake(registration, waker);
        match would_wake {
            None => false,
            Some(true) => true,
            Some(false) => {
                // Cloning and dropping run arbitrary code, in which the registration may be fired.
                let waker = waker.clone();
                let old = self.tables.borrow_mut().waiters.replace_waker(registration, waker);
                drop(old);
                self.tables.borrow().waiters.get(registration).is_some()
            }
        }
    }

    fn forget(&self, registration: Registration) {
        let mut tables = self.tables.borrow_mut();
        let Tables { lines, waiters, registered } = &mut *tables;
        let Some(waiter) = waiters.get(registration) else { return };
        let gone = match waiter.slot {
            Some(slot) => lines.dequeue(slot, registration.place, waiters),
            None => LineRef::Vacant,
        };
        let waker = registered.release(waiters, registration.place);
        self.registered.set(registered.count());
        drop(tables);
        // Also while a panic of the task unwinds.
        self.contain(|| drop(waker));
        if !matches!(gone, LineRef::Vacant) {
            self.contain(|| drop(gone));
        }
    }
}

impl<C: Clock> Clock for Reactor<'_, C> {
    fn monotonic_ns(&self) -> MonoNs {
        self.clock.monotonic_ns()
    }
}

impl<C: Clock> Timer for Reactor<'_, C> {
    async fn sleep_until(&self, at: MonoNs) {
        self.alarm(at).await;
    }
}

impl<C> core::fmt::Debug for Reactor<'_, C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Reactor")
            .field("registered", &self.registered.get())
            .finish_non_exhaustive()
    }
}
