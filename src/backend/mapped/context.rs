//! One context of a driver: its memory, its slots, its streams, its end.
//!
//! ```text
//! open --close--> closing: nothing more is queued --settled--> freed what nobody holds
//!                                                  --again, and nothing held--> released, forgotten
//! ```
//!
//! Locks are taken one at a time, except that a stream's is held while an event is taken.

use super::calls::Interface;
use super::device::{CloseReport, DeviceStats};
use super::driver::Shared;
use super::events::Events;
use super::handle::StreamHandle;
use super::home::Home;
use super::lock;
use super::memory::MemoryPool;
use super::page::Pages;
use super::pinned::PinnedPool;
use super::probe;
use super::store::Form;
use super::stream::StreamCore;
use crate::backend::lease::{LeaseCounts, LeaseStream};
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::line::SharedLine;
use crate::core::pool::{SlotLease, SlotPool};
use alloc::{
    boxed::Box,
    string::String,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::collections::HashMap;
use std::sync::Mutex;

/// How many idle streams are looked at before a new one is created.
const REUSE_LOOKS: usize = 4;
/// How many dropped streams with leased buffers are looked at when a stream is made.
const ORPHAN_LOOKS: usize = 4;

/// Whose reference to the context is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::backend) enum Ownership {
    /// The context's own, given back at its end.
    Retained,
    /// The program's, which outlives it.
    Borrowed,
}

/// Whether no lease is left that could ask `stream`, whose one handle the caller has, and no buffer.
fn is_done_with_leases<A: Interface>(stream: &Arc<StreamCore<A>>) -> bool {
    let is_last = Arc::strong_count(stream) == 1;
    // A lease lets its buffer wait before it lets go of the stream.
    fence(Ordering::Acquire);
    is_last && stream.reclaim().is_empty()
}

type LineMaker = Box<dyn FnMut() -> Result<SharedLine> + Send>;

pub(super) struct Context<A: Interface> {
    pub(super) home: Arc<Home<A>>,
    pub(super) pages: Arc<Pages<A>>,
    pub(super) events: Events,
    pub(super) pinned: PinnedPool,
    pub(super) memory: MemoryPool,
    pub(super) leases: Arc<LeaseCounts>,
    slots: Mutex<SlotPool<LineMaker>>,
    streams: Mutex<HashMap<u64, Weak<StreamCore<A>>>>,
    next_stream: AtomicU64,
    /// Streams of our own whose program has dropped them.
    idle: Mutex<Vec<StreamHandle>>,
    /// Streams whose program has dropped them while buffers were leased on them.
    orphans: Mutex<Vec<Arc<StreamCore<A>>>>,
    ownership: Ownership,
    closing: AtomicBool,
    released: AtomicBool,
    leaked: AtomicUsize,
    /// Host functions that were queued and have not been called.
    pub(super) host_functions: Arc<AtomicUsize>,
    pub(super) flush_marks: bool,
    /// How the device stores words, if it does. Set once, before anybody else sees this.
    pub(super) form: Option<Form>,
    /// The ways of storing words that do not work, and why.
    pub(super) refused: Vec<String>,
}

impl<A: Interface> Context<A> {
    /// # Safety
    ///
    /// As [`Driver::open`](super::driver::Driver::open).
    pub(super) unsafe fn open(
        driver: Arc<Shared<A>>,
        context: A::Context,
        ownership: Ownership,
        flush_marks: bool,
    ) -> Result<Arc<Self>> {
        let home = Arc::new(Home::new(driver, context));
        let pages = Arc::new(Pages::new(home.clone()));
        let of_lines = pages.clone();
        let make_line: LineMaker = Box::new(move || of_lines.line());
        let mut opened = Context {
            pages,
            events: Events::default(),
            pinned: PinnedPool::default(),
            memory: MemoryPool::default(),
            leases: Arc::default(),
            slots: Mutex::new(SlotPool::new(make_line)),
            streams: Mutex::new(HashMap::new()),
            next_stream: AtomicU64::new(0),
            idle: Mutex::new(Vec::new()),
            orphans: Mutex::new(Vec::new()),
            ownership,
            closing: AtomicBool::new(false),
            released: AtomicBool::new(false),
            leaked: AtomicUsize::new(0),
            host_functions: Arc::default(),
            flush_marks,
            form: None,
            refused: Vec::new(),
            home,
        };
        match probe::find_form(&opened) {
            Ok(found) => (opened.form, opened.refused) = (found.form, found.refused),
            Err(error) => {
                // What cannot be freed now stays, and with it the reference to the context.
                let report = opened.wind_down();
                opened.count_failure(report);
                return Err(error);
            }
        }
        Ok(Arc::new(opened))
    }

