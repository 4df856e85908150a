//! Checking the timers and the slots, whole or in steps that a busy thread can afford.
//!
//! A scan goes over the active lines from the last to the first. [`fire`](Reactor::fire) does it
//! whole. Between the polls of a busy executor it goes on by steps of [`STEP_LINES`] lines, and takes
//! no more time than the polls did since; before an idle it is completed, the timers being checked
//! after each step. So 100,000 descriptors delay neither a ready task nor an alarm by more than a
//! step or two.
//!
//! With a doorbell a scan begins when it was rung or a park bound has passed since the last one
//! ended, else as soon as the last one has ended. What is rung for while a scan is under way is covered by
//! the next one: the doorbell's words are noted when a scan begins, and no other time.

use super::groups::Turn;
use super::lines::{LineRef, LineTable, SlotRef};
use super::waiters::Waiters;
use super::{Reactor, Tables};
use crate::core::doorbell::{Doorbell, DoorbellSnapshot};
use crate::core::time::{Clock, MonoNs};
use alloc::vec::Vec;
use core::task::Waker;

/// The lines of one step: half a microsecond or so in a table too large for the caches.
pub(super) const STEP_LINES: usize = 64;

/// A step of at most so many lines is not timed, because it costs less than that would.
const UNTIMED_LINES: usize = 8;

/// What a line is taken to cost in a step that is not timed.
const LINE_COST_NS: i64 = 8;

/// What a poll is taken to be worth at least, on a clock too coarse to tell.
const POLL_WORTH_NS: u64 = 4;

/// The time that a busy thread can save up for scans.
const CREDIT_MAX_NS: u64 = 1_000_000;

/// A scan under way, and what a busy thread may spend on it.
#[derive(Clone, Copy, Default)]
pub(super) struct ScanPace {
    /// How many of the active lines it has not checked; 0 if none is under way.
    below: usize,
    /// The time earned by polls and not spent.
    credit_ns: i64,
    /// Until when polls have earned.
    earned_at: MonoNs,
}

impl ScanPace {
    /// Adds what `polls` polls until `now` have earned: a third of their time. Returns how long the
    /// steps after them may take together, beyond the one that is always made if its time was earned.
    fn earn(&mut self, polls: u32, now: MonoNs) -> u64 {
        let earned = (now.since(self.earned_at).0 / 3).max(u64::from(polls) * POLL_WORTH_NS);
        let earned = earned.min(CREDIT_MAX_NS);
        self.credit_ns = (self.credit_ns + earned as i64).min(CREDIT_MAX_NS as i64);
        self.earned_at = now;
        earned
    }
}

/// What a doorbell showed at one time.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    words: DoorbellSnapshot,
    /// The rings of the host that came after a store.
    stores: u64,
}

impl Seen {
    #[inline]
    pub(super) fn now(doorbell: &Doorbell) -> Self {
        let (words, stores) = doorbell.snapshot_with_stores();
        Seen { words, stores }
    }

    pub(super) fn words(&self) -> &DoorbellSnapshot {
        &self.words
    }

    /// Whether a store into a slot was rung for since `last`. A wake of the executor alone is none.
    /// Without a branch a word, and without the call that `!=` makes.
    #[inline]
    pub(super) fn rung_since(&self, last: &Seen) -> bool {
        let differs = self.words.iter().zip(&last.words);
        let devices = differs.skip(1).fold(0, |differs, (a, b)| differs | (a ^ b));
        devices != 0 || (self.stores.wrapping_sub(last.stores) as i64) > 0
    }
}

/// Which lines a check scans.
#[derive(Clone, Copy)]
enum Scan {
    Nothing,
    /// So many lines of the scan under way.
    Next(usize),
    Whole,
}

/// What a check of the tables found, to be woken and dropped once nothing is borrowed.
#[derive(Default)]
pub(super) struct Fired<'l> {
    wakers: Vec<Waker>,
    gone: Vec<LineRef<'l>>,
}

