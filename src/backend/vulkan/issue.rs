//! A stream: what it queues, and its status.
//!
//! # Numbers
//!
//! Every submission takes the next number, and signals the stream's timeline semaphore to it. A mark
//! also stores it into the word; a submission without a mark leaves it out, so the word may skip
//! numbers and the counter does not. A number counts as issued once its submission was accepted: one that
//! `vkQueueSubmit` refused for lack of memory is taken by the next submission.
//!
//! # Locks
//!
//! Queueing takes the stream's lock, and under it the queue's for the one call of `vkQueueSubmit`.
//! Recording happens under the stream's alone. Numbers are therefore submitted in their order, as a
//! timeline semaphore demands. A status query waits for no lock; it tries the stream's where a use of memory
//! is over.
//!
//! # Its end
//!
//! Dropping the last handle makes no Vulkan call: everything that the device may still use goes to
//! [`Remains`], which the device looks at later.

use super::buffer::DeviceMemory;
use super::commands::CommandSet;
use super::gpu::Gpu;
use super::pages::Place;
use super::record::{LAST_NUMBER, Mark, Recorder, next_ring};
use super::remains::Remains;
use super::shared::Shared;
use super::status;
use super::submission::Submission;
use crate::backend::lease::{LeaseStream, Reclaim};
use crate::core::doorbell::Doorbell;
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::line::{SharedLine, Slot};
use crate::core::pool::SlotLease;
use crate::core::port::DeviceStream;
use crate::core::time::MonoNs;
use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::vk;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long one call of `vkWaitSemaphores` lasts at most, in nanoseconds. In between the stream looks
/// whether another one has met the loss of the device.
const WAIT_SLICE_NS: u64 = 1_000_000_000;

/// How often the counter is looked at after a wait for it has ended well. On a device that is not lost once is
/// enough.
const LOOKS: u32 = 1_000;

pub(super) struct StreamCore {
    shared: Arc<Shared>,
    line: SharedLine,
    slot: Slot,
    place: Place,
    bell: Option<Bell>,
    semaphore: vk::Semaphore,
    /// The largest number that was ever handed to `vkQueueSubmit`.
    attempted: AtomicU64,
    /// The largest number whose submission was accepted.
    submitted: AtomicU64,
    /// The largest counter that was seen.
    known: AtomicU64,
    /// The first number whose memory the issuer keeps, written under its lock; the largest there is for none.
    /// A status that has not reached it leaves the lock alone.
    oldest_use: AtomicU64,
    /// None only while the stream is dropped.
    issuer: Mutex<Option<Issuer>>,
    /// None only while the stream is dropped.
    reclaim: Option<Reclaim>,
    pub(super) calls: Calls,
}

/// A doorbell, and the word of it that the stream rings.
pub(super) struct Bell {
    pub(super) doorbell: Doorbell,
    pub(super) place: Place,
    pub(super) slot: Slot,
}

/// What queueing needs, under the stream's lock.
struct Issuer {
    lease: SlotLease,
    commands: CommandSet,
    /// The last number whose store was queued.
    marked: u64,
    /// The number whose time each query of the stamps holds, 0 for none of this stream's. Empty where
    /// marks take no time.
    stamped: Vec<u64>,
    /// Memory that the submissions up to a number use.
    uses: VecDeque<(u64, Arc<DeviceMemory>)>,
}

/// How often Vulkan was called. Relaxed: a count orders nothing.
#[derive(Default)]
pub(super) struct Calls {
    pub(super) queries: AtomicU64,
    pub(super) submits: AtomicU64,
    pub(super) waits: AtomicU64,
}

/// One batch.
#[derive(Clone, Copy, Default)]
pub(super) struct Batch<'a> {
    /// The program's part, which comes first.
    pub(super) program: Submission<'a>,
    /// Recorded behind it.
    pub(super) work: Option<&'a dyn Fn(&Recorder<'_>)>,
    /// Whether the number is stored behind that.
    pub(super) mark: bool,
    /// What the work uses.
    pub(super) uses: &'a [&'a Arc<DeviceMemory>],
}

