//! A stream: where marks are queued and asked about.
//!
//! # What a mark is
//!
//! One batch of memory operations (the number into the slot, then a number into the doorbell), and
//! right behind it an event without timing. The word tells that the work is done; the event is the
//! status of that point, whatever is queued behind it.
//!
//! # Memory ordering
//!
//! The device's store comes after all memory operations that precede it on the stream, and is
//! visible to the host as a whole ([`Width::Halves`](super::store::Width) tells of drivers that
//! have the smaller operation only). The host reads it by an acquire load.

mod captured;
mod counts;
mod retire;

pub use counts::StreamCalls;

use super::calls::Interface;
use super::context::Context;
use super::events::Event;
use super::handle::StreamHandle;
use super::lock;
use super::store::Store;
use crate::backend::lease::Reclaim;
use crate::core::doorbell::Doorbell;
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::line::{SharedLine, Slot};
use crate::core::pool::SlotLease;
use crate::core::port::{DeviceStream, forward_stream};
use crate::core::time::MonoNs;
use alloc::{boxed::Box, collections::VecDeque, sync::Arc};
use core::any::Any;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use counts::{CallCounter, count};
use std::sync::Mutex;
use std::thread::{self, ThreadId};

/// A stream of a [`Device`](super::Device).
///
/// `Send` and `Sync`: any thread may queue and ask, except on a per-thread default stream, which
/// refuses every thread but the one it was made on ([`ForeignThread`](ErrorCode::ForeignThread)).
///
/// # Dropping it
///
/// Waits for nothing, and makes no driver call but a status query where leased buffers wait, and for a stream
/// of the program's where marks are not known to be done; on HIP, such a mark is then handed over to a stream
/// of this crate's by two more. Stores that are queued land in memory that stays. Buffers that wait come back
/// when the device makes its next stream or buffer, or is asked for its statistics. The slot goes back to the device's pool, where it drains; behind a fault
/// or a failed store it is retired. Where the device stores no words, the status of its last mark is asked
/// when the device makes its next streams, and the stream goes back once that is done.
pub struct Stream<A: Interface> {
    pub(super) core: Arc<StreamCore<A>>,
}

pub(super) struct StreamCore<A: Interface> {
    id: u64,
    pub(super) context: Arc<Context<A>>,
    pub(super) handle: StreamHandle,
    /// The only thread on which the handle means this stream.
    thread: Option<ThreadId>,
    line: SharedLine,
    slot: Slot,
    /// The device's address of the word.
    word: u64,
    bell: Option<Bell>,
    /// The last issued number, and the last one whose status was seen to be done.
    issued: AtomicU64,
    completed: AtomicU64,
    queue: Mutex<Queue>,
    /// Numbers whose status was not seen to be done, each with its event, in order. Held for a few
    /// instructions only, unlike the queue's lock, under which the driver may keep a caller waiting.
    outstanding: Mutex<VecDeque<(u64, Event)>>,
    calls: CallCounter,
    /// Since when, and when last, a look for a mark whose word is there found the stream captured.
    captured: Mutex<Option<(MonoNs, MonoNs)>>,
    /// Whether the handle is ours, to be used again.
    is_own: bool,
    /// Keeps the stream that the handle names.
    owner: Option<Box<dyn Any + Send + Sync>>,
    pub(super) reclaim: Reclaim,
}

/// The doorbell that a stream rings, and the device's address of its word there.
pub(super) struct Bell {
    pub(super) doorbell: Doorbell,
    pub(super) address: u64,
}

/// What a stream is made from.
pub(super) struct Parts {
    pub(super) handle: StreamHandle,
    pub(super) is_own: bool,
    pub(super) owner: Option<Box<dyn Any + Send + Sync>>,
    pub(super) bell: Option<Bell>,
}

/// What is held while something is queued, so that marks are queued in the order of their numbers.
struct Queue {
    /// There until the core is dropped.
    lease: Option<SlotLease>,
    /// The last number whose store the driver has taken.
    landing: u64,
}

/// What the status of a number is asked of.
enum Point {
    /// It was seen to be done.
    Done,
    /// The event of this mark, the first at or behind the number.
    Event { mark: u64, event: Event },
    /// The whole stream: the event of the mark could not be recorded.
    Stream,
}