impl<'l, C: Clock> Reactor<'l, C> {
    /// Wakes everything that is complete or due, without idling. Returns whether anything was.
    ///
    /// With a doorbell that was not rung since the slots were last scanned, they are scanned only
    /// once a park bound has passed since.
    pub fn fire(&self) -> bool {
        let seen = self.seen_now();
        if self.registered.get() == 0 {
            return false;
        }
        // A read of the clock costs as much as a check of dozens of words: it is read only for the
        // timers, and for the time since the last scan. If it serves neither, the scan counts as made
        // when the one before was, which only makes the next one earlier.
        let now = match self.doorbell.is_some() || self.next_timer().is_some() {
            true => self.clock.monotonic_ns(),
            false => self.scanned_at.get(),
        };
        let scan = self.is_scan_due(seen.as_ref(), now) || self.is_scanning();
        if !scan && self.next_timer().is_none_or(|at| at > now) {
            return false;
        }
        self.wake(if scan { Scan::Whole } else { Scan::Nothing }, now)
    }

    /// When the earliest timer is due.
    #[inline]
    pub(super) fn next_timer(&self) -> Option<MonoNs> {
        self.tables.borrow().registered.next_timer()
    }

    /// The doorbell now; a scan that begins after this covers what it shows.
    #[inline]
    pub(super) fn seen_now(&self) -> Option<Seen> {
        self.doorbell.as_ref().map(|watch| Seen::now(&watch.doorbell))
    }

    /// Whether a new scan is due. If so it is begun by the caller: the doorbell counts as seen.
    #[inline]
    pub(super) fn is_scan_due(&self, seen: Option<&Seen>, now: MonoNs) -> bool {
        let (Some(watch), Some(seen)) = (&self.doorbell, seen) else { return true };
        let rung = seen.rung_since(&watch.seen.get());
        let due = rung || now.since(self.scanned_at.get()) >= self.scan_bound.get();
        if due {
            watch.seen.set(*seen);
        }
        due
    }

    /// Begins a scan of every slot.
    pub(super) fn begin_scan(&self) {
        let mut pace = self.pace.get();
        pace.below = self.tables.borrow().lines.active();
        self.pace.set(pace);
    }

    /// Whether a scan is under way.
    #[inline]
    pub(super) fn is_scanning(&self) -> bool {
        self.pace.get().below != 0
    }

    /// Checks the timers, then the next `lines` lines of the scan under way, and wakes. Returns
    /// whether anything was woken.
    pub(super) fn step(&self, lines: usize, now: MonoNs) -> bool {
        let scans = lines != 0 && self.is_scanning();
        if !scans && self.next_timer().is_none_or(|at| at > now) {
            return false;
        }
        self.wake(if scans { Scan::Next(lines) } else { Scan::Nothing }, now)
    }

    /// Takes out of the tables what is due by `now` and what `scan` finds, and wakes it.
    #[inline]
    fn wake(&self, scan: Scan, now: MonoNs) -> bool {
        // A wake below may come back here: it then finds empty buffers and makes its own.
        let mut fired = self.scratch.take();
        self.collect(scan, now, &mut fired);
        let any = !fired.wakers.is_empty();
        if any || !fired.gone.is_empty() {
            self.wake_all(&mut fired);
        }
        self.scratch.set(fired);
        any
    }

    /// Wakes in the order found, then drops the lines. Nothing that panics keeps the others from
    /// their turn.
    fn wake_all(&self, fired: &mut Fired<'l>) {
        let mut wakers = fired.wakers.drain(..);
        while wakers.len() != 0 {
            // One containment for all of them: it begins anew only after a panic.
            self.contain(|| wakers.by_ref().for_each(Waker::wake));
        }
        drop(wakers);
        for gone in fired.gone.drain(..) {
            if !matches!(gone, LineRef::Vacant) {
                self.contain(|| drop(gone));
            }
        }
    }

