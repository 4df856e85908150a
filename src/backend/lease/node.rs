//! The block of one leased buffer, and the list it can wait in without anything being allocated.
//!
//! The list is a stack of which everything is taken at once: pushing is one compare-and-swap, taking
//! one swap, and neither takes a lock, so that a dropped lease waits for nobody, in a child after
//! `fork` neither. Nobody ever removes a single node of the shared list, hence a node that was freed
//! and came back at the same address between a pusher's load and its swap is no danger: what the
//! pusher has written as next is then still what the head is.
//!
//! # Memory ordering
//!
//! A push releases the node and the taking acquires it. Both are read-modify-writes of one word, so
//! that the taking acquires every push since the last one.

use super::LeaseStream;
use super::buffer::DeviceBuffer;
use crate::core::sync::{AtomicU64, Ordering};
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::ptr::{self, NonNull};
#[cfg(not(loom))]
use core::sync::atomic::AtomicPtr;
#[cfg(loom)]
use loom::sync::atomic::AtomicPtr;

/// What a list knows of a node. The rest is the buffer, behind it.
pub(super) struct Header {
    next: *mut Header,
    number: u64,
    stream: Option<Weak<dyn LeaseStream>>,
    /// Drops the buffer and frees the node.
    free: unsafe fn(*mut Header),
}

#[repr(C)]
struct Node<B> {
    header: Header,
    buffer: B,
}

/// A node whose buffer's type is known: the place of a lease.
///
/// Without a destructor: a place that is not taken, freed or pushed somewhere is leaked.
pub(super) struct Place<B>(NonNull<Node<B>>);

/// A node whose buffer's type is forgotten. Without a destructor, as [`Place`].
pub(super) struct Entry(NonNull<Header>);

impl<B: DeviceBuffer> Place<B> {
    /// One allocation.
    pub(super) fn new(buffer: B, stream: &Arc<dyn LeaseStream>) -> Self {
        let header = Header {
            next: ptr::null_mut(),
            number: 0,
            stream: Some(Arc::downgrade(stream)),
            free: free::<B>,
        };
        let node = Box::into_raw(Box::new(Node { header, buffer }));
        // SAFETY: a box's pointer is not null.
        Place(unsafe { NonNull::new_unchecked(node) })
    }

    /// The buffer, and nothing else left.
    ///
    /// # Safety
    ///
    /// The device is done with the memory of the buffer.
    pub(super) unsafe fn take(self) -> B {
        // SAFETY: made by `Box::into_raw` in `new` and owned by this place, which is consumed.
        unsafe { Box::from_raw(self.0.as_ptr()) }.buffer
    }

    /// The same node in a list, as that of `number`.
    pub(super) fn entry(self, number: u64) -> Entry {
        let header = self.0.cast::<Header>();
        // SAFETY: the header is the first field of a `repr(C)` node, which this place owns.
        unsafe { (*header.as_ptr()).number = number };
        Entry(header)
    }
}

/// # Safety
///
/// `header` is that of a `Node<B>` made by `Place::new`, owned by the caller, and the device is done
/// with the memory of its buffer.
unsafe fn free<B>(header: *mut Header) {
    // SAFETY: the pointer is that of the box, which the header lies at the beginning of.
    drop(unsafe { Box::from_raw(header.cast::<Node<B>>()) });
}

impl Entry {
    pub(super) fn number(&self) -> u64 {
        // SAFETY: an entry owns its node.
        unsafe { (*self.0.as_ptr()).number }
    }

    /// The stream whose status decides, while there is one.
    pub(super) fn stream(&self) -> Option<Arc<dyn LeaseStream>> {
        // SAFETY: an entry owns its node; the reference ends with this call.
        unsafe { &(*self.0.as_ptr()).stream }.as_ref().and_then(Weak::upgrade)
    }

    /// Drops the buffer and frees the node, also where the buffer's destructor panics.
    ///
    /// # Safety
    ///
    /// The device is done with the memory of the buffer.
    pub(super) unsafe fn free(self) {
        let header = self.0.as_ptr();
        // SAFETY: `free` was stored by `Place::new` for this node's type, the entry owns the node and
        // is consumed, and the caller answers for the device.
        unsafe { ((*header).free)(header) }
    }

    /// Gives the buffer up for good. It stays reachable from a static, so that a leak checker does
    /// not take what was given up knowingly for what was lost.
    pub(super) fn leak(self) {
        static GIVEN_UP: core::sync::atomic::AtomicPtr<Header> =
            core::sync::atomic::AtomicPtr::new(ptr::null_mut());
        let header = self.0.as_ptr();
        // SAFETY: an entry owns its node, and is consumed. Without the weak reference the memory of
        // the stream itself is not leaked too.
        drop(unsafe { (*header).stream.take() });
        let mut head = GIVEN_UP.load(Ordering::Relaxed);
        loop {
            // SAFETY: the node is not shared before the exchange succeeds.
            unsafe { (*header).next = head };
            match GIVEN_UP.compare_exchange_weak(head, header, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

/// Entries that any thread may add to, without a lock. Its destructor frees nothing.
#[derive(Debug)]
pub(super) struct List {
    head: AtomicPtr<Header>,
    /// No number in the list is smaller: lowered behind a push, raised in front of a taking. A push
    /// that the taking missed acquires the raise through the head, and lowers it again.
    oldest: AtomicU64,
}

// SAFETY: the list hands an entry from one thread to another; a buffer is `Send` by its trait, and a
// weak reference to a stream, which is `Send` and `Sync`, is so too. A header has no other content.
unsafe impl Send for List {}
// SAFETY: as above; the head is an atomic, and nodes are only touched by who owns them.
unsafe impl Sync for List {}

impl List {
    pub(super) fn new() -> Self {
        List { head: AtomicPtr::new(ptr::null_mut()), oldest: AtomicU64::new(u64::MAX) }
    }

    pub(super) fn push(&self, entry: Entry) {
        let number = entry.number();
        let header = entry.0.as_ptr();
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // SAFETY: the entry owns its node, which nobody else sees before the exchange succeeds.
            unsafe { (*header).next = head };
            match self.head.compare_exchange_weak(head, header, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        self.oldest.fetch_min(number, Ordering::Relaxed);
    }

    /// A number that no entry is below; the largest there is where the list is empty.
    pub(super) fn oldest(&self) -> u64 {
        self.oldest.load(Ordering::Relaxed)
    }

    /// Whether nothing was pushed that was not taken.
    pub(super) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Acquire).is_null()
    }

    /// All entries there are. What is left of them when the chain is dropped goes back.
    pub(super) fn take_all(&self) -> Chain<'_> {
        // An exchange and not a store, which could come in front of what it does not follow.
        self.oldest.swap(u64::MAX, Ordering::Relaxed);
        let first = self.head.swap(ptr::null_mut(), Ordering::AcqRel);
        Chain { first: NonNull::new(first).map(Entry), home: self }
    }
}

/// Entries that were taken out of a list.
pub(super) struct Chain<'l> {
    first: Option<Entry>,
    home: &'l List,
}

impl Chain<'_> {
    pub(super) fn first(&self) -> Option<&Entry> {
        self.first.as_ref()
    }
}

impl Iterator for Chain<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        let entry = self.first.take()?;
        // SAFETY: the chain owns its nodes since they were taken out of the list.
        let next = unsafe { (*entry.0.as_ptr()).next };
        self.first = NonNull::new(next).map(Entry);
        Some(entry)
    }
}

impl Drop for Chain<'_> {
    fn drop(&mut self) {
        let home = self.home;
        self.for_each(|entry| home.push(entry));
    }
}