impl<A: Interface> StreamCore<A> {
    pub(super) fn new(
        id: u64,
        context: Arc<Context<A>>,
        lease: SlotLease,
        word: u64,
        parts: Parts,
    ) -> Self {
        let last = lease.last_issued();
        StreamCore {
            id,
            handle: parts.handle,
            thread: (parts.handle == StreamHandle::PerThread).then(|| thread::current().id()),
            line: lease.line().clone(),
            slot: lease.slot(),
            word,
            bell: parts.bell,
            issued: AtomicU64::new(last),
            completed: AtomicU64::new(last),
            queue: Mutex::new(Queue { lease: Some(lease), landing: last }),
            outstanding: Mutex::default(),
            calls: CallCounter::default(),
            captured: Mutex::default(),
            is_own: parts.is_own,
            owner: parts.owner,
            reclaim: Reclaim::new(context.leases.clone()),
            context,
        }
    }

    /// Refuses `call` in a forked child, behind a fault, and on a thread where the handle means
    /// another stream.
    pub(super) fn check(&self, call: &str) -> Result<()> {
        self.context.home.check(call)?;
        match self.thread {
            Some(own) if own != thread::current().id() => {
                Err(Error::new(ErrorCode::ForeignThread, [call]))
            }
            _ => Ok(()),
        }
    }

    /// Refuses `call` where what it queues would be recorded instead of run.
    pub(super) fn check_not_captured(&self, api: &A, call: &str) -> Result<()> {
        // SAFETY: the handle is live: it is our own, or its owner is held, or the program vouches.
        if unsafe { api.is_capturing(self.handle) }? {
            return Err(Error::new(ErrorCode::Captured, [call]));
        }
        Ok(())
    }

    /// Returns once everybody who was queueing has done so.
    pub(super) fn pass_lock(&self) {
        drop(lock(&self.queue));
    }

    /// Queues `work` by driver calls, in the stream's context, where nothing is captured and the
    /// device is open.
    pub(super) fn enqueue<T>(&self, call: &str, work: impl FnOnce(&A) -> Result<T>) -> Result<T> {
        self.check(call)?;
        let _queue = lock(&self.queue);
        self.context.check_open(call)?;
        self.context.home.within(call, |api| {
            self.check_not_captured(api, call)?;
            work(api)
        })
    }

    fn queue_mark(&self, api: &A, queue: &mut Queue) -> Result<u64> {
        self.check_not_captured(api, "mark")?;
        let event = self.context.events.take(api)?;
        let lease = queue.lease.as_mut().expect("there while the core is");
        let number = lease.last_issued().checked_add(1).expect("fewer than 2^64 numbers");
        let mut taken = 0;
        let stored = self.queue_store(api, number, &mut taken);
        // A store that the driver has refused never lands: its number is the next one's, and the slot goes on.
        if stored.is_ok() || taken > 0 {
            lease.issue();
        }
        let queued = stored.and_then(|()| {
            queue.landing = number;
            // SAFETY: both handles are live, the stream's as in `check_not_captured`, the event's since it
            // is held here, and the pool destroys none that is.
            unsafe { api.record(*event, self.handle) }
        });
        if let Err(error) = queued {
            self.context.events.give_back([event]);
            return Err(error);
        }
        self.list(number, event.clone());
        // Behind the store and the event: who asks the stream's status takes what is issued for what that
        // speaks of.
        self.issued.store(number, Ordering::Release);
        if self.context.flush_marks {
            // SAFETY: as above.
            unsafe { api.query_event(*event) }?;
        }
        Ok(number)
    }

    /// Remembers the event of `number`, and forgets those of marks that nobody needs to ask about: where the
    /// words of two marks are there, the event of the second speaks for the first. So the list does not grow
    /// where a program looks at words alone.
    fn list(&self, number: u64, event: Event) {
        let landed = (*self.line).as_ref().load(self.slot);
        let mut outstanding = lock(&self.outstanding);
        outstanding.push_back((number, event));
        let spoken_for = outstanding.partition_point(|(mark, _)| *mark <= landed).saturating_sub(1);
        self.context.events.give_back(outstanding.drain(..spoken_for).map(|(_, event)| event));
    }

    fn queue_store(&self, api: &A, number: u64, taken: &mut usize) -> Result<()> {
        let Some(form) = self.context.form else { return Ok(()) };
        let word = Store { address: self.word, value: number };
        let rung = self
            .bell
            .as_ref()
            .map(|bell| Store { address: bell.address, value: bell.doorbell.next_number() });
        let both = [word, rung.unwrap_or(word)];
        let stores = if rung.is_some() { &both[..] } else { &both[..1] };
        // SAFETY: the handle is live. The word is of a line of this context, which stays until the
        // context has settled: pages are freed at its close alone, and there only where no stream
        // and no pool holds a line of theirs. The same holds for the doorbell's line.
        unsafe { api.store(self.handle, form, stores, taken) }
    }

