//! The status of a stream, readable without a lock while a worker moves it on.

use super::fault::{Fault, QueryFault};
use super::lock;
use crate::core::error::{Error, Result};
use crate::core::line::Slot;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// A sticky fault is there.
const FAULTED: u32 = 1;
/// A fault is waiting for the next query.
const QUERY_FAULTS: u32 = 2;

/// How often the driver was called.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DriverCalls {
    /// Status queries, of everything or of a mark.
    pub queries: u64,
    /// Marks, each a store and an event.
    pub marks: u64,
    /// Blocking waits.
    pub synchronizes: u64,
}

impl DriverCalls {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.queries + self.marks + self.synchronizes
    }
}

/// Counts [`DriverCalls`]. Relaxed: a count orders nothing.
#[derive(Default)]
pub(super) struct CallCounter {
    pub(super) queries: AtomicU64,
    pub(super) marks: AtomicU64,
    pub(super) synchronizes: AtomicU64,
}

impl CallCounter {
    pub(super) fn get(&self) -> DriverCalls {
        DriverCalls {
            queries: self.queries.load(Ordering::Relaxed),
            marks: self.marks.load(Ordering::Relaxed),
            synchronizes: self.synchronizes.load(Ordering::Relaxed),
        }
    }

    pub(super) fn add(&self, calls: DriverCalls) {
        self.queries.fetch_add(calls.queries, Ordering::Relaxed);
        self.marks.fetch_add(calls.marks, Ordering::Relaxed);
        self.synchronizes.fetch_add(calls.synchronizes, Ordering::Relaxed);
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What a status query looks at. Written with the stream's queue locked.
pub(super) struct Status {
    /// 0 unless something is wrong, which is all that the common path asks.
    trouble: AtomicU32,
    /// Pieces of work queued, marks included.
    queued: AtomicU64,
    /// Pieces of work finished. Stays behind `queued` once the stream has faulted.
    done: AtomicU64,
    issued: AtomicU64,
    /// The largest number whose mark is done.
    completed: AtomicU64,
    fault: OnceLock<Fault>,
    /// That of the device, which all of its streams share, so that no stream's call succeeds after
    /// another's has failed by it.
    lost: Arc<OnceLock<Fault>>,
    query_faults: Mutex<VecDeque<QueryFault>>,
}

impl Status {
    /// The status of a stream whose slot goes on from `issued`, of a device that `lost` says the loss of.
    pub(super) fn new(issued: u64, lost: Arc<OnceLock<Fault>>) -> Self {
        Status {
            trouble: AtomicU32::new(0),
            queued: AtomicU64::new(0),
            done: AtomicU64::new(0),
            issued: AtomicU64::new(issued),
            completed: AtomicU64::new(issued),
            fault: OnceLock::new(),
            lost,
            query_faults: Mutex::new(VecDeque::new()),
        }
    }

    /// The status of everything queued so far, without the injected faults of queries.
    pub(super) fn all_done(&self) -> bool {
        let queued = self.queued.load(Ordering::Acquire);
        self.done.load(Ordering::Acquire) >= queued
    }

    pub(super) fn query(&self) -> Result<bool> {
        self.look_for_trouble("query")?;
        Ok(self.all_done())
    }

    /// Agrees with [`query`](Self::query) in both directions, whichever of the two a wait has seen
    /// done: the mark counts among the pieces done before its number counts as completed, and
    /// everything done includes the mark.
    pub(super) fn query_mark(&self, number: u64, slot: Slot) -> Result<bool> {
        self.look_for_trouble("query_mark")?;
        self.check_issued(number, slot)?;
        Ok(self.has_completed(number) || self.all_done())
    }

    pub(super) fn check_issued(&self, number: u64, slot: Slot) -> Result<()> {
        let issued = self.issued.load(Ordering::Acquire);
        if number <= issued {
            return Ok(());
        }
        Err(Error::never_issued(number, slot, issued))
    }

    pub(super) fn queued(&self) -> u64 {
        self.queued.load(Ordering::Acquire)
    }

    pub(super) fn has_done(&self, pieces: u64) -> bool {
        self.done.load(Ordering::Acquire) >= pieces
    }

    pub(super) fn has_completed(&self, number: u64) -> bool {
        self.completed.load(Ordering::Acquire) >= number
    }

    pub(super) fn add_queued(&self, pieces: u64) {
        self.queued.fetch_add(pieces, Ordering::Release);
    }

    pub(super) fn add_done(&self) {
        self.done.fetch_add(1, Ordering::Release);
    }

    /// A mark of `number` is queued. Who sees the number issued also sees its piece queued.
    pub(super) fn add_mark(&self, number: u64) {
        self.add_queued(1);
        self.issued.store(number, Ordering::Release);
    }

    /// The mark of `number` is done. Who sees that also sees its piece done.
    pub(super) fn add_done_mark(&self, number: u64) {
        self.add_done();
        self.completed.store(number, Ordering::Release);
    }

    /// Makes `fault` the answer of everything from now on; the first one stays.
    pub(super) fn set_fault(&self, fault: Fault) {
        let _ = self.fault.set(fault);
        self.trouble.fetch_or(FAULTED, Ordering::Release);
    }

    /// The sticky fault: the stream's own before that of the device.
    pub(super) fn fault(&self) -> Option<&Fault> {
        self.fault.get().or_else(|| self.lost.get())
    }

    /// The sticky fault, as the error of `call`.
    pub(super) fn check_fault(&self, call: &str) -> Result<()> {
        self.fault().map_or(Ok(()), |fault| Err(fault.error(call)))
    }

    pub(super) fn inject(&self, fault: QueryFault) {
        let mut faults = lock(&self.query_faults);
        faults.push_back(fault);
        self.trouble.fetch_or(QUERY_FAULTS, Ordering::Release);
    }

    #[inline]
    fn look_for_trouble(&self, call: &str) -> Result<()> {
        if self.trouble.load(Ordering::Acquire) == 0 && self.lost.get().is_none() {
            return Ok(());
        }
        self.meet_trouble(call)
    }

    #[cold]
    fn meet_trouble(&self, call: &str) -> Result<()> {
        let injected = {
            let mut faults = lock(&self.query_faults);
            let injected = faults.pop_front();
            if faults.is_empty() {
                self.trouble.fetch_and(!QUERY_FAULTS, Ordering::Release);
            }
            injected
        };
        match injected {
            Some(QueryFault::Fail(fault)) => return Err(fault.error(call)),
            Some(QueryFault::Hang(hang)) => hang.block(),
            None => {}
        }
        self.check_fault(call)
    }
}
