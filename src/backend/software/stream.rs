//! The program's handle of a stream.

use super::device::Alive;
use super::fault::{QueryFault, StoreFault};
use super::queue::StreamCore;
use super::status::{DriverCalls, count};
use super::work::Work;
use crate::core::error::Result;
use crate::core::line::{SharedLine, Slot};
use crate::core::port::DeviceStream;
use crate::core::time::{DurNs, MonoNs};
use crate::fork::Own;
use alloc::sync::Arc;
use core::fmt;

/// An in-order queue of work of a [`SoftwareDevice`](super::SoftwareDevice).
///
/// `Send` and `Sync`: any thread may queue and ask. A stream keeps its device alive.
///
/// # Dropping it
///
/// Never blocks and discards nothing: what is queued still runs to its last store, on the workers.
/// The slot goes back to the device's pool once that has happened; a store that is still late then
/// drains there. It is retired where the stream faulted, hangs for ever, or its last store was lost.
pub struct SoftwareStream {
    pub(super) core: Own<Arc<StreamCore>>,
    _device: Own<Arc<Alive>>,
}

impl SoftwareStream {
    pub(super) fn new(core: Arc<StreamCore>, device: Own<Arc<Alive>>) -> Self {
        SoftwareStream { core: Own::new(core), _device: device }
    }

    /// Queues `work` behind what is queued already, as one: no other thread's work comes between.
    ///
    /// # Errors
    ///
    /// The sticky fault, or that the device is closed. Nothing was queued then.
    pub fn queue(&self, work: Work) -> Result<()> {
        self.core.enqueue(work.pieces, "queue")
    }

    /// Queues a delay: [`Work::delay`] on its own.
    ///
    /// # Errors
    ///
    /// As [`queue`](Self::queue).
    pub fn delay(&self, time: DurNs) -> Result<()> {
        self.queue(Work::new().delay(time))
    }

    /// Queues a call of `code` on a worker thread: [`Work::run`] on its own.
    ///
    /// # Errors
    ///
    /// As [`queue`](Self::queue).
    pub fn run(&self, code: impl FnOnce() + Send + 'static) -> Result<()> {
        self.queue(Work::new().run(code))
    }

    /// Breaks the store of the next mark that is made. Several in a row break the next ones, one
    /// each.
    pub fn inject_store(&self, fault: StoreFault) {
        if !self.core.is_forked() {
            self.core.plan_store_fault(fault);
        }
    }

    /// Breaks the next status query, whoever makes it. Several in a row break the next ones, one
    /// each.
    pub fn inject_query(&self, fault: QueryFault) {
        if !self.core.is_forked() {
            self.core.status.inject(fault);
        }
    }

    /// When the store of `number` landed, on the process's monotonic clock, which is that of the
    /// standard library's hosts as well: taken by the worker right before it stored the word. None
    /// before that, for a lost store, and for a number that is not among the last
    /// [`STAMPS_KEPT`](super::STAMPS_KEPT) stored. Takes the stream's lock. None in a forked child.
    #[must_use]
    pub fn stamp_of(&self, number: u64) -> Option<MonoNs> {
        if self.core.is_forked() {
            return None;
        }
        self.core.lock().stamps.of(number)
    }

    /// How often the driver was called through this stream.
    #[must_use]
    pub fn calls(&self) -> DriverCalls {
        self.core.calls.get()
    }
}

impl DeviceStream for SoftwareStream {
    fn line(&self) -> &SharedLine {
        &self.core.line
    }

    fn slot(&self) -> Slot {
        self.core.slot
    }

    fn device_key(&self) -> usize {
        Arc::as_ptr(&self.core.device).addr()
    }

    fn query(&self) -> Result<bool> {
        self.core.query()
    }

    fn synchronize(&self) -> Result<()> {
        self.core.synchronize()
    }

    fn mark(&self) -> Result<u64> {
        count(&self.core.calls.marks);
        self.core.enqueue_mark()
    }

    fn query_mark(&self, number: u64) -> Result<bool> {
        self.core.query_mark(number)
    }

    fn synchronize_mark(&self, number: u64) -> Result<()> {
        self.core.synchronize_mark(number)
    }
}

impl Drop for SoftwareStream {
    fn drop(&mut self) {
        if !self.core.is_forked() {
            self.core.drop_handle();
        }
    }
}

impl fmt::Debug for SoftwareStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoftwareStream")
            .field("id", &self.core.id)
            .field("slot", &self.core.slot)
            .field("done", &self.core.status.all_done())
            .field("fault", &self.core.status.fault())
            .finish()
    }
}
