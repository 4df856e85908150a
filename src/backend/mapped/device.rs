//! The program's handle of a context, and what it can make of it.

use super::calls::Interface;
use super::context::Context;
use super::gate::Pass;
use super::handle::StreamHandle;
use super::memory::DeviceMemory;
use super::pinned::PinnedBuffer;
use super::store::Form;
use super::stream::{Bell, Parts, Stream, StreamCore};
use crate::backend::lease::LeaseStats;
use crate::core::doorbell::Doorbell;
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::line::{SharedLine, Slot};
use crate::core::plan::DeviceCaps;
use crate::core::pool::SlotStats;
use alloc::{boxed::Box, string::String, sync::Arc};
use core::any::Any;
use core::fmt;

/// A context of a device. Clones are handles of the same one.
///
/// # Its end
///
/// Dropping the last handle and the last stream frees nothing and waits for nothing: what the
/// context holds stays for the next one who opens it. Only [`close`](Self::close) frees.
///
/// # While it is open
///
/// Nobody resets the device (`cudaDeviceReset`, `cuDevicePrimaryCtxReset`, `hipDeviceReset`): a reset unmaps the
/// memory of its lines, whose words are looked at by safe code. That takes unsafe code elsewhere, whose
/// obligation this is.
///
/// # Faults
///
/// A status that stays is the answer of everything made from this device from then on. Opening the device again
/// makes a new one, without a close of this one.
pub struct Device<A: Interface> {
    pub(super) context: Arc<Context<A>>,
}

/// Something that keeps a driver's stream alive.
///
/// # Safety
///
/// [`handle`](Self::handle) names a live stream for as long as the value lives, the same one each
/// time.
pub unsafe trait StreamOwner: Send + Sync + 'static {
    /// The stream.
    fn handle(&self) -> StreamHandle;
}

/// What a [`Device`] holds, and what went wrong that nobody awaited.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DeviceStats {
    /// What became of its slots.
    pub slots: SlotStats,
    /// Pages of completion lines.
    pub pages: usize,
    /// Pinned buffers, in use or waiting for the next user.
    pub pinned: usize,
    /// Events, in use or waiting for the next mark.
    pub events: usize,
    /// Streams that are there.
    pub streams: usize,
    /// What became of leased buffers.
    pub leases: LeaseStats,
    /// Allocations that will never be freed.
    pub leaked: usize,
    /// Host functions that were queued and not called yet. Behind a fault they never are.
    pub host_functions: usize,
    /// Calls that failed where nobody awaits their result: in a destructor, a close, or when a
    /// thread's former context was put back.
    pub teardown_failures: usize,
}

/// What a [`close`](Device::close) did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CloseReport {
    /// Allocations freed by this call.
    pub freed: usize,
    /// Allocations that somebody still holds: a line, a doorbell, a buffer, a stream, or a slot
    /// whose number never came; and threads that were making something, or closing too. A later call
    /// frees what is given back until then.
    pub held: usize,
    /// Allocations that will never be freed: the driver refused, or the context did not settle.
    pub leaked: usize,
    /// Streams that are still there.
    pub streams: usize,
    /// Whether nothing is left and the reference to the context was given back: no call is made in it any
    /// more. A context of the program's own is the program's alone then.
    pub released: bool,
    /// The status with which the context did not settle. Everything is leaked then, unless a later call
    /// settles, which none does behind a fault.
    pub unsettled: Option<Error>,
}

impl<A: Interface> Device<A> {
    pub(super) fn new(context: Arc<Context<A>>) -> Self {
        Device { context }
    }

    /// A stream of this crate's own that rings no doorbell. It does not wait for the default stream.
    ///
    /// # Errors
    ///
    /// The driver's status, [`Closed`](ErrorCode::Closed) or [`Forked`](ErrorCode::Forked).
    pub fn stream(&self) -> Result<Stream<A>> {
        self.make_stream(None)
    }

