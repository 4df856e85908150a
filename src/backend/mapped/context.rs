//! One context of a driver: its memory, its slots, its streams, its end.
//!
//! ```text
//! open --close--> closing: nothing more is queued --settled--> freed what nobody holds
//!                                                  --again, and nothing held--> released, forgotten
//! ```
//!
//! A close waits for what this library has queued, by its own events ([`retired`](super::retired)): a wait for
//! the whole context would break the captures of everybody in it.
//!
//! Who makes something is [inside](super::gate) meanwhile, and so is who closes. Behind the release no call
//! is made in the context: nothing is left that makes one, and nobody comes in.
//!
//! Locks are taken one at a time, except that a stream's is held while an event is taken, and that of the
//! slots while a spare line is. But for a stream's, under which its work is queued, none is held across a
//! driver call that somebody else does not wait for.

use super::calls::Interface;
use super::device::{CloseReport, DeviceStats};
use super::driver::Shared;
use super::events::Events;
use super::gate::{Gate, Pass};
use super::handle::StreamHandle;
use super::home::Home;
use super::lock;
use super::memory::MemoryPool;
use super::page::Pages;
use super::pinned::PinnedPool;
use super::probe;
use super::retired::Retired;
use super::store::Form;
use super::stream::StreamCore;
use crate::backend::lease::{LeaseCounts, LeaseStream};
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::line::{CompletionLine, SharedLine};
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
/// How many dropped streams that are not over are looked at when a stream is made.
const ORPHAN_LOOKS: usize = 4;

/// Whose reference to the context is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::backend) enum Ownership {
    /// The context's own, given back at its end.
    Retained,
    /// The program's, which outlives it.
    Borrowed,
}

