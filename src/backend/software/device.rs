//! The device: its workers, its slots, its end.

use super::fault::Fault;
use super::lock;
use super::queue::StreamCore;
use super::status::{CallCounter, DriverCalls};
use super::stream::SoftwareStream;
use super::worker::{self, Scheduler};
use crate::backend::lease::{LeaseCounts, LeaseStats, Reclaim};
use crate::core::doorbell::Doorbell;
use crate::core::error::{Error, Result};
use crate::core::line::{SharedLine, reached};
use crate::core::plan::DeviceCaps;
use crate::core::pool::{SlotPool, SlotStats};
use crate::core::port::DeviceStream;
use crate::core::time::DurNs;
use crate::fork::Own;
use alloc::sync::{Arc, Weak};
use alloc::{string::ToString, vec::Vec};
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};
use std::thread::{self, JoinHandle};

/// A device made of worker threads. Clones are handles of the same device.
///
/// # Its end
///
/// Dropping the last handle and the last stream never blocks: what is queued still runs, delays and
/// late stores included, and the workers end after it by themselves. What stands at a
/// [`Hang`](super::Hang) then is abandoned. [`close`](Self::close) does the same at once and waits for it.
///
/// # Forked children
///
/// In a child forked since it was made there are no workers. The device, its streams, leases and
/// hangs are then as good as gone: what returns a `Result` answers
/// [`Forked`](crate::ErrorCode::Forked), nothing else does anything, nothing takes a lock or waits,
/// and dropping them drops nothing. A device made in the child works, unless a thread of the parent
/// was starting or ending at the moment of the fork: the standard library then starts no thread in
/// the child.
#[derive(Clone)]
pub struct SoftwareDevice {
    shared: Own<Arc<Shared>>,
    alive: Own<Arc<Alive>>,
}

/// How a [`SoftwareDevice`] is made.
#[derive(Clone, Debug)]
pub struct SoftwareDeviceBuilder {
    workers: usize,
    spin_before: DurNs,
}

/// Slots of lines in host memory.
type Slots = SlotPool<fn() -> Result<SharedLine>>;

/// What handles, streams and workers share.
pub(super) struct Shared {
    pub(super) scheduler: Scheduler,
    pub(super) pool: Mutex<Slots>,
    streams: Mutex<HashMap<u64, Weak<StreamCore>>>,
    next_id: AtomicU64,
    closing: AtomicBool,
    pub(super) lost: Arc<OnceLock<Fault>>,
    /// The calls of streams that are gone.
    calls: CallCounter,
    leases: Arc<LeaseCounts>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

/// There while a handle or a stream is. Workers hold [`Shared`] only.
pub(super) struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.begin_close();
    }
}

impl SoftwareDeviceBuilder {
    /// How many worker threads run the streams, at least 1; 2 unless set. Streams are not bound to
    /// one. A host closure occupies its worker; delays and hangs do not.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// How long before the end of a delay a worker stops sleeping and spins; 150 us unless set.
    ///
    /// With it a store behind a delay lands 1 to 2 us after the delay's time (p50 1.1 us, p90 2.2 us
    /// in the test `a_delay_never_ends_early`, which prints it), since it covers what a kernel takes
    /// to wake a thread. It costs that much CPU time of one worker for each delay: 7.5 % of a core for
    /// delays of 2 ms one behind the other. With [`DurNs::ZERO`] delays end as late as the kernel
    /// wakes the worker, typically 50 to 100 us.
    #[must_use]
    pub fn spin_before(mut self, spin: DurNs) -> Self {
        self.spin_before = spin;
        self
    }

