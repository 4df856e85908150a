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
//! One thread. What is registered stands in three tables: the lines ([`lines`]), the timers and the
//! waiters. A wake, a clone or a drop of a waker runs arbitrary code, as does the drop of an owned
//! line: no table is borrowed across any of them. Wakers are collected, the borrow ends, then they
//! are woken.
//!
//! # Costs
//!
//! Registering, polling again and forgetting are O(log n) at worst and O(1) where a slot has one
//! waiter and no deadline. [`fire`](Reactor::fire) costs two cache lines for each line that somebody
//! waits on, the work of what completed, and a clock read where there is a timer; with a doorbell
//! that was not rung it costs one cache line and a clock read, whatever the number of lines. No wait
//! allocates once the tables have grown.

mod address_map;
mod future;
pub(crate) mod heap;
pub(crate) mod lines;
mod turn;
pub(crate) mod waiters;

pub use future::{Alarmed, Ready};
pub(crate) use turn::Bystander;
pub use turn::Turn;

use super::doorbell::{Doorbell, DoorbellSnapshot};
use super::line::{MemoryDescriptor, OwnedDescriptor};
use super::time::{Clock, DurNs, MonoNs, Timer};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::task::Waker;
use heap::IndexHeap;
use lines::{LineRef, LineTable, Watched};
use waiters::{Registration, Waiters};

/// How often all slots are looked at before the first [`turn`](Reactor::turn) has told a park bound.
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
    /// What the last park bound was: the longest time between two looks at all slots.
    scan_bound: Cell<DurNs>,
    scanned_at: Cell<MonoNs>,
    polls_since_scan: Cell<u64>,
    /// Emptied buffers of `fire`, kept for their memory.
    scratch: Cell<Fired<'l>>,
}

struct Watch {
    doorbell: Doorbell,
    /// The words that the last scan covers.
    seen: Cell<DoorbellSnapshot>,
}

#[derive(Default)]
struct Tables<'l> {
    lines: LineTable<'l>,
    timers: IndexHeap<(MonoNs, u64)>,
    waiters: Waiters<Waker>,
    alarms: usize,
    descriptors: usize,
}

/// What a look at the tables found, to be woken and dropped once nothing is borrowed.
#[derive(Default)]
struct Fired<'l> {
    wakers: Vec<Waker>,
    gone: Vec<LineRef<'l>>,
}

impl<'l> Fired<'l> {
    /// Wakes in the order found. A waker that panics does not keep the others from being woken.
    fn wake_all(&mut self) {
        struct Rest<'a>(alloc::vec::Drain<'a, Waker>);
        impl Drop for Rest<'_> {
            fn drop(&mut self) {
                self.0.by_ref().for_each(Waker::wake);
            }
        }
        self.gone.clear();
        drop(Rest(self.wakers.drain(..)));
    }
}

