//! A stream: a command queue, a shared event, and a slot.

use super::buffer::MetalBuffer;
use super::device::{RawEvent, RawQueue, Shared, nil};
use super::ledger::{Ledger, Point, Ran, Work};
use crate::backend::lease::{
    DeviceBuffer, DeviceSide, Lease, LeaseStream, Plain, Readback, Reclaim,
};
use crate::core::doorbell::Doorbell;
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::line::{SharedLine, Slot};
use crate::core::pool::SlotLease;
use crate::core::port::{DeviceStream, forward_stream};
use crate::fork::Own;
use alloc::sync::Arc;
use block2::RcBlock;
use core::fmt;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::{NSObjectProtocol, ProtocolObject};
use objc2::sel;
use objc2_metal::{
    MTLBlitCommandEncoder, MTLBuffer, MTLCommandBuffer, MTLCommandBufferStatus, MTLCommandEncoder,
    MTLCommandQueue, MTLResource as _, MTLSharedEvent,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long a blocking wait for the event lasts before the states of the command buffers are looked at:
/// a failed one may never signal.
const LOOK_MS: u64 = 20;

/// A command queue as a stream. `Send` and `Sync`; it keeps its device.
///
/// Dropping it does not wait: what was committed runs to its end. Its slot goes back to the device's
/// pool with the last of its leases.
pub struct MetalStream(Arc<StreamCore>);

struct StreamCore {
    device: Arc<Shared>,
    /// Forgotten in a forked child.
    objects: Own<Objects>,
    line: SharedLine,
    slot: Slot,
    bell: Option<Doorbell>,
    state: Mutex<State>,
    reclaim: Reclaim,
}

struct Objects {
    queue: RawQueue,
    event: RawEvent,
    /// Whether the event has `waitUntilSignaledValue:timeoutMS:`.
    can_wait: bool,
}

struct State {
    ledger: Own<Ledger<Committed>>,
    /// There until the stream ends.
    lease: Option<SlotLease>,
}

/// A command buffer that was committed, or is about to be under the same lock.
#[derive(Clone)]
struct Committed(Retained<ProtocolObject<dyn MTLCommandBuffer>>);

// SAFETY: once it is committed, only `status`, `error` and `waitUntilCompleted` are called, which Metal
// itself lets its completion handlers do on a thread of the system's ("addCompletedHandler:").
// Retaining and releasing are atomic.
unsafe impl Send for Committed {}
// SAFETY: as above: these three change nothing.
unsafe impl Sync for Committed {}

impl Work for Committed {
    fn ran(&self) -> Ran {
        match self.0.status() {
            MTLCommandBufferStatus::Completed => Ran::Completed,
            MTLCommandBufferStatus::Error => Ran::Failed(self.error()),
            _ => Ran::Pending,
        }
    }
}

impl Committed {
    #[cold]
    fn error(&self) -> Error {
        autoreleasepool(|_| match self.0.error() {
            Some(error) => {
                let name = alloc::format!("{}: {}", error.domain(), error.localizedDescription());
                Error::status("command buffer", error.code() as i64, &name)
            }
            None => Error::backend("command buffer", "failed without an error"),
        })
    }
}

impl MetalStream {
    pub(super) fn new(
        device: Arc<Shared>,
        queue: RawQueue,
        event: RawEvent,
        lease: SlotLease,
        bell: Option<Doorbell>,
        reclaim: Reclaim,
    ) -> Self {
        let can_wait = event.respondsToSelector(sel!(waitUntilSignaledValue:timeoutMS:));
        let ledger = Own::new(Ledger::new(lease.last_issued()));
        MetalStream(Arc::new(StreamCore {
            device,
            objects: Own::new(Objects { queue, event, can_wait }),
            line: lease.line().clone(),
            slot: lease.slot(),
            bell,
            state: Mutex::new(State { ledger, lease: Some(lease) }),
            reclaim,
        }))
    }

    /// The queue, to make command buffers of.
    #[must_use]
    pub fn queue(&self) -> &ProtocolObject<dyn MTLCommandQueue> {
        &self.0.objects.queue
    }

    /// A new command buffer of the queue, which keeps what it uses. Blocks where the queue has as many
    /// unfinished ones as it may.
    ///
    /// # Errors
    ///
    /// A [`Backend`](ErrorCode::Backend) error where Metal makes none; [`Forked`](ErrorCode::Forked).
    pub fn command_buffer(&self) -> Result<Retained<ProtocolObject<dyn MTLCommandBuffer>>> {
        self.0.command_buffer()
    }

    /// Commits `buffer`, and keeps it until its state is known, so that its error is that of the waits
    /// behind it.
    ///
    /// # Errors
    ///
    /// The error of a command buffer that failed before; nothing is committed then.
    /// [`ForeignContext`](ErrorCode::ForeignContext) where it is of another queue, a
    /// [`Backend`](ErrorCode::Backend) error where it was committed already,
    /// [`Forked`](ErrorCode::Forked).
    pub fn commit(&self, buffer: &Retained<ProtocolObject<dyn MTLCommandBuffer>>) -> Result<()> {
        let core = &self.0;
        core.check_fork("commit")?;
        let is_own = autoreleasepool(|_| core::ptr::eq(&*buffer.commandQueue(), self.queue()));
        if !is_own {
            return Err(Error::new(ErrorCode::ForeignContext, ["commit", "command buffer"]));
        }
        let mut state = core.lock();
        state.ledger.check()?;
        if buffer.status() >= MTLCommandBufferStatus::Committed {
            return Err(Error::backend("commit", "the command buffer was committed already"));
        }
        state.ledger.commit(Committed(buffer.clone()));
        buffer.commit();
        Ok(())
    }

    /// Leases `buffer` to the work that `queue` commits on this stream: [`Lease::new`].
    ///
    /// # Errors
    ///
    /// As [`Lease::new`].
    pub fn lease<B: DeviceBuffer, T>(
        &self,
        buffer: B,
        queue: impl FnOnce(DeviceSide) -> Result<T>,
    ) -> Result<(Lease<B>, T)> {
        Lease::new(self.0.clone(), buffer, queue)
    }

    /// Commits a copy of the bytes `range` of `from` to the beginning of `into`, to be read as `T`s
    /// once it is done.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit) and [`command_buffer`](Self::command_buffer); the buffer then waits
    /// for the mark behind what was committed, or is leaked and counted.
    /// [`ForeignContext`](ErrorCode::ForeignContext) where one of the buffers is of another device, before
    /// anything is committed.
    ///
    /// # Panics
    ///
    /// Where `range` does not lie within `from`, is no whole number of `T`s, or does not fit into
    /// `into`.
    pub fn read_back<T: Plain>(
        &self,
        from: &ProtocolObject<dyn MTLBuffer>,
        range: Range<usize>,
        into: MetalBuffer,
    ) -> Result<Readback<T, MetalBuffer>> {
        assert!(range.start <= range.end && range.end <= from.length(), "the source is too short");
        assert!(range.len() % size_of::<T>() == 0, "the range is no whole number of elements");
        let count = range.len() / size_of::<T>();
        let to = into.raw();
        let own = self.queue().device();
        for buffer in [from, &*to] {
            if !core::ptr::eq(&*buffer.device(), &*own) {
                return Err(Error::new(ErrorCode::ForeignContext, ["read_back", "buffer"]));
            }
        }
        Readback::new(self.0.clone(), into, count, |_| {
            autoreleasepool(|_| {
                let commands = self.command_buffer()?;
                let blit =
                    commands.blitCommandEncoder().ok_or_else(|| nil("blitCommandEncoder"))?;
                if !range.is_empty() {
                    // SAFETY: both ranges lie within their buffers: checked above and by
                    // `Readback::new`. Both are of the queue's device. The command buffer keeps both. The target is in shared
                    // storage and leased to this copy; the bytes of numbers have no other type.
                    unsafe {
                        blit.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size(
                            from,
                            range.start,
                            &to,
                            0,
                            range.len(),
                        );
                    }
                }
                blit.endEncoding();
                self.commit(&commands)
            })
        })
    }

    /// Drops the buffers of dropped leases that the device is done with: [`LeaseStream::sweep`].
    pub fn sweep(&self) -> usize {
        self.0.sweep()
    }
}

impl StreamCore {
    fn check_fork(&self, call: &str) -> Result<()> {
        self.objects.birth().check(call)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn command_buffer(&self) -> Result<Retained<ProtocolObject<dyn MTLCommandBuffer>>> {
        self.check_fork("commandBuffer")?;
        // Metal returns it autoreleased: on a thread without a pool of its own it would stay until that ends.
        autoreleasepool(|_| self.objects.queue.commandBuffer()).ok_or_else(|| nil("commandBuffer"))
    }

    /// What stores `number` into the line once the event shows it.
    fn notify(&self, number: u64) {
        let (line, slot, bell) = (self.line.clone(), self.slot, self.bell.clone());
        let store = move |_: NonNull<ProtocolObject<dyn MTLSharedEvent>>, _: u64| {
            // Notifications may come in any order: an earlier one does not take back a later number.
            (*line).as_ref().words[slot.index()].fetch_max(number, Ordering::Release);
            if let Some(bell) = &bell {
                bell.ring();
            }
        };
        let block = RcBlock::new(store);
        // SAFETY: the pointer is that of a block on the heap, valid for the call; Metal retains it
        // until it was called. It may be called on any thread: what it holds is `Send` and `Sync`.
        unsafe {
            self.objects.event.notifyListener_atValue_block(
                self.device.listener(),
                number,
                RcBlock::as_ptr(&block),
            );
        }
    }

    fn wait_for(
        &self,
        point: Point,
        mut done: impl FnMut(&mut State) -> Result<bool>,
    ) -> Result<()> {
        loop {
            let pending = {
                let mut state = self.lock();
                if done(&mut state)? {
                    return Ok(());
                }
                state.ledger.first_pending(point).cloned()
            };
            let signaled = self.objects.event.signaledValue();
            match (point, pending) {
                (Point::Mark(number), _) if self.objects.can_wait && signaled < number => {
                    self.objects.event.waitUntilSignaledValue_timeoutMS(number, LOOK_MS);
                }
                // It returns once the command buffer has completed or failed.
                (_, Some(pending)) => pending.0.waitUntilCompleted(),
                // Ended between the two looks.
                (_, None) => std::thread::yield_now(),
            }
        }
    }
}

impl DeviceStream for StreamCore {
    fn line(&self) -> &SharedLine {
        &self.line
    }

    fn slot(&self) -> Slot {
        self.slot
    }

    fn device_key(&self) -> usize {
        Arc::as_ptr(&self.device).addr()
    }

    fn query(&self) -> Result<bool> {
        self.check_fork("query")?;
        let mut state = self.lock();
        let everything = state.ledger.everything();
        state.ledger.query(everything)
    }

    fn synchronize(&self) -> Result<()> {
        self.check_fork("synchronize")?;
        let everything = self.lock().ledger.everything();
        self.wait_for(everything, |state| state.ledger.query(everything))
    }

    fn mark(&self) -> Result<u64> {
        self.check_fork("mark")?;
        autoreleasepool(|_| {
            // Before the lock: it blocks where the queue is full.
            let commands = self.command_buffer()?;
            let mut state = self.lock();
            state.ledger.check()?;
            let Some(lease) = &mut state.lease else {
                return Err(Error::new(ErrorCode::Closed, ["mark"]));
            };
            let number = lease.issue();
            self.notify(number);
            commands
                .encodeSignalEvent_value(ProtocolObject::from_ref(&*self.objects.event), number);
            state.ledger.mark(number, Committed(commands.clone()));
            commands.commit();
            Ok(number)
        })
    }

    fn query_mark(&self, number: u64) -> Result<bool> {
        self.check_fork("query_mark")?;
        // The event first: what it shows was signaled before the states are read.
        let signaled = self.objects.event.signaledValue();
        let mut state = self.lock();
        state.check_issued(number, self.slot)?;
        state.ledger.query_mark(number, signaled)
    }

    fn synchronize_mark(&self, number: u64) -> Result<()> {
        self.check_fork("synchronize_mark")?;
        self.lock().check_issued(number, self.slot)?;
        let event = &self.objects.event;
        self.wait_for(Point::Mark(number), |state| {
            state.ledger.query_mark(number, event.signaledValue())
        })
    }
}

impl State {
    fn check_issued(&self, number: u64, slot: Slot) -> Result<()> {
        let issued = self.ledger.issued();
        if number <= issued { Ok(()) } else { Err(Error::never_issued(number, slot, issued)) }
    }
}

impl LeaseStream for StreamCore {
    fn reclaim(&self) -> &Reclaim {
        &self.reclaim
    }
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        if self.objects.birth().is_forked() {
            return;
        }
        self.reclaim.finish(|number| self.query_mark(number));
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let failed = state.ledger.check().is_err();
        if let Some(lease) = state.lease.take() {
            self.device.give_back(lease, failed);
        }
    }
}

forward_stream!(self: impl[] MetalStream => self.0);

impl fmt::Debug for MetalStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetalStream").field("slot", &self.0.slot).finish_non_exhaustive()
    }
}