impl StreamCore {
    /// A stream that issues the numbers of `lease`. `semaphore` counts from the lease's last number.
    pub(super) fn new(
        shared: Arc<Shared>,
        lease: SlotLease,
        place: Place,
        bell: Option<Bell>,
        semaphore: vk::Semaphore,
        commands: CommandSet,
    ) -> Self {
        let base = lease.last_issued();
        let (line, slot) = (lease.line().clone(), lease.slot());
        let stamps = if commands.stamps.is_some() { super::TIMESTAMPS_KEPT as usize } else { 0 };
        let stamped = alloc::vec![0; stamps];
        let issuer = Issuer { lease, commands, marked: base, stamped, uses: VecDeque::new() };
        let reclaim = Some(Reclaim::new(shared.leases().clone()));
        StreamCore {
            reclaim,
            shared,
            line,
            slot,
            place,
            bell,
            semaphore,
            attempted: AtomicU64::new(base),
            submitted: AtomicU64::new(base),
            known: AtomicU64::new(base),
            oldest_use: AtomicU64::new(u64::MAX),
            issuer: Mutex::new(Some(issuer)),
            calls: Calls::default(),
        }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn gpu(&self) -> &Gpu {
        &self.shared.gpu
    }

    fn issuer(&self) -> MutexGuard<'_, Option<Issuer>> {
        self.issuer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the semaphore has reached: one Vulkan call.
    fn completed(&self, call: &str) -> Result<u64> {
        let _calling = self.gpu().ready(call)?;
        self.calls.queries.fetch_add(1, Ordering::Relaxed);
        let attempted = || self.attempted.load(Ordering::Acquire);
        // SAFETY: the semaphore is this stream's and of this device; it is destroyed after the stream only.
        let value = unsafe { self.gpu().counter(self.semaphore, attempted) }?;
        self.known.fetch_max(value, Ordering::Relaxed);
        if value >= self.oldest_use.load(Ordering::Relaxed) {
            // Whoever holds the lock queues something, and lets go of it then.
            if let Ok(mut issuer) = self.issuer.try_lock() {
                issuer.as_mut().into_iter().for_each(|issuer| self.let_go(issuer, value));
            }
        }
        Ok(value)
    }

    /// Drops the memory that the submissions up to `completed` used.
    fn let_go(&self, issuer: &mut Issuer, completed: u64) {
        while issuer.uses.front().is_some_and(|(used, _)| *used <= completed) {
            issuer.uses.pop_front();
        }
        let oldest = issuer.uses.front().map_or(u64::MAX, |(used, _)| *used);
        self.oldest_use.store(oldest, Ordering::Relaxed);
    }

    fn check_issued(&self, number: u64) -> Result<()> {
        let issued = self.submitted.load(Ordering::Acquire);
        if number <= issued { Ok(()) } else { Err(Error::never_issued(number, self.slot, issued)) }
    }

    /// Queues `batch` behind everything queued so far and returns its number.
    ///
    /// # Safety
    ///
    /// What `vkQueueSubmit` asks of the program's command buffers and semaphores. What `batch.work`
    /// records is valid, and what it uses is among `batch.uses` or lives until the number is reached.
    pub(super) unsafe fn enqueue(&self, call: &'static str, batch: Batch<'_>) -> Result<u64> {
        let gpu = self.gpu();
        let _calling = gpu.ready(call)?;
        let mut issuer = self.issuer();
        let issuer = issuer.as_mut().expect("the stream is not being dropped");
        let number = issuer.lease.last_issued() + 1;
        if number > LAST_NUMBER {
            let slot = self.slot.index().to_string();
            return Err(Error::new(ErrorCode::SlotExhausted, [slot]));
        }
        let known = self.known.load(Ordering::Relaxed);
        self.let_go(issuer, known);
        let recorded = if batch.mark || batch.work.is_some() {
            let buffer = issuer.commands.take(gpu, known, || self.completed(call))?;
            // SAFETY: the buffer is of this stream's own pool, which its lock guards, and not pending.
            if let Err(error) = unsafe { self.record(buffer, number, &batch, &issuer.commands) } {
                issuer.commands.discard(gpu, buffer);
                return Err(error);
            }
            Some(buffer)
        } else {
            None
        };
        self.attempted.store(number, Ordering::Release);
        // Before the submission: where its outcome stays unknown, nothing that it uses is let go of.
        issuer.uses.extend(batch.uses.iter().map(|&memory| (number, memory.clone())));
        // SAFETY: the recorded buffer is executable and not pending; the rest is promised by the caller.
        if let Err(error) = unsafe { self.submit(call, batch.program, recorded, number) } {
            if !gpu.is_lost() {
                recorded.into_iter().for_each(|buffer| issuer.commands.give_back(buffer));
                issuer.uses.truncate(issuer.uses.len() - batch.uses.len());
            }
            return Err(error);
        }
        issuer.lease.issue();
        if batch.mark {
            issuer.marked = number;
            if let Some(stamped) = issuer.stamped.get_mut(stamp_of(number) as usize) {
                *stamped = number;
            }
        }
        if let Some(buffer) = recorded {
            issuer.commands.submitted(number, buffer);
        }
        self.let_go(issuer, known);
        self.submitted.store(number, Ordering::Release);
        Ok(number)
    }

    /// # Safety
    ///
    /// That of [`Recorder::begin`]; and what `batch.work` records is valid.
    unsafe fn record(
        &self,
        buffer: vk::CommandBuffer,
        number: u64,
        batch: &Batch<'_>,
        commands: &CommandSet,
    ) -> Result<()> {
        // SAFETY: promised by the caller.
        let recorder = unsafe { Recorder::begin(self.gpu(), buffer) }?;
        if let Some(work) = batch.work {
            work(&recorder);
        }
        if batch.mark {
            recorder.mark(&Mark {
                line: self.place,
                slot: self.slot,
                number,
                bell: self
                    .bell
                    .as_ref()
                    .map(|bell| (bell.place, bell.slot, next_ring(&bell.doorbell))),
                stamp: commands.stamps.map(|pool| (pool, stamp_of(number))),
            });
        }
        recorder.end()
    }

    /// # Safety
    ///
    /// As [`enqueue`](Self::enqueue), and `recorded` is executable and not pending.
    unsafe fn submit(
        &self,
        call: &'static str,
        program: Submission<'_>,
        recorded: Option<vk::CommandBuffer>,
        number: u64,
    ) -> Result<()> {
        let buffers: Vec<_>;
        let buffers = match (program.command_buffers, &recorded) {
            ([], Some(recorded)) => core::slice::from_ref(recorded),
            (all, None) => all,
            (some, Some(recorded)) => {
                buffers = [some, &[*recorded]].concat();
                &buffers
            }
        };
        let (waits, values, stages) = program.unzipped_waits();
        let (signals, signalled): (Vec<_>, Vec<_>);
        let (signals, signalled) = if program.signals.is_empty() {
            (core::slice::from_ref(&self.semaphore), core::slice::from_ref(&number))
        } else {
            let own = [(self.semaphore, number)];
            (signals, signalled) = own.iter().chain(program.signals).copied().unzip();
            (&signals[..], &signalled[..])
        };
        let mut timeline = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&values)
            .signal_semaphore_values(signalled);
        let info = vk::SubmitInfo::default()
            .wait_semaphores(&waits)
            .wait_dst_stage_mask(&stages)
            .command_buffers(buffers)
            .signal_semaphores(signals)
            .push_next(&mut timeline);
        self.calls.submits.fetch_add(1, Ordering::Relaxed);
        let gpu = self.gpu();
        let unknown = Unknown { gpu, handed_over: Cell::new(false) };
        let submitted = gpu.queue.with(|queue| {
            // Under the queue's lock, so that `close` waits for what was queued before it, and nothing
            // is queued after.
            if self.shared.is_closing() {
                return Err(status::closed(call));
            }
            unknown.handed_over.set(true);
            // SAFETY: the queue is ours alone for the call; the own semaphore is signalled to a value
            // above all that were submitted; the rest is promised by the caller.
            Ok(unsafe { gpu.device.queue_submit(queue, &[info], vk::Fence::null()) })
        });
        core::mem::forget(unknown);
        submitted?.map_err(|result| match result {
            // Only for these does Vulkan promise that nothing was touched (`vkQueueSubmit`).
            vk::Result::ERROR_OUT_OF_HOST_MEMORY | vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => {
                gpu.failed("vkQueueSubmit", result)
            }
            _ => gpu.lose(status::error("vkQueueSubmit", result)),
        })
    }