    /// Takes what is due by `now`, and what `scan` completes, out of the tables. The timers come first:
    /// a scan may take long, and a word that was reached as well is found by the poll.
    fn collect(&self, scan: Scan, now: MonoNs, fired: &mut Fired<'l>) {
        let mut tables = self.tables.borrow_mut();
        let Tables { lines, waiters, registered } = &mut *tables;
        while let Some(((at, _), id)) = registered.timers.peek() {
            if at > now {
                break;
            }
            if let Some(slot) = waiters.peek(id).slot {
                fired.gone.push(lines.dequeue(slot, id, waiters));
            }
            fired.wakers.extend(registered.release(waiters, id));
        }
        if registered.groups.next_due().is_some_and(|at| at <= now) {
            pass_turns(&mut tables, now, scan, fired);
        }
        let Tables { lines, waiters, registered } = &mut *tables;
        let (below, count) = match scan {
            Scan::Whole => (lines.active(), usize::MAX),
            // What is due need not wait for a step of the scan.
            Scan::Next(count) if fired.wakers.is_empty() => (self.pace.get().below, count),
            Scan::Next(_) | Scan::Nothing => (0, 0),
        };
        if count != 0 {
            let left = lines.scan_part(below, count, waiters, &mut fired.gone, |waiters, place| {
                fired.wakers.extend(registered.release(waiters, place));
            });
            let mut pace = self.pace.get();
            pace.below = left;
            self.pace.set(pace);
            if left == 0 {
                self.scanned_at.set(now);
            }
        }
        self.registered.set(registered.count());
    }

    /// A check between two polls of a busy executor, after `polls` of them: of what is due by `now`,
    /// and of the slots, as far as the polls have earned it.
    pub(crate) fn fire_between_polls(&self, polls: u32, now: MonoNs) -> bool {
        let mut pace = self.pace.get();
        let share = pace.earn(polls, now);
        self.pace.set(pace);
        if pace.below == 0 && self.is_scan_due(self.seen_now().as_ref(), now) {
            self.begin_scan();
        }
        let mut at = now;
        loop {
            let mut pace = self.pace.get();
            let lines = if pace.credit_ns >= 0 { STEP_LINES } else { 0 };
            let timed = pace.below > UNTIMED_LINES;
            if lines > 0 && !timed {
                pace.credit_ns -= pace.below as i64 * LINE_COST_NS;
                self.pace.set(pace);
            }
            if self.step(lines, at) {
                if timed {
                    // Not worth a read of the clock beside what it woke.
                    let mut pace = self.pace.get();
                    pace.credit_ns -= lines as i64 * LINE_COST_NS;
                    self.pace.set(pace);
                }
                return true;
            }
            if lines == 0 || !timed {
                return false;
            }
            let end = self.clock.monotonic_ns();
            let mut pace = self.pace.get();
            pace.credit_ns -= (end.since(at).0 as i64).max(lines as i64);
            pace.earned_at = end;
            self.pace.set(pace);
            at = end;
            if end.since(now).0 >= share {
                return false;
            }
        }
    }
}

/// For each group that is due by `now`, or for one if the scan is not whole: the turn to query is its
/// first wait's, or passes to the next one if that one does not come back.
#[cold]
fn pass_turns<'l>(tables: &mut Tables<'l>, now: MonoNs, scan: Scan, fired: &mut Fired<'l>) {
    let Tables { lines, waiters, registered } = tables;
    let first = |lines: &LineTable<'_>, waiters: &Waiters<Waker>, slot: SlotRef, number: u32| {
        lines.first_waiter(slot, |place| waiters.peek(place).group == number)
    };
    loop {
        let comes_back = |slot, number| {
            let place = first(lines, waiters, slot, number);
            place.is_none_or(|place| waiters.peek(place).owner.is_some())
        };
        let Some((number, slot, turn)) = registered.groups.take_due(now, comes_back) else {
            return;
        };
        let place = match turn {
            Turn::First => first(lines, waiters, slot, number),
            Turn::FirstLeft => lines.first_waiter(slot, |place| {
                let waiter = waiters.peek(place);
                waiter.group == number && waiter.owner.is_some()
            }),
        };
        fired.wakers.extend(place.and_then(|place| waiters.at(place).owner.take()));
        if !matches!(scan, Scan::Whole) {
            return;
        }
    }
}