    /// Starts the workers.
    ///
    /// # Errors
    ///
    /// A [`Backend`](crate::ErrorCode::Backend) error where the system refuses a thread.
    pub fn build(self) -> Result<SoftwareDevice> {
        let shared = Arc::new(Shared {
            scheduler: Scheduler::new(self.spin_before),
            pool: Mutex::new(SlotPool::default()),
            streams: Mutex::new(HashMap::new()),
            next_id: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            lost: Arc::default(),
            calls: CallCounter::default(),
            leases: Arc::default(),
            workers: Mutex::new(Vec::new()),
        });
        // From here on, an early return ends the workers that were started.
        let alive = Own::new(Arc::new(Alive(shared.clone())));
        for _ in 0..self.workers {
            let of_worker = shared.clone();
            shared.scheduler.add_worker();
            let worker = thread::Builder::new()
                .name("software-device".to_string())
                .spawn(move || worker::work(&of_worker))
                .map_err(|error| {
                    shared.scheduler.remove_worker();
                    Error::backend("start a worker thread", error.to_string())
                })?;
            lock(&shared.workers).push(worker);
        }
        Ok(SoftwareDevice { shared: Own::new(shared), alive })
    }
}

impl SoftwareDevice {
    /// A device as the builder makes it unless told otherwise.
    ///
    /// # Errors
    ///
    /// As [`build`](SoftwareDeviceBuilder::build).
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// Sets a device up.
    #[must_use]
    pub fn builder() -> SoftwareDeviceBuilder {
        SoftwareDeviceBuilder { workers: 2, spin_before: DurNs::from_us(150) }
    }

    /// A new stream that rings no doorbell. 1,000 of them are normal.
    ///
    /// # Errors
    ///
    /// That the device is closed or lost.
    pub fn stream(&self) -> Result<SoftwareStream> {
        self.make_stream(None)
    }

    /// A new stream that rings `doorbell` after every store of a word, for as long as it lives.
    ///
    /// # Errors
    ///
    /// As [`stream`](Self::stream).
    pub fn stream_on(&self, doorbell: &Doorbell) -> Result<SoftwareStream> {
        self.make_stream(Some(doorbell))
    }

    fn make_stream(&self, doorbell: Option<&Doorbell>) -> Result<SoftwareStream> {
        let shared = &*self.shared;
        self.shared.birth().check("stream")?;
        if let Some(fault) = shared.lost.get() {
            return Err(fault.error("stream"));
        }
        if shared.is_closing() {
            return Err(Fault::device_closed().error("stream"));
        }
        let lease = lock(&shared.pool).acquire()?;
        let id = shared.next_id.fetch_add(1, Ordering::Relaxed);
        let bell = doorbell.map(|bell| (bell.clone(), bell.bind_stream()));
        let reclaim = Reclaim::new(shared.leases.clone());
        let core = StreamCore::new(id, shared.clone(), lease, bell, reclaim);
        lock(&shared.streams).insert(id, Arc::downgrade(&core));
        Ok(SoftwareStream::new(core, self.alive.clone()))
    }

    /// Loses the device: `fault` becomes the sticky status of every stream, at once and whatever is
    /// running, and no stream can be made any more. The first loss stays.
    ///
    /// What is done by then is not known to be done any more: from the first call that answers the
    /// fault on, every call of every stream does, about work of before the loss too. Each lease keeps
    /// its buffer, which is leaked and counted, since nothing says whether the device still writes it.
    /// A stream that had a fault of its own keeps that one. What a program does then is in
    /// `docs/recovery.md`.
    ///
    /// As work it is a [fault of the device](Fault::of_the_device).
    pub fn lose(&self, fault: Fault) {
        if !self.is_forked() {
            self.shared.lose(fault);
        }
    }

    /// What the device was lost by, so that a program can tell a fault of one stream from one of all.
    /// None in a forked child.
    #[must_use]
    pub fn lost(&self) -> Option<Fault> {
        if self.is_forked() { None } else { self.shared.lost.get().cloned() }
    }