    /// Blocks until `number` is reached, in slices.
    fn wait(&self, call: &str, number: u64) -> Result<()> {
        while !self.wait_slice(call, number, WAIT_SLICE_NS)? {}
        Ok(())
    }

    /// Blocks until `number` is reached, `true`, or `timeout_ns` have passed.
    pub(super) fn wait_slice(&self, call: &str, number: u64, timeout_ns: u64) -> Result<bool> {
        let gpu = self.gpu();
        let _calling = gpu.ready(call)?;
        self.calls.waits.fetch_add(1, Ordering::Relaxed);
        let (semaphores, values) = ([self.semaphore], [number]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: the semaphore is this stream's timeline semaphore, which outlives the call.
        match unsafe { gpu.device.wait_semaphores(&info, timeout_ns) } {
            Err(vk::Result::TIMEOUT) => Ok(false),
            // A lost device may answer with success as well; the counter then tells.
            result => {
                gpu.checked("vkWaitSemaphores", result)?;
                for _ in 0..LOOKS {
                    if self.completed(call)? >= number {
                        return Ok(true);
                    }
                    std::thread::yield_now();
                }
                let told = "done, and the counter is not there: the device is lost";
                Err(gpu.lose(Error::backend("vkWaitSemaphores", told)))
            }
        }
    }

    /// When the device came to the mark of `number`.
    pub(super) fn timestamp(&self, number: u64) -> Result<Option<MonoNs>> {
        const CALL: &str = "vkGetQueryPoolResults";
        let gpu = self.gpu();
        let _calling = gpu.ready(CALL)?;
        // Its lock keeps the query from being recorded anew meanwhile.
        let issuer = self.issuer();
        let Some(issuer) = issuer.as_ref() else { return Ok(None) };
        let (Some(pool), Some(clock)) = (issuer.commands.stamps, &gpu.clock) else {
            return Ok(None);
        };
        // A query that no mark of this stream has written holds another stream's time, or is not
        // initialised and must not be asked for (`vkGetQueryPoolResults`).
        let query = stamp_of(number);
        let is_there = number > 0 && issuer.stamped[query as usize] == number;
        let kept =
            is_there && issuer.lease.last_issued() - number < u64::from(super::TIMESTAMPS_KEPT);
        if !kept || self.completed(CALL)? < number {
            return Ok(None);
        }
        let mut found = [[0_u64; 2]; 1];
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WITH_AVAILABILITY;
        // SAFETY: the pool is of this device, the query is one of it and was written, and the space holds one result
        // of two 64-bit numbers.
        let got = unsafe { gpu.device.get_query_pool_results(pool, query, &mut found, flags) };
        match got {
            Err(vk::Result::NOT_READY) => return Ok(None),
            got => gpu.checked(CALL, got)?,
        }
        let [[ticks, available]] = found;
        if available == 0 { Ok(None) } else { clock.instant_of(ticks).map(Some) }
    }

    /// How many command buffers the stream has.
    #[cfg(test)]
    pub(super) fn command_buffers(&self) -> usize {
        self.issuer().as_ref().map_or(0, |issuer| issuer.commands.buffers())
    }
}

/// Dropped while a lent lock of the queue unwinds: what was handed over may run, and nobody has taken note of
/// it, so that the device is as good as lost.
struct Unknown<'g> {
    gpu: &'g Gpu,
    handed_over: Cell<bool>,
}