    /// The status of `number` was seen to be done, and so that of every smaller one.
    fn settle(&self, number: u64) {
        let mut outstanding = lock(&self.outstanding);
        let done = outstanding.partition_point(|(mark, _)| *mark <= number);
        // The events' lock is taken inside this one, here and nowhere the other way round.
        self.context.events.give_back(outstanding.drain(..done).map(|(_, event)| event));
        self.completed.fetch_max(number, Ordering::Release);
        if self.context.form.is_none() {
            // No device stores it; the host does, so that the slot drains like any other. Under the
            // lock: a smaller number cannot come later.
            let line = (*self.line).as_ref();
            line.store(self.slot, line.load(self.slot).max(number));
        }
    }

    /// Whether marks are outstanding that no store will tell of: the device has none, and the slot drains by
    /// its status alone.
    pub(super) fn must_be_asked(&self) -> bool {
        self.context.form.is_none()
            && self.context.home.fault().is_none()
            && !lock(&self.outstanding).is_empty()
    }

    /// Asks, where it must be asked.
    pub(super) fn ask_if_it_must_be(&self) {
        if self.must_be_asked() {
            let asked = self.query_mark(self.issued.load(Ordering::Acquire));
            self.context.count_failure(asked);
        }
    }

    /// Whether the stream outlives its last handle: it is our own, or its owner is kept.
    pub(super) fn is_kept(&self) -> bool {
        self.is_own || self.owner.is_some()
    }

    /// Drops the waiting buffers whose words are there and whose status agrees.
    pub(super) fn sweep_reached(&self) {
        self.reclaim.sweep_reached(self);
    }

    /// What to ask about `number`.
    fn point_of(&self, number: u64) -> Result<Point> {
        let issued = self.issued.load(Ordering::Acquire);
        if number > issued {
            return Err(Error::never_issued(number, self.slot, issued));
        }
        let outstanding = lock(&self.outstanding);
        // First: the event behind a number that is done may be that of a later mark. Under the lock: who takes
        // a mark out of the list has said that it is completed, or leaves one behind it.
        if number <= self.completed.load(Ordering::Acquire) {
            return Ok(Point::Done);
        }
        let at = outstanding.partition_point(|(mark, _)| *mark < number);
        Ok(outstanding.get(at).map_or(Point::Stream, |(mark, event)| Point::Event {
            mark: *mark,
            event: event.clone(),
        }))
    }
}

impl<A: Interface> DeviceStream for StreamCore<A> {
    fn line(&self) -> &SharedLine {
        &self.line
    }

    fn slot(&self) -> Slot {
        self.slot
    }

    fn device_key(&self) -> usize {
        Arc::as_ptr(&self.context).addr()
    }

    fn query(&self) -> Result<bool> {
        count(&self.calls.queries);
        self.check("query")?;
        let queued = self.issued.load(Ordering::Acquire);
        if A::DEFAULT_QUERY_QUEUES && !matches!(self.handle, StreamHandle::Created(_)) {
            // A pending mark answers for the stream, and its query queues nothing.
            if let Point::Event { .. } = self.point_of(queued)? {
                if !self.query_mark(queued)? {
                    return Ok(false);
                }
            }
        }
        let is_done = self.context.home.within("query", |api| {
            // SAFETY: the handle is live, as in `check_not_captured`.
            unsafe { Ok(!api.is_capturing(self.handle)? && api.query_stream(self.handle)?) }
        })?;
        if is_done && queued > self.completed.load(Ordering::Relaxed) {
            self.settle(queued);
        }
        Ok(is_done)
    }

    fn synchronize(&self) -> Result<()> {
        count(&self.calls.synchronizes);
        self.check("synchronize")?;
        let queued = self.issued.load(Ordering::Acquire);
        self.context.home.within("synchronize", |api| {
            self.check_not_captured(api, "synchronize")?;
            self.context.sleep_behind(api, self.handle)
        })?;
        self.settle(queued);
        Ok(())
    }

    fn check_poll(&self) -> Result<()> {
        self.check("poll")?;
        self.context.home.within("poll", |api| self.check_not_captured(api, "poll"))
    }

    fn mark(&self) -> Result<u64> {
        count(&self.calls.marks);
        self.check("mark")?;
        let mut queue = lock(&self.queue);
        self.context.check_open("mark")?;
        self.context.home.within("mark", |api| self.queue_mark(api, &mut queue))
    }