    /// Closes the device and waits for its workers.
    ///
    /// From now on nothing can be queued. What is queued runs to its end, however long its closures
    /// and delays take; what stands at a hang, or comes to one, faults with [`Fault::DEVICE_CLOSED`].
    /// Streams can still be asked. A second call does not wait for the first. Called from a closure
    /// on one of the device's own workers it does not wait.
    pub fn close(&self) {
        if self.is_forked() {
            return;
        }
        self.shared.begin_close();
        let workers = core::mem::take(&mut *lock(&self.shared.workers));
        let me = thread::current().id();
        let on_a_worker = workers.iter().any(|worker| worker.thread().id() == me);
        if !on_a_worker {
            for worker in workers {
                worker.join().expect("a worker contains what it runs");
            }
        }
    }

    /// Whether a store behind work really lands: makes a stream, queues one, and looks for it once the
    /// status says done. Attributes lie, words do not. Costs two wake-ups of a worker, some 100 us.
    #[must_use]
    pub fn caps(&self) -> DeviceCaps {
        let store = self.stream().and_then(|stream| Self::probe_store(&stream));
        DeviceCaps { store: store.map_err(|error| error.to_string()) }
    }

    /// The start-up probe, on a stream of the caller's.
    pub(super) fn probe_store(stream: &SoftwareStream) -> Result<()> {
        let number = stream.mark()?;
        stream.synchronize_mark(number)?;
        if reached((**stream.line()).as_ref(), stream.slot(), number) {
            return Ok(());
        }
        Err(Error::backend(
            "probe the store",
            "the status says done and the word was never written",
        ))
    }

    /// What became of the device's slots. Nothing, in a forked child.
    #[must_use]
    pub fn slots(&self) -> SlotStats {
        if self.is_forked() {
            return SlotStats::default();
        }
        lock(&self.shared.pool).stats()
    }

    /// What became of the buffers that were leased on its streams.
    #[must_use]
    pub fn lease_stats(&self) -> LeaseStats {
        self.shared.leases.get()
    }

    /// How often the driver was called, by all streams that ever were. Costs a look at each. Never,
    /// in a forked child.
    #[must_use]
    pub fn calls(&self) -> DriverCalls {
        if self.is_forked() {
            return DriverCalls::default();
        }
        let sum = CallCounter::default();
        sum.add(self.shared.calls.get());
        self.shared.live_streams().iter().for_each(|stream| sum.add(stream.calls.get()));
        sum.get()
    }

    fn is_forked(&self) -> bool {
        self.shared.birth().is_forked()
    }
}

impl fmt::Debug for SoftwareDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoftwareDevice")
            .field("closing", &self.shared.is_closing())
            .field("lost", &self.shared.lost.get())
            .field("slots", &self.slots())
            .finish()
    }
}

impl Shared {
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Called with no stream's lock held.
    pub(super) fn lose(&self, fault: Fault) {
        // From here on each stream answers it. What follows wakes blocked threads and held streams.
        let fault = self.lost.get_or_init(|| fault);
        for stream in self.live_streams() {
            stream.fail(fault.clone());
        }
    }

    fn begin_close(&self) {
        self.closing.store(true, Ordering::Release);
        // Nobody can be relied on to release these.
        for stream in self.live_streams() {
            stream.fail_if_held();
        }
        self.scheduler.close();
    }

    pub(super) fn live_streams(&self) -> Vec<Arc<StreamCore>> {
        // None of these is dropped under the lock, which their destructor takes.
        lock(&self.streams).values().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn forget(&self, stream: u64, calls: DriverCalls) {
        lock(&self.streams).remove(&stream);
        self.calls.add(calls);
    }
}

#[cfg(test)]
mod tests {
    use super::super::StoreFault;
    use super::*;

    #[test]
    fn the_probe_finds_a_real_store_and_refuses_one_that_never_lands() {
        let device = SoftwareDevice::new().unwrap();
        assert_eq!(device.caps(), DeviceCaps { store: Ok(()) });
        let stream = device.stream().unwrap();
        stream.inject_store(StoreFault::Lost);
        let refused = SoftwareDevice::probe_store(&stream).unwrap_err();
        assert!(refused.to_string().contains("never written"), "{refused}");
    }
}
