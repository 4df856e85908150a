//! The queue of one stream: what its program adds to it, and how it settles.
//!
//! ```text
//!                                       ,--4--> Waiting --5--> Scheduled
//! Idle --1--> Scheduled --2--> Running -+--6--> Held -----7--> Scheduled
//!                                       +--3--> Scheduled
//!                                       '--8--> Idle
//! ```
//!
//! | edge | taken by |
//! |---|---|
//! | 1 | [`StreamCore::enqueue`], [`StreamCore::enqueue_mark`]: work for an idle stream |
//! | 2 | `StreamCore::step`: a worker took the stream from the scheduler |
//! | 3 | `StreamCore::give_way`: it had its turn and has work left |
//! | 4 | `StreamCore::wait`: a delay that is not over, a status that comes after its word |
//! | 5 | the scheduler: the timer is due; the next edge is 2, and the state says so only then |
//! | 6 | `StreamCore::hang`: a hang that is not released |
//! | 7 | [`StreamCore::resume`]: it was released; [`StreamCore::fail`]: nothing will release it |
//! | 8 | `StreamCore::step`: nothing is left; `StreamCore::discard`: nothing is left behind a fault |
//!
//! All edges but 5 are taken under the queue's lock. Locks nest in one order: queue, then hang, then
//! scheduler; the slot pool's and the device's list of streams are taken alone.

use super::device::Shared;
use super::fault::{Fault, StoreFault};
use super::lock;
use super::stamp::Stamps;
use super::status::{CallCounter, Status};
use super::work::{Mark, Piece, Queued};
use crate::backend::lease::Reclaim;
use crate::core::doorbell::Doorbell;
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::line::{SharedLine, Slot};
use crate::core::pool::SlotLease;
use crate::core::time::MonoNs;
use crate::fork::Birth;
use crate::monotonic;
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use std::sync::{Condvar, Mutex, MutexGuard};

/// One stream, shared by its handle, the scheduler and the hangs that hold it.
pub(super) struct StreamCore {
    pub(super) id: u64,
    pub(super) device: Arc<Shared>,
    pub(super) line: SharedLine,
    pub(super) slot: Slot,
    /// The doorbell, and the word of it that is this stream's.
    pub(super) bell: Option<(Doorbell, Slot)>,
    pub(super) status: Status,
    pub(super) calls: CallCounter,
    birth: Birth,
    pub(super) reclaim: Reclaim,
    /// This core, for the calls of a lease, which knows it by a trait only.
    pub(super) me: Weak<StreamCore>,
    queue: Mutex<Queue>,
    /// Notified when what is awaited has come, or a fault.
    moved: Condvar,
}

pub(super) struct Queue {
    pub(super) work: VecDeque<Queued>,
    pub(super) state: State,
    /// The piece that a waiting or held stream is in the middle of.
    pub(super) pending: Option<Pending>,
    /// When the last finished piece ended: for a delay its exact end, not when a worker noticed.
    pub(super) ended: MonoNs,
    pub(super) stamps: Stamps,
    /// The earliest that a thread blocked in [`StreamCore::wait_until`] waits for. Nobody is woken
    /// before it: a system call would come between one piece of work and the next.
    awaited: Awaited,
    /// There until the stream is dropped and has settled.
    lease: Option<SlotLease>,
    /// For the next marks, one each.
    store_faults: VecDeque<StoreFault>,
    /// A word was lost for good.
    pub(super) lost: bool,
    /// The program has dropped its handle.
    dropped: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Idle,
    Scheduled,
    Running,
    Waiting,
    Held,
}

/// What blocked threads wait for: whichever of the two comes first, or a fault.
#[derive(Clone, Copy)]
pub(super) struct Awaited {
    /// That many pieces are done.
    done: u64,
    /// The mark of this number is done.
    mark: u64,
}

impl Awaited {
    const NOTHING: Awaited = Awaited { done: u64::MAX, mark: u64::MAX };

    pub(super) fn done(pieces: u64) -> Self {
        Awaited { done: pieces, ..Awaited::NOTHING }
    }

    pub(super) fn mark(number: u64) -> Self {
        Awaited { mark: number, ..Awaited::NOTHING }
    }

    fn or(self, other: Awaited) -> Self {
        Awaited { done: self.done.min(other.done), mark: self.mark.min(other.mark) }
    }

    fn has_come(self, status: &Status) -> bool {
        status.has_done(self.done) || status.has_completed(self.mark) || status.fault().is_some()
    }
}

pub(super) enum Pending {
    Delay { until: MonoNs },
    Status { number: u64, until: MonoNs },
    Hang,
}