    fn query_mark(&self, number: u64) -> Result<bool> {
        self.context.home.check("query_mark")?;
        let (mark, event) = match self.point_of(number)? {
            Point::Done => return Ok(true),
            Point::Stream => return self.query(),
            Point::Event { mark, event } => (mark, event),
        };
        count(&self.calls.queries);
        // No lock is held: a status call may take long.
        let home = &self.context.home;
        let is_done = home.within("query_mark", |api| self.query_event(api, number, &event))?;
        drop(event);
        if is_done {
            self.settle(mark);
        }
        Ok(is_done)
    }

    fn synchronize_mark(&self, number: u64) -> Result<()> {
        self.context.home.check("synchronize_mark")?;
        let (mark, event) = match self.point_of(number)? {
            Point::Done => return Ok(()),
            Point::Stream => return self.synchronize(),
            Point::Event { mark, event } => (mark, event),
        };
        count(&self.calls.synchronizes);
        let home = &self.context.home;
        home.within("synchronize_mark", |api| {
            if A::EVENTS_READ_STREAMS {
                self.check("synchronize_mark")?;
                self.check_not_captured(api, "synchronize_mark")?;
            }
            // SAFETY: the event is live, as in `queue_mark`, and so is its stream.
            let is_done = unsafe { api.query_event(*event) }?;
            // SAFETY: the same.
            if is_done { Ok(()) } else { unsafe { self.context.sleep_until(api, &event) } }
        })?;
        drop(event);
        self.settle(mark);
        Ok(())
    }
}

impl<A: Interface> Drop for StreamCore<A> {
    fn drop(&mut self) {
        if self.context.home.is_forked() {
            // The locks may be held by threads that this process does not have.
            let queue = self.queue.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
            core::mem::forget((queue.lease.take(), self.owner.take()));
            return;
        }
        let mut lease = {
            let queue = self.queue.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
            queue.lease.take()
        };
        let last = *self.issued.get_mut();
        let is_faulted = self.context.home.fault().is_some();
        let is_unlisted = lease.as_ref().is_some_and(|lease| lease.last_issued() > last);
        let may_be_left = |this: &Self| is_unlisted || !matches!(this.query_mark(last), Ok(true));
        if !self.is_own && !is_faulted && may_be_left(self) {
            let retired = self.retire(&mut lease);
            self.context.count_failure(retired);
        }
        // Nobody can ask later. What is not known to be done now is leaked and counted.
        self.reclaim.finish(|number| self.query_mark(number));
        let outstanding = core::mem::take(&mut *lock(&self.outstanding));
        self.context.events.give_back(outstanding.into_iter().map(|(_, event)| event));
        let queue = self.queue.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(lease) = lease {
            let last = lease.last_issued();
            // Not taken by the driver, or passed by the status and not there.
            let lost = last > queue.landing
                || (*self.completed.get_mut() >= last
                    && (*self.line).as_ref().load(self.slot) < last);
            self.context.give_slot_back(lease, lost);
        }
        if self.is_own {
            self.context.give_stream_back(self.handle);
        }
        self.context.forget_stream(self.id);
        // While the line is held, so that no close releases the context before.
        drop(self.owner.take());
    }
}

impl<A: Interface> Stream<A> {
    /// The driver's handle, to queue work of the program's own on it.
    ///
    /// The handle of a stream that the device made is used again for another stream once this one
    /// is dropped: nothing may be queued on it then.
    #[must_use]
    pub fn handle(&self) -> StreamHandle {
        self.core.handle
    }
}

impl<A: Interface> Stream<A> {
    /// How often the driver was asked through this stream.
    #[must_use]
    pub fn calls(&self) -> StreamCalls {
        let calls = &self.core.calls;
        StreamCalls {
            queries: calls.queries.load(Ordering::Relaxed),
            marks: calls.marks.load(Ordering::Relaxed),
            synchronizes: calls.synchronizes.load(Ordering::Relaxed),
        }
    }
}

impl<A: Interface> Drop for Stream<A> {
    fn drop(&mut self) {
        self.core.context.part_with(&self.core);
    }
}

forward_stream!(self: impl[A: Interface] Stream<A> => self.core);

impl<A: Interface> fmt::Debug for Stream<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("handle", &self.core.handle)
            .field("slot", &self.core.slot)
            .field("issued", &self.core.issued)
            .field("completed", &self.core.completed)
            .field("fault", &self.core.context.home.fault())
            .finish_non_exhaustive()
    }
}