    /// Whether it can be handed out as `context`.
    pub(super) fn is_open_over(&self, context: A::Context) -> bool {
        self.home.context == context && !self.is_closing() && !self.home.is_forked()
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(super) fn check_open(&self, call: &str) -> Result<()> {
        if self.is_closing() { Err(Error::new(ErrorCode::Closed, [call])) } else { Ok(()) }
    }

    pub(super) fn count_failure<T>(&self, result: Result<T>) -> bool {
        self.home.counted(result)
    }

    pub(super) fn acquire_slot(&self) -> Result<SlotLease> {
        lock(&self.slots).acquire()
    }

    /// Takes a slot back. `lost`: its last number will never come.
    pub(super) fn give_slot_back(&self, lease: SlotLease, lost: bool) {
        let mut slots = lock(&self.slots);
        if lost || self.home.fault().is_some() { slots.retire(lease) } else { slots.release(lease) }
    }

    /// A stream of our own: one that was dropped and is done, or a new one.
    pub(super) fn take_stream(&self) -> Result<StreamHandle> {
        self.sweep_orphans(ORPHAN_LOOKS);
        self.home.within("make a stream", |api| {
            for _ in 0..REUSE_LOOKS {
                let Some(idle) = lock(&self.idle).pop() else { break };
                // SAFETY: created by `create_stream`, destroyed by `close` alone, which takes it out
                // of the list first.
                let is_done = unsafe {
                    api.is_capturing(idle)
                        .and_then(|captured| Ok(!captured && api.query_stream(idle)?))
                };
                if matches!(is_done, Ok(true)) {
                    return Ok(idle);
                }
                lock(&self.idle).insert(0, idle);
                is_done?;
            }
            api.create_stream()
        })
    }

    pub(super) fn give_stream_back(&self, stream: StreamHandle) {
        lock(&self.idle).push(stream);
    }

    /// The program has dropped its handle of `stream`, which stays while it is asked about buffers.
    pub(super) fn part_with(&self, stream: &Arc<StreamCore<A>>) {
        if !self.home.is_forked() && !is_done_with_leases(stream) {
            lock(&self.orphans).push(stream.clone());
        }
    }

    /// Reclaims what buffers it can of `looks` streams that were dropped, and lets go of those
    /// without any left.
    fn sweep_orphans(&self, looks: usize) {
        let looked = {
            let mut orphans = lock(&self.orphans);
            let looks = looks.min(orphans.len());
            orphans.drain(..looks).collect::<Vec<_>>()
        };
        for orphan in looked {
            orphan.sweep();
            if !is_done_with_leases(&orphan) {
                lock(&self.orphans).push(orphan);
            }
        }
    }

    pub(super) fn enlist(&self, make: impl FnOnce(u64) -> StreamCore<A>) -> Arc<StreamCore<A>> {
        let id = self.next_stream.fetch_add(1, Ordering::Relaxed);
        let core = Arc::new(make(id));
        lock(&self.streams).insert(id, Arc::downgrade(&core));
        core
    }

    pub(super) fn forget_stream(&self, id: u64) {
        lock(&self.streams).remove(&id);
    }

    fn live_streams(&self) -> Vec<Arc<StreamCore<A>>> {
        // None is dropped under the lock, which its destructor takes.
        lock(&self.streams).values().filter_map(Weak::upgrade).collect()
    }

    /// As [`Device::close`](super::device::Device::close).
    pub(super) fn close(self: &Arc<Self>) -> Result<CloseReport> {
        let report = self.wind_down()?;
        if report.released {
            self.home.driver.forget(self);
        }
        Ok(report)
    }

    /// Stops whoever queues, waits until nothing is queued, and frees what nobody holds.
    fn wind_down(&self) -> Result<CloseReport> {
        self.home.check_alive("close")?;
        // Whoever saw the context open queues under the lock of its stream: once each lock was
        // taken here, nothing more is queued.
        self.closing.store(true, Ordering::SeqCst);
        for stream in self.live_streams() {
            stream.pass_lock();
        }
        if let Err(error) = self.home.within("close", |api| api.settle()) {
            return Ok(self.leak_all(error));
        }
        self.sweep_orphans(usize::MAX);
        // What the slots' numbers were waiting for has landed; the pool lets go of its lines.
        lock(&self.slots).let_go();
        // SAFETY: settled above, and nothing was queued since for what nobody holds.
        let (memory_freed, memory_leaked) = unsafe { self.memory.free_unused(&self.home) };
        // SAFETY: the same.
        let (pinned_freed, pinned_leaked) = unsafe { self.pinned.free_unused(&self.home) };
        // Last: what was freed before may have held lines.
        // SAFETY: the same.
        let (pages_freed, pages_leaked) = unsafe { self.pages.free_unused() };
        let leaked_now = pages_leaked + pinned_leaked + memory_leaked;
        let leaked = self.leaked.fetch_add(leaked_now, Ordering::Relaxed) + leaked_now;
        let streams = self.live_streams().len();
        if streams == 0 {
            // SAFETY: only streams ask about events, and none is left to do so.
            unsafe { self.events.destroy_free(&self.home) };
            for stream in core::mem::take(&mut *lock(&self.idle)) {
                // SAFETY: from `create_stream`; taken out of the list; nothing of it is left.
                let result = self.home.within("close", |api| unsafe { api.destroy_stream(stream) });
                self.count_failure(result);
            }
        }
        let held = self.pages.count() + self.pinned.in_use() + self.memory.in_use();
        if streams == 0 && held == 0 && leaked == 0 {
            self.release();
        }
        let released = self.released.load(Ordering::Acquire);
        let freed = pages_freed + pinned_freed + memory_freed;
        Ok(CloseReport { freed, held, leaked, streams, released, unsettled: None })
    }

    fn release(&self) {
        if !self.released.swap(true, Ordering::AcqRel) && self.ownership == Ownership::Retained {
            // SAFETY: the reference is ours, given back once; nothing of the context is left.
            let result = unsafe { self.home.driver.api.release(self.home.context) };
            self.count_failure(result);
        }
    }

    /// Nobody can tell which stores are still on their way: all memory stays.
    fn leak_all(&self, error: Error) -> CloseReport {
        let leaked = self.pages.count() + self.pinned.count();
        self.leaked.store(leaked, Ordering::Relaxed);
        lock(&self.slots).retire_draining();
        let streams = self.live_streams().len();
        CloseReport { freed: 0, held: 0, leaked, streams, released: false, unsettled: Some(error) }
    }

    pub(super) fn stats(&self) -> DeviceStats {
        if self.home.is_forked() {
            // The locks may be held by threads that this process does not have.
            return DeviceStats::default();
        }
        DeviceStats {
            slots: lock(&self.slots).stats(),
            pages: self.pages.count(),
            pinned: self.pinned.count(),
            events: self.events.made(),
            streams: lock(&self.streams).len(),
            leases: self.leases.get(),
            leaked: self.leaked.load(Ordering::Relaxed),
            host_functions: self.host_functions.load(Ordering::Acquire),
            teardown_failures: self.home.teardown_failures(),
        }
    }
}