impl StreamCore {
    pub(super) fn new(
        id: u64,
        device: Arc<Shared>,
        lease: SlotLease,
        bell: Option<(Doorbell, Slot)>,
        reclaim: Reclaim,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| StreamCore {
            id,
            line: lease.line().clone(),
            slot: lease.slot(),
            bell,
            status: Status::new(lease.last_issued(), device.lost.clone()),
            device,
            calls: CallCounter::default(),
            birth: Birth::here(),
            reclaim,
            me: me.clone(),
            queue: Mutex::new(Queue {
                work: VecDeque::new(),
                state: State::Idle,
                pending: None,
                ended: MonoNs(0),
                stamps: Stamps::default(),
                awaited: Awaited::NOTHING,
                lease: Some(lease),
                store_faults: VecDeque::new(),
                lost: false,
                dropped: false,
            }),
            moved: Condvar::new(),
        })
    }

    /// Refuses `call` in a forked child, where the locks of this may be held by nobody.
    #[inline]
    pub(super) fn check_fork(&self, call: &str) -> Result<()> {
        self.birth.check(call)
    }

    pub(super) fn is_forked(&self) -> bool {
        self.birth.is_forked()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Queues `pieces`, for `call`.
    pub(super) fn enqueue(self: &Arc<Self>, pieces: Vec<Piece>, call: &str) -> Result<()> {
        self.check_fork(call)?;
        let mut queue = self.lock();
        self.check_open(call)?;
        let at = monotonic::now();
        self.status.add_queued(pieces.len() as u64);
        queue.work.extend(pieces.into_iter().map(|piece| Queued { piece, at }));
        self.schedule_if_idle(queue);
        Ok(())
    }

    /// Queues a mark and returns its number.
    pub(super) fn enqueue_mark(self: &Arc<Self>) -> Result<u64> {
        self.check_fork("mark")?;
        let mut queue = self.lock();
        self.check_open("mark")?;
        let at = monotonic::now();
        if queue.dropped {
            // Asked through a lease that outlived the handle: the slot may be another stream's.
            return Err(Error::new(ErrorCode::Closed, ["mark"]));
        }
        let number = queue.lease.as_mut().expect("there while the handle is").issue();
        self.status.add_mark(number);
        let ring = self.bell.as_ref().map(|(bell, _)| bell.next_number());
        let wrong = queue.store_faults.pop_front();
        queue.work.push_back(Queued { piece: Piece::Mark(Mark { number, ring, wrong }), at });
        self.schedule_if_idle(queue);
        Ok(number)
    }

    /// What a call that queues asks first, under the queue's lock: a closing device faults, under
    /// the same lock, what was queued before its closing was seen here.
    fn check_open(&self, call: &str) -> Result<()> {
        self.status.check_fault(call)?;
        if self.device.is_closing() { Err(Fault::device_closed().error(call)) } else { Ok(()) }
    }

    fn schedule_if_idle(self: &Arc<Self>, queue: MutexGuard<'_, Queue>) {
        if !queue.work.is_empty() {
            self.schedule_if(State::Idle, queue);
        }
    }

    /// Lets a held stream go on.
    pub(super) fn resume(self: &Arc<Self>) {
        self.schedule_if(State::Held, self.lock());
    }

    fn schedule_if(self: &Arc<Self>, state: State, mut queue: MutexGuard<'_, Queue>) {
        if queue.state == state {
            queue.state = State::Scheduled;
            drop(queue);
            self.device.scheduler.push(self.clone());
        }
    }

    /// Faults a stream that nothing will release any more.
    pub(super) fn fail_if_held(self: &Arc<Self>) {
        let held = self.lock().state == State::Held;
        if held {
            self.fail(Fault::device_closed());
        }
    }

    /// Makes `fault` the stream's status. What is queued is discarded by a worker.
    pub(super) fn fail(self: &Arc<Self>, fault: Fault) {
        let mut queue = self.lock();
        self.status.set_fault(fault);
        self.announce(&mut queue);
        drop(queue);
        self.resume();
    }

    /// Wakes blocked threads, if what the first of them waits for has come.
    pub(super) fn announce(&self, queue: &mut Queue) {
        if queue.awaited.has_come(&self.status) {
            queue.awaited = Awaited::NOTHING;
            self.moved.notify_all();
        }
    }

    /// Blocks until `target` has come, or the stream has faulted.
    pub(super) fn wait_until(&self, call: &str, target: Awaited) -> Result<()> {
        let mut queue = self.lock();
        while !target.has_come(&self.status) {
            queue.awaited = queue.awaited.or(target);
            queue = self.moved.wait(queue).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        self.status.check_fault(call)
    }

    pub(super) fn plan_store_fault(&self, fault: StoreFault) {
        self.lock().store_faults.push_back(fault);
    }

    /// The handle is gone: the slot goes back now, or once what is queued has run.
    pub(super) fn drop_handle(&self) {
        let mut queue = self.lock();
        queue.dropped = true;
        if queue.state == State::Idle {
            self.give_back(queue);
        }
    }

    /// Returns the slot of a settled stream whose handle is gone. The last number may still be
    /// outstanding where its store is late; the slot then drains.
    pub(super) fn give_back(&self, mut queue: MutexGuard<'_, Queue>) {
        if !queue.dropped {
            return;
        }
        let Some(lease) = queue.lease.take() else { return };
        let lost = queue.lost;
        drop(queue);
        let unreached = (*self.line).as_ref().load(self.slot) < lease.last_issued();
        let mut pool = lock(&self.device.pool);
        if self.status.fault().is_some() || (lost && unreached) {
            pool.retire(lease);
        } else {
            pool.release(lease);
        }
    }

    /// Whether something was queued that was neither done nor discarded by a fault.
    pub(super) fn is_unfinished(&self) -> bool {
        let _queue = self.lock();
        self.status.fault().is_none() && !self.status.all_done()
    }
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        if self.is_forked() {
            // By the last handle that a lease gave away. What is queued is the parent's.
            if let Ok(queue) = self.queue.get_mut() {
                core::mem::forget(core::mem::take(&mut queue.work));
            }
            return;
        }
        // Quietly: an injected fault of a query is for the program's own.
        self.reclaim.finish(|number| {
            self.status.check_fault("query_mark")?;
            Ok(self.status.has_completed(number))
        });
        self.device.forget(self.id, self.calls.get());
        let queue = self.queue.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Not settled, and nobody is left to finish it.
        if let Some(lease) = queue.lease.take() {
            lock(&self.device.pool).retire(lease);
        }
    }
}
