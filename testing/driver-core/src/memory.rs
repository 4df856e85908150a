//! Page-locked host memory and device memory.
//!
//! Both are pages of the process. A device address is not the host address unless the device says
//! that it has unified addressing: it lies [`AWAY`] further, where the host has no memory, so that a
//! program which mixes the two up meets a refusal, and one that follows a device address a fault.
//!
//! Freed memory is quarantined: it stays where it is, filled with [`FREED`], until a reset, so that a
//! store which comes too late is found and logged, and harms nobody. Fresh memory is filled with
//! [`FRESH`], since no driver promises zeros.

use crate::abi::HostAddress;
use crate::refusal::{Outcome, Refusal};
use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The size and alignment of a page.
pub const PAGE: usize = 4096;
/// How far from the host's address the device's is.
pub const AWAY: usize = 1 << 46;
/// What fresh memory is filled with.
pub const FRESH: u8 = 0xcd;
/// What freed memory is filled with.
pub const FREED: u8 = 0xdd;

/// Who may use a piece of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Page-locked memory of the host.
    Host,
    /// Memory of the device.
    Device,
}

/// What is asked of new memory.
#[derive(Clone, Copy)]
pub struct Request {
    /// Host or device.
    pub place: Place,
    /// How many bytes.
    pub bytes: usize,
    /// Whether contexts other than its own can use it.
    pub portable: bool,
    /// Whether the device can use it.
    pub mapped: bool,
    /// Whether a store is seen by the host before the host has synchronised.
    pub coherent: bool,
}

/// One piece of memory.
pub(crate) struct Allocation {
    pub(crate) context: u64,
    pub(crate) request: Request,
    pub(crate) freed: bool,
    /// Stores that were queued and have not landed.
    pub(crate) pending: Arc<AtomicU64>,
    host: HostAddress,
    layout: Layout,
    away: usize,
}

impl Allocation {
    fn device_address(&self) -> usize {
        self.host.addr() + self.away
    }

    pub(crate) fn pages(&self) -> usize {
        self.layout.size() / PAGE
    }

    fn fill(&self, value: u8) {
        // SAFETY: the allocation is `layout.size()` bytes at `host`, and is not unmapped before a
        // reset takes it out of the table. Nobody holds a Rust reference into it.
        unsafe { self.host.pointer().write_bytes(value, self.layout.size()) };
    }
}

/// A place in memory that the device can use, counted as a store to come while it exists.
pub(crate) struct Target {
    /// The device's address of the whole piece, its key in the table.
    pub(crate) key: usize,
    pub(crate) host: HostAddress,
    pending: Arc<AtomicU64>,
}

impl Drop for Target {
    fn drop(&mut self) {
        self.pending.fetch_sub(1, Ordering::AcqRel);
    }
}

/// All memory, live and quarantined.
#[derive(Default)]
pub(crate) struct Memory {
    /// By the device's address.
    pieces: BTreeMap<usize, Allocation>,
    /// The device's addresses, by the host's.
    by_host: BTreeMap<usize, usize>,
}

impl Memory {
    /// Allocates whole pages and returns the key.
    pub(crate) fn allocate(
        &mut self,
        context: u64,
        request: Request,
        unified: bool,
    ) -> Outcome<usize> {
        let pages = request.bytes.div_ceil(PAGE);
        let bytes = pages.checked_mul(PAGE).ok_or(Refusal::OutOfMemory)?;
        let layout = Layout::from_size_align(bytes, PAGE).map_err(|_| Refusal::OutOfMemory)?;
        if bytes == 0 {
            return Err(Refusal::InvalidValue);
        }
        // SAFETY: the layout's size is not 0.
        let host = unsafe { alloc(layout) };
        if host.is_null() {
            return Err(Refusal::OutOfMemory);
        }
        let host = HostAddress::of(host);
        // Device memory is out of the host's reach, whatever the address space.
        let away = if unified && request.place == Place::Host { 0 } else { AWAY };
        let pending = Arc::default();
        let piece = Allocation { context, request, freed: false, pending, host, layout, away };
        piece.fill(FRESH);
        let key = piece.device_address();
        self.by_host.insert(host.addr(), key);
        self.pieces.insert(key, piece);
        Ok(key)
    }

    pub(crate) fn host_of(&self, key: usize) -> HostAddress {
        self.pieces[&key].host
    }

    /// The piece that `bytes` bytes at the device's address `at` lie in, freed or not.
    pub(crate) fn on_device(&self, at: usize, bytes: usize) -> Option<(usize, &Allocation)> {
        let (&key, piece) = self.pieces.range(..=at).next_back()?;
        let end = at.checked_add(bytes)?;
        (end <= key + piece.request.bytes).then_some((key, piece))
    }