/// Whether no lease is left that could ask `stream`, whose one handle the caller has, no buffer, and no
/// mark that must be asked about.
fn is_over<A: Interface>(stream: &Arc<StreamCore<A>>) -> bool {
    let is_last = Arc::strong_count(stream) == 1;
    // A lease lets its buffer wait before it lets go of the stream.
    fence(Ordering::Acquire);
    is_last && stream.reclaim().is_empty() && !stream.must_be_asked()
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
    /// Lines for the slots, allocated without the lock of these, which every dropped stream takes.
    spare_lines: Arc<Mutex<Vec<SharedLine>>>,
    /// Lines of other contexts that streams of this one store into: kept until this one has settled.
    lines_elsewhere: Mutex<Vec<SharedLine>>,
    streams: Mutex<HashMap<u64, Weak<StreamCore<A>>>>,
    next_stream: AtomicU64,
    /// Streams of our own whose program has dropped them.
    pub(super) idle: Mutex<Vec<StreamHandle>>,
    /// Streams of our own on which nothing runs but waits for events: see [`asleep`](super::asleep).
    pub(super) side_streams: Mutex<Vec<StreamHandle>>,
    /// What dropped streams of the program's have left.
    pub(super) retired: Mutex<Vec<Retired>>,
    /// Streams whose program has dropped them while buffers were leased on them, or while nothing but their
    /// status could tell when their slots are free.
    orphans: Mutex<Vec<Arc<StreamCore<A>>>>,
    ownership: Ownership,
    gate: Gate,
    closing: AtomicBool,
    released: AtomicBool,
    /// Allocations that the driver did not free, and that are known to nobody any more.
    not_freed: AtomicUsize,
    /// Allocations that were there when the context did not settle, as it has not since.
    not_settled: AtomicUsize,
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
        let spare_lines = Arc::<Mutex<Vec<SharedLine>>>::default();
        let of_lines = spare_lines.clone();
        let make_line: LineMaker = Box::new(move || {
            let spare = lock(&of_lines).pop();
            spare.ok_or_else(|| Error::new(ErrorCode::Unsupported, ["a slot", "no spare line"]))
        });
        let mut opened = Context {
            pages,
            events: Events::default(),
            pinned: PinnedPool::default(),
            memory: MemoryPool::default(),
            leases: Arc::default(),
            slots: Mutex::new(SlotPool::new(make_line)),
            spare_lines,
            lines_elsewhere: Mutex::new(Vec::new()),
            streams: Mutex::new(HashMap::new()),
            next_stream: AtomicU64::new(0),
            idle: Mutex::new(Vec::new()),
            side_streams: Mutex::default(),
            retired: Mutex::default(),
            orphans: Mutex::new(Vec::new()),
            ownership,
            gate: Gate::default(),
            closing: AtomicBool::new(false),
            released: AtomicBool::new(false),
            not_freed: AtomicUsize::new(0),
            not_settled: AtomicUsize::new(0),
            host_functions: Arc::default(),
            flush_marks,
            form: None,
            refused: Vec::new(),
            home,
        };
        match probe::find_form(&opened) {
            Ok(found) => {
                (opened.form, opened.refused) = (found.form, found.refused);
                opened.flush_marks |= found.is_batched;
            }
            Err(error) => {
                // What cannot be freed now stays, and with it the reference to the context.
                let report = opened.wind_down();
                opened.count_failure(report);
                return Err(error);
            }
        }
        Ok(Arc::new(opened))
    }

    /// Whether it can be handed out as `context`: it has no fault that stays, such as that the context of
    /// this handle was reset and another one has the handle now.
    pub(super) fn is_open_over(&self, context: A::Context) -> bool {
        self.home.context == context
            && !self.is_closing()
            && !self.home.is_forked()
            && self.home.is_the_same()
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(super) fn check_open(&self, call: &str) -> Result<()> {
        if self.is_closing() { Err(Error::new(ErrorCode::Closed, [call])) } else { Ok(()) }
    }

    /// Lets the caller make something by `call`, unless the context is closing. While it has the pass, the
    /// context is not released.
    pub(super) fn enter(&self, call: &str) -> Result<Pass<'_>> {
        let pass = self.gate.enter();
        // Behind the entering: who closes has said so before it looks whether somebody is inside.
        self.check_open(call)?;
        pass.ok_or_else(|| Error::new(ErrorCode::Closed, [call]))
    }

    pub(super) fn count_failure<T>(&self, result: Result<T>) -> bool {
        self.home.counted(result)
    }

    pub(super) fn acquire_slot(&self) -> Result<SlotLease> {
        loop {
            // The one error is that there is no spare line.
            let acquired = lock(&self.slots).acquire();
            if let Ok(lease) = acquired {
                return Ok(lease);
            }
            let line = self.pages.line()?;
            lock(&self.spare_lines).push(line);
        }
    }

    /// Takes a slot back. `lost`: its last number will never come.
    pub(super) fn give_slot_back(&self, lease: SlotLease, lost: bool) {
        let mut slots = lock(&self.slots);
        if lost || self.home.fault().is_some() { slots.retire(lease) } else { slots.release(lease) }
    }

    /// A stream of our own: one that was dropped and is done, or a new one.
    pub(super) fn take_stream(&self) -> Result<StreamHandle> {
        self.sweep_dropped(false);
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

    /// The program has dropped its handle of `stream`, which stays while it is asked about buffers or marks.
    pub(super) fn part_with(&self, stream: &Arc<StreamCore<A>>) {
        // A borrowed stream may be destroyed once the last of it is dropped: its end leaves nothing that
        // names it.
        if !self.home.is_forked() && stream.is_kept() && !is_over(stream) {
            lock(&self.orphans).push(stream.clone());
        }
    }

    /// Reclaims what it can of some streams that were dropped; where `by_word`, of those whose words are
    /// there, so that no status is asked in vain.
    pub(super) fn sweep_dropped(&self, by_word: bool) {
        self.sweep_orphans(ORPHAN_LOOKS, by_word);
        self.sweep_retired(ORPHAN_LOOKS, by_word);
    }

    /// Reclaims what buffers and slots it can of `looks` streams that were dropped, and lets go of those
    /// without any left.
    fn sweep_orphans(&self, looks: usize, by_word: bool) {
        let looked = {
            let mut orphans = lock(&self.orphans);
            let looks = looks.min(orphans.len());
            orphans.drain(..looks).collect::<Vec<_>>()
        };
        for orphan in looked {
            if by_word {
                orphan.sweep_reached();
            } else {
                orphan.sweep();
            }
            orphan.ask_if_it_must_be();
            if !is_over(&orphan) {
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

    pub(super) fn live_streams(&self) -> Vec<Arc<StreamCore<A>>> {
        // None is dropped under the lock, which its destructor takes.
        lock(&self.streams).values().filter_map(Weak::upgrade).collect()
    }

    /// This context's address of a line of another context of the driver, which is kept until this one has
    /// settled: its memory is portable, and its own context waits for nobody's stores but its own.
    pub(super) fn map_line_elsewhere(&self, line: &SharedLine) -> Result<u64> {
        let foreign = || Error::new(ErrorCode::ForeignContext, ["stream", "doorbell"]);
        let own: &CompletionLine = (**line).as_ref();
        let (page, offset) = self.home.driver.locate(own).ok_or_else(foreign)?;
        let host = page.host.as_ptr().cast();
        // SAFETY: the page is not freed while its line is held, as it is by the caller.
        let device = self.home.within("stream", |api| unsafe { api.device_address(host) })?;
        let mut kept = lock(&self.lines_elsewhere);
        let is_kept = |known: &SharedLine| core::ptr::eq::<CompletionLine>((**known).as_ref(), own);
        if !kept.iter().any(is_kept) {
            kept.push(line.clone());
        }
        Ok(device + offset)
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
        let Some(pass) = self.gate.enter() else { return Ok(self.report_released()) };
        // Whoever saw the context open queues under the lock of its stream: once each lock was
        // taken here, nothing more is queued.
        self.closing.store(true, Ordering::SeqCst);
        for stream in self.live_streams() {
            stream.pass_lock();
        }
        if let Err(error) = self.settle() {
            return Ok(self.leak_all(error));
        }
        self.not_settled.store(0, Ordering::Relaxed);
        self.sweep_orphans(usize::MAX, false);
        self.sweep_retired(usize::MAX, false);
        // What the slots' numbers were waiting for has landed; the pool lets go of its lines.
        lock(&self.slots).let_go();
        lock(&self.spare_lines).clear();
        lock(&self.lines_elsewhere).clear();
        // SAFETY: settled above, and nothing was queued since for what nobody holds.
        let (memory_freed, memory_leaked) = unsafe { self.memory.free_memory(&self.home) };
        // SAFETY: the same.
        let (pinned_freed, pinned_leaked) = unsafe { self.pinned.free_pinned(&self.home) };
        // Last: what was freed before may have held lines.
        // SAFETY: the same.
        let (pages_freed, pages_leaked) = unsafe { self.pages.free_unused() };
        self.not_freed.fetch_add(pages_leaked + pinned_leaked + memory_leaked, Ordering::Relaxed);
        let streams = self.live_streams().len();
        if streams == 0 {
            self.events.destroy_free(&self.home);
            let side = core::mem::take(&mut *lock(&self.side_streams));
            let idle = core::mem::take(&mut *lock(&self.idle));
            for stream in idle.into_iter().chain(side) {
                // SAFETY: from `create_stream`; taken out of the list; nothing of it is left.
                let result = self.home.within("close", |api| unsafe { api.destroy_stream(stream) });
                self.count_failure(result);
            }
        }
        let others = pass.others();
        let released = pass.leave_last(|| self.release_if_over());
        let freed = pages_freed + pinned_freed + memory_freed;
        let held = if released { 0 } else { self.held() + others };
        let leaked = self.leaked();
        Ok(CloseReport { freed, held, leaked, streams, released, unsettled: None })
    }

    /// What a close finds behind the release, or while another one is about to release.
    fn report_released(&self) -> CloseReport {
        let released = self.released.load(Ordering::Acquire);
        let (held, leaked) = (usize::from(!released), self.leaked());
        CloseReport { freed: 0, held, leaked, streams: 0, released, unsettled: None }
    }

    /// Allocations that are there. Behind the freeing somebody holds them, or has just let go of them. A
    /// stream that is being dropped holds its line.
    fn held(&self) -> usize {
        self.pages.count() + self.pinned.count() + self.memory.count()
    }

    fn leaked(&self) -> usize {
        self.not_freed.load(Ordering::Relaxed) + self.not_settled.load(Ordering::Relaxed)
    }

    /// Gives the context back if nothing of it is left. Called where nobody else is inside: nothing more
    /// can be made.
    fn release_if_over(&self) -> bool {
        let is_over = self.live_streams().is_empty()
            && self.held() == 0
            && self.leaked() == 0
            && lock(&self.idle).is_empty()
            && lock(&self.side_streams).is_empty()
            && lock(&self.retired).is_empty();
        if is_over && self.ownership == Ownership::Retained {
            // SAFETY: the reference is ours, given back once, since the gate stays shut; nothing of the
            // context is left.
            let result = unsafe { self.home.release() };
            self.count_failure(result);
        }
        if is_over {
            self.released.store(true, Ordering::Release);
        }
        is_over
    }

    /// Nobody can tell which stores are still on their way: all memory stays, unless a later close settles,
    /// which it never does behind a fault.
    fn leak_all(&self, error: Error) -> CloseReport {
        self.not_settled.store(self.held(), Ordering::Relaxed);
        if self.home.fault().is_some() {
            lock(&self.slots).retire_draining();
        }
        let (leaked, streams) = (self.leaked(), self.live_streams().len());
        CloseReport { freed: 0, held: 0, leaked, streams, released: false, unsettled: Some(error) }
    }

    pub(super) fn stats(&self) -> DeviceStats {
        if self.home.is_forked() {
            // The locks may be held by threads that this process does not have.
            return DeviceStats::default();
        }
        if !self.is_closing() {
            self.sweep_dropped(true);
        }
        DeviceStats {
            slots: lock(&self.slots).stats(),
            pages: self.pages.count(),
            pinned: self.pinned.count(),
            events: self.events.made(),
            streams: lock(&self.streams).len(),
            leases: self.leases.get(),
            leaked: self.leaked(),
            host_functions: self.host_functions.load(Ordering::Acquire),
            teardown_failures: self.home.teardown_failures(),
        }
    }
}