impl Drop for Unknown<'_> {
    fn drop(&mut self) {
        if self.handed_over.get() {
            let told = "the queue's lock panicked behind it: what is queued is unknown";
            self.gpu.lose(Error::backend("vkQueueSubmit", told));
        }
    }
}

/// The query that holds the timestamp of `number`.
fn stamp_of(number: u64) -> u32 {
    (number % u64::from(super::TIMESTAMPS_KEPT)) as u32
}

impl DeviceStream for StreamCore {
    fn line(&self) -> &SharedLine {
        &self.line
    }

    fn slot(&self) -> Slot {
        self.slot
    }

    fn device_key(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    fn query(&self) -> Result<bool> {
        let submitted = self.submitted.load(Ordering::Acquire);
        Ok(self.completed("query")? >= submitted)
    }

    fn synchronize(&self) -> Result<()> {
        self.wait("synchronize", self.submitted.load(Ordering::Acquire))
    }

    fn mark(&self) -> Result<u64> {
        // SAFETY: nothing of the program's is submitted, and the mark uses what the stream keeps.
        unsafe { self.enqueue("mark", Batch { mark: true, ..Batch::default() }) }
    }

    fn query_mark(&self, number: u64) -> Result<bool> {
        let _calling = self.gpu().ready("query_mark")?;
        self.check_issued(number)?;
        Ok(self.completed("query_mark")? >= number)
    }

    fn synchronize_mark(&self, number: u64) -> Result<()> {
        let _calling = self.gpu().ready("synchronize_mark")?;
        self.check_issued(number)?;
        self.wait("synchronize_mark", number)
    }
}

/// The stream as its leases know it, also after the program has dropped its handle.
impl LeaseStream for StreamCore {
    fn reclaim(&self) -> &Reclaim {
        self.reclaim.as_ref().expect("the stream is not being dropped")
    }
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        let issuer = self.issuer.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(issuer) = issuer else { return };
        if self.gpu().birth.is_forked() {
            // In the child all of it is a copy of what the parent goes on to use, its locks included.
            core::mem::forget(issuer);
            core::mem::forget(self.bell.take());
            return;
        }
        self.shared.leave(Remains {
            last: issuer.lease.last_issued(),
            marked: issuer.marked,
            lease: issuer.lease,
            commands: issuer.commands,
            semaphore: self.semaphore,
            uses: issuer.uses,
            reclaim: self.reclaim.take(),
            doorbell: self.bell.take().map(|bell| bell.doorbell),
        });
    }
}