    /// The piece that `bytes` bytes at the host's address `at` lie in, freed or not.
    pub(crate) fn on_host(&self, at: usize, bytes: usize) -> Option<(usize, &Allocation)> {
        let (&base, &key) = self.by_host.range(..=at).next_back()?;
        let piece = &self.pieces[&key];
        let end = at.checked_add(bytes)?;
        let host = piece.request.place == Place::Host;
        (host && end <= base + piece.request.bytes).then_some((key, piece))
    }

    /// The piece that begins at the device's address `key`.
    pub(crate) fn piece(&self, key: usize) -> Option<&Allocation> {
        self.pieces.get(&key)
    }

    /// Where the device's address `at`, within the piece `key`, is for the host.
    pub(crate) fn target(&self, key: usize, at: usize) -> Target {
        let piece = &self.pieces[&key];
        piece.pending.fetch_add(1, Ordering::AcqRel);
        Target { key, host: piece.host.after(at - key), pending: piece.pending.clone() }
    }

    /// Puts a piece into quarantine.
    pub(crate) fn free(&mut self, key: usize) {
        let piece = self.pieces.get_mut(&key).expect("found by the caller");
        piece.freed = true;
        piece.fill(FREED);
    }

    pub(crate) fn is_live(&self, key: usize) -> bool {
        self.pieces.get(&key).is_some_and(|piece| !piece.freed)
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = (usize, &Allocation)> {
        self.pieces.iter().filter(|(_, piece)| !piece.freed).map(|(&key, piece)| (key, piece))
    }

    /// How many stores and copies are to come, into all memory.
    pub(crate) fn pending(&self) -> u64 {
        self.pieces.values().map(|piece| piece.pending.load(Ordering::Acquire)).sum()
    }

    /// Gives quarantined memory back to the system. What the program never freed is left to it for
    /// ever, since it may still read there. Nothing may be queued any more.
    pub(crate) fn clear(&mut self) {
        static LEFT: Mutex<Vec<Allocation>> = Mutex::new(Vec::new());
        self.by_host.clear();
        let pieces = std::mem::take(&mut self.pieces).into_values();
        let (freed, left): (Vec<_>, Vec<_>) = pieces.partition(|piece| piece.freed);
        // Reachable, so that a leak checker does not take it for lost.
        LEFT.lock().unwrap_or_else(PoisonError::into_inner).extend(left);
        for piece in freed {
            // SAFETY: allocated with this layout, and freed by the program; the device that could
            // write it has ended. The table no longer knows it.
            unsafe { dealloc(piece.host.pointer(), piece.layout) };
        }
    }
}

/// Stores `value` at `to`: one store of 4 or 8 bytes, with release ordering.
pub(crate) fn store(to: HostAddress, value: Value) {
    match value {
        Value::Word32(value) => {
            let word = to.pointer().cast::<u32>();
            // SAFETY: the caller found `to` within a live piece with 4 bytes from it on, under the
            // lock that freeing takes, and checked its alignment. The word is used atomically by
            // whoever shares it with the device while stores are queued.
            unsafe { std::sync::atomic::AtomicU32::from_ptr(word) }.store(value, Ordering::Release);
        }
        Value::Word64(value) => {
            let word = to.pointer().cast::<u64>();
            // SAFETY: as above, with 8 bytes.
            unsafe { AtomicU64::from_ptr(word) }.store(value, Ordering::Release);
        }
    }
}

/// Copies `bytes` bytes. The two may overlap.
pub(crate) fn copy(from: HostAddress, to: HostAddress, bytes: usize) {
    // SAFETY: the caller found both within live pieces, under the lock that freeing takes, or has the
    // promise of who queued the copy that the program's memory there lives until the copy is over
    // and that nobody else uses it meanwhile.
    unsafe { std::ptr::copy(from.pointer(), to.pointer(), bytes) };
}

/// Copies the program's bytes, during the call that names them.
pub(crate) fn read(from: HostAddress, bytes: usize) -> Vec<u8> {
    let mut taken = vec![0; bytes];
    copy(from, HostAddress::of(taken.as_mut_ptr()), bytes);
    taken
}

/// Fills `bytes` bytes with `value`.
pub(crate) fn set(to: HostAddress, value: u8, bytes: usize) {
    // SAFETY: the caller found these bytes within a live piece, under the lock that freeing takes.
    unsafe { to.pointer().write_bytes(value, bytes) };
}

/// What a memory operation stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// 4 bytes.
    Word32(u32),
    /// 8 bytes.
    Word64(u64),
}

impl Value {
    /// How many bytes it has.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Value::Word32(_) => 4,
            Value::Word64(_) => 8,
        }
    }
}