    /// The same, ringing `doorbell` after every store of a word: one of this device's
    /// ([`doorbell`](Self::doorbell)) or of another device of the same driver, so that one reactor can
    /// wait for all of them. The memory of another device's doorbell is then held until this device is
    /// closed as well.
    ///
    /// # Errors
    ///
    /// As [`stream`](Self::stream), and [`ForeignContext`](ErrorCode::ForeignContext) where the
    /// doorbell lies in other memory.
    pub fn stream_on(&self, doorbell: &Doorbell) -> Result<Stream<A>> {
        self.make_stream(Some(doorbell))
    }

    fn make_stream(&self, doorbell: Option<&Doorbell>) -> Result<Stream<A>> {
        let _inside = self.enter("stream")?;
        let bell = doorbell.map(|doorbell| self.bell(doorbell)).transpose()?;
        let handle = self.context.take_stream()?;
        let made = self.enlist(Parts { handle, is_own: true, owner: None, bell });
        if made.is_err() {
            self.context.give_stream_back(handle);
        }
        made
    }

    /// A stream of the program's, named by its owner, which is kept while the stream lives.
    ///
    /// # Errors
    ///
    /// As [`stream_on`](Self::stream_on), and [`ForeignContext`](ErrorCode::ForeignContext) where the
    /// stream is one of another context. Nothing was queued then.
    pub fn stream_of(
        &self,
        owner: impl StreamOwner,
        doorbell: Option<&Doorbell>,
    ) -> Result<Stream<A>> {
        let handle = owner.handle();
        // SAFETY: the owner vouches for the handle while it lives, and is kept.
        unsafe { self.adopt(handle, Some(Box::new(owner)), doorbell) }
    }

    /// A stream of the program's, by its raw handle.
    ///
    /// # Safety
    ///
    /// `handle` names a live stream from now until the returned stream, its ports and its leases
    /// are dropped. A HIP runtime of 7.x follows a handle that names none, and crashes.
    ///
    /// # Errors
    ///
    /// As [`stream_of`](Self::stream_of); a stream of a green context is refused as well, by
    /// [`Unsupported`](ErrorCode::Unsupported) where its driver does not tell its context.
    pub unsafe fn stream_from_raw(
        &self,
        handle: StreamHandle,
        doorbell: Option<&Doorbell>,
    ) -> Result<Stream<A>> {
        // SAFETY: passed on.
        unsafe { self.adopt(handle, None, doorbell) }
    }

    /// # Safety
    ///
    /// As [`stream_from_raw`](Self::stream_from_raw), or `owner` keeps the stream.
    unsafe fn adopt(
        &self,
        handle: StreamHandle,
        owner: Option<Box<dyn Any + Send + Sync>>,
        doorbell: Option<&Doorbell>,
    ) -> Result<Stream<A>> {
        let call = "stream";
        let _inside = self.enter(call)?;
        self.context.sweep_dropped(false);
        let home = &self.context.home;
        // SAFETY: the handle is live, by this function's contract.
        let context = home.within(call, |api| unsafe { api.context_of(handle) })?;
        if context.is_some_and(|context| context != home.context) {
            return Err(Error::new(ErrorCode::ForeignContext, [call, "stream"]));
        }
        let bell = doorbell.map(|doorbell| self.bell(doorbell)).transpose()?;
        self.enlist(Parts { handle, is_own: false, owner, bell })
    }

    fn enlist(&self, parts: Parts) -> Result<Stream<A>> {
        let lease = self.context.acquire_slot()?;
        let line = self.context.pages.device_address((**lease.line()).as_ref());
        let line = line.expect("a slot's line is in one of the context's pages");
        let word = line + word_offset(lease.slot());
        let context = self.context.clone();
        let core = self.context.enlist(|id| StreamCore::new(id, context, lease, word, parts));
        Ok(Stream { core })
    }

    fn bell(&self, doorbell: &Doorbell) -> Result<Bell> {
        let (line, slot) = (doorbell.shared_line(), doorbell.bind_stream());
        let own = self.context.pages.device_address((*line).as_ref());
        let line = own.map_or_else(|| self.context.map_line_elsewhere(&line), Ok)?;
        let address = line + word_offset(slot);
        Ok(Bell { doorbell: doorbell.clone(), address })
    }