/// Whether a word differs. Without a branch a word, and without the call that `!=` makes.
#[inline]
fn differs(a: &DoorbellSnapshot, b: &DoorbellSnapshot) -> bool {
    a.iter().zip(b).fold(0, |differing, (a, b)| differing | (a ^ b)) != 0
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
        let watch = Watch { doorbell: doorbell.clone(), seen: Cell::new(doorbell.snapshot()) };
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
            polls_since_scan: Cell::new(0),
            scratch: Cell::default(),
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
        (tables.descriptors, tables.alarms)
    }

    /// Wakes everything that is complete or due, without idling. Says whether anything was.
    ///
    /// With a doorbell that was not rung since the slots were last looked at, they are looked at
    /// only once a park bound has passed since.
    pub fn fire(&self) -> bool {
        let snapshot = self.snapshot();
        if self.registered.get() == 0 {
            return false;
        }
        // A read of the clock costs as much as a look at dozens of words: it is read only for the
        // timers, and for the time since the last look at all slots. Where neither is told by it,
        // that look counts as being made when the one before was, which only makes the next earlier.
        let now = match self.doorbell.is_some() || self.next_timer().is_some() {
            true => self.clock.monotonic_ns(),
            false => self.scanned_at.get(),
        };
        self.fire_seen(snapshot, now)
    }

    /// When the earliest timer is due.
    #[inline]
    fn next_timer(&self) -> Option<MonoNs> {
        self.tables.borrow().timers.peek().map(|((at, _), _)| at)
    }

    /// The doorbell now; what a look at the slots afterwards covers.
    fn snapshot(&self) -> Option<DoorbellSnapshot> {
        self.doorbell.as_ref().map(|watch| watch.doorbell.snapshot())
    }

    /// Fires with a snapshot that was taken before `now` was read.
    fn fire_seen(&self, snapshot: Option<DoorbellSnapshot>, now: MonoNs) -> bool {
        let rung = match (&self.doorbell, snapshot) {
            (Some(watch), Some(snapshot)) if differs(&watch.seen.get(), &snapshot) => {
                watch.seen.set(snapshot);
                true
            }
            (Some(_), _) => now.since(self.scanned_at.get()) >= self.scan_bound.get(),
            (None, _) => true,
        };
        self.collect_and_wake(rung, now)
    }

    fn collect_and_wake(&self, scan: bool, now: MonoNs) -> bool {
        if !scan && self.next_timer().is_none_or(|at| at > now) {
            return false;
        }
        // A wake below may come back here: it then finds empty buffers and makes its own.
        let mut fired = self.scratch.take();
        self.collect(scan, now, &mut fired);
        let any = !fired.wakers.is_empty();
        if any || !fired.gone.is_empty() {
            fired.wake_all();
        }
        self.scratch.set(fired);
        any
    }

    fn collect(&self, scan: bool, now: MonoNs, fired: &mut Fired<'l>) {
        let mut tables = self.tables.borrow_mut();
        let Tables { lines, timers, waiters, alarms, descriptors } = &mut *tables;
        if scan {
            self.scanned_at.set(now);
            self.polls_since_scan.set(0);
            lines.scan(waiters, &mut fired.gone, |waiters, place| {
                let timer_at = waiters.at(place).timer_at;
                if timer_at != heap::NOWHERE {
                    timers.remove(timer_at, |id, at| waiters.at(id).timer_at = at);
                }
                *descriptors -= 1;
                if let Some(waker) = waiters.free(place) {
                    fired.wakers.push(waker);
                }
            });
        }
        while let Some(((at, _), place)) = timers.peek() {
            if at > now {
                break;
            }
            timers.remove(0, |id, at| waiters.at(id).timer_at = at);
            match waiters.at(place).slot {
                Some(slot) => {
                    *descriptors -= 1;
                    fired.gone.push(lines.dequeue(slot, place, waiters));
                }
                None => *alarms -= 1,
            }
            fired.wakers.extend(waiters.free(place));
        }
        self.registered.set(*descriptors + *alarms);
    }

    /// Whether anything is registered: one load.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.registered.get() != 0
    }

    /// A look between two polls of a busy executor, after `polls` of them: at what is due by `now`,
    /// and at the slots unless that would cost more than what was done since they were last looked
    /// at. A poll is worth a look at one slot at least; a long one is worth more.
    pub(crate) fn fire_between_polls(&self, polls: u32, now: MonoNs) -> bool {
        /// A look at one slot, in a table too large for the caches, with room for the wakes.
        const SLOT_COST_NS: u64 = 4;
        let snapshot = self.snapshot();
        if snapshot.is_some() {
            return self.fire_seen(snapshot, now);
        }
        let slots = self.tables.borrow().lines.slots() as u64;
        let polls = self.polls_since_scan.get() + u64::from(polls);
        self.polls_since_scan.set(polls);
        let elapsed = now.since(self.scanned_at.get()).0;
        self.collect_and_wake(polls >= slots || elapsed >= slots * SLOT_COST_NS, now)
    }

    fn register(
        &self,
        watched: Option<&Watched<'l>>,
        until: Option<MonoNs>,
        waker: Waker,
    ) -> Registration {
        let mut tables = self.tables.borrow_mut();
        let Tables { lines, timers, waiters, alarms, descriptors } = &mut *tables;
        let slot = watched.map(|watched| lines.enter(watched));
        let target = watched.map_or(0, |watched| watched.as_descriptor().target());
        let registration = waiters.insert(slot, target, waker);
        match slot {
            Some(slot) => {
                *descriptors += 1;
                lines.queue(slot, registration.place, target, waiters);
            }
            None => *alarms += 1,
        }
        if let Some(at) = until {
            let key = (at, registration.ticket);
            timers.push(key, registration.place, |id, at| waiters.at(id).timer_at = at);
        }
        self.registered.set(*descriptors + *alarms);
        registration
    }

    /// Sees to it that `registration` wakes `waker`; `false` where it was fired already.
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
        let Tables { lines, timers, waiters, alarms, descriptors } = &mut *tables;
        let Some(waiter) = waiters.get(registration) else { return };
        let (slot, timer_at) = (waiter.slot, waiter.timer_at);
        if timer_at != heap::NOWHERE {
            timers.remove(timer_at, |id, at| waiters.at(id).timer_at = at);
        }
        let gone = match slot {
            Some(slot) => {
                *descriptors -= 1;
                lines.dequeue(slot, registration.place, waiters)
            }
            None => {
                *alarms -= 1;
                LineRef::Vacant
            }
        };
        let waker = waiters.free(registration.place);
        self.registered.set(*descriptors + *alarms);
        drop(tables);
        drop((gone, waker));
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