    /// The driver's own context.
    #[cfg_attr(
        not(feature = "cudarc"),
        allow(dead_code, reason = "asked where handles say too little")
    )]
    pub(in crate::backend) fn raw_context(&self) -> A::Context {
        self.context.home.context
    }

    fn enter(&self, call: &str) -> Result<Pass<'_>> {
        self.context.home.check(call)?;
        self.context.enter(call)
    }

    /// A completion line of this device's memory that nobody had before, all zero. It is not used
    /// again before the device is closed.
    ///
    /// # Errors
    ///
    /// As [`stream`](Self::stream).
    pub fn line(&self) -> Result<SharedLine> {
        let _inside = self.enter("line")?;
        self.context.pages.line()
    }

    /// A doorbell that streams of this device can ring.
    ///
    /// # Errors
    ///
    /// As [`line`](Self::line).
    pub fn doorbell(&self) -> Result<Doorbell> {
        Ok(Doorbell::over(self.line()?))
    }

    /// Page-locked memory of at least one byte, mapped for the device, zeroed where it is fresh.
    ///
    /// # Errors
    ///
    /// As [`stream`](Self::stream).
    pub fn pinned(&self, bytes: usize) -> Result<PinnedBuffer<A>> {
        let _inside = self.enter("pinned")?;
        self.context.sweep_dropped(true);
        PinnedBuffer::allocate(self.context.clone(), bytes)
    }

    /// Memory of the device's own, of at least one byte; its contents are unspecified.
    ///
    /// # Errors
    ///
    /// As [`stream`](Self::stream).
    pub fn memory(&self, bytes: usize) -> Result<DeviceMemory<A>> {
        let _inside = self.enter("memory")?;
        self.context.sweep_dropped(true);
        DeviceMemory::allocate(self.context.clone(), bytes)
    }

    /// Whether a store behind work really lands, as the start-up probe saw it.
    #[must_use]
    pub fn caps(&self) -> DeviceCaps {
        let found = self.context.form.map(|_| ());
        DeviceCaps { store: found.ok_or_else(|| self.context.refused.join("; ")) }
    }

    /// How the device stores words; none where it does not.
    #[must_use]
    pub fn store_form(&self) -> Option<Form> {
        self.context.form
    }

    /// The ways of storing words that were looked at before the one in use, and why each does not
    /// work: no entry point, the attribute, or what the probe saw.
    #[must_use]
    pub fn store_refusals(&self) -> &[String] {
        &self.context.refused
    }

    /// What the device holds. Costs some locks, and a status query for each of a few dropped streams whose
    /// words say that their buffers can come back. In a forked child all is 0.
    #[must_use]
    pub fn stats(&self) -> DeviceStats {
        self.context.stats()
    }

    /// Closes the context: nothing more can be queued by it, what was queued by it is awaited, and what
    /// nobody holds any more is freed. May take as long as the work in front of the last mark of each of its
    /// streams, and no call concerns other streams: a capture elsewhere stays whole. If something is still
    /// held it can be called again later; once the context was released, it does nothing.
    ///
    /// What the program has queued past this crate is not waited for. Its work on a buffer of this device's
    /// must be behind a mark ([`DeviceMemory::used_by`], a lease) before the buffer is dropped.
    ///
    /// On HIP a stream that is being captured and has marks that are not known to be done cannot be waited
    /// for: [`unsettled`](CloseReport::unsettled) then says [`Captured`](ErrorCode::Captured).
    ///
    /// # Errors
    ///
    /// [`Forked`](ErrorCode::Forked). A context that does not settle is no error of this call, but in
    /// the report.
    pub fn close(&self) -> Result<CloseReport> {
        self.context.close()
    }
}

/// How many bytes behind the beginning of a line the word of `slot` is.
fn word_offset(slot: Slot) -> u64 {
    (slot.index() * size_of::<u64>()) as u64
}

impl<A: Interface> Clone for Device<A> {
    fn clone(&self) -> Self {
        Device { context: self.context.clone() }
    }
}

impl<A: Interface> fmt::Debug for Device<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("home", &self.context.home)
            .field("form", &self.context.form)
            .finish_non_exhaustive()
    }
}
