//! Memory that the kernel reads or writes while the program goes on: what an operation needs to know
//! of a buffer, and what it needs to be promised.

use core::mem::MaybeUninit;
use std::sync::Arc;
use std::vec::Vec;

/// A buffer whose bytes the kernel may read: for [`write`](super::UringHandle::write) and
/// [`send`](super::UringHandle::send).
///
/// # Safety
///
/// From a call of [`bytes`](Self::bytes) until the value is dropped or `bytes` is called again:
///
/// * the slice stays at its address and readable, wherever the value itself is moved, and also where
///   the value is forgotten rather than dropped (it owns the memory, or borrows it for `'static`);
/// * nobody writes to it: not through the value, which nobody but its operation has, and not through
///   another handle of the same memory.
pub unsafe trait IoBuf: 'static {
    /// The bytes to be read. The same slice at each call while the value is not changed.
    fn bytes(&self) -> &[u8];
}

/// A buffer that the kernel may write to: for [`read`](super::UringHandle::read) and
/// [`recv`](super::UringHandle::recv). They append to it while it has spare bytes; one that has none
/// is overwritten from its beginning.
///
/// # Safety
///
/// From a call of [`spare`](Self::spare) or [`contents`](Self::contents) until the value is dropped or
/// one of the methods is called:
///
/// * the slice stays at its address and writable, wherever the value itself is moved, and also where
///   the value is forgotten rather than dropped;
/// * nobody else reads or writes it, and nobody relies on it to keep its value.
pub unsafe trait IoBufMut: 'static {
    /// The bytes after the contents, which may be written to. Not one of them is relied on to be
    /// initialised: safe code may leave them uninitialised.
    fn spare(&mut self) -> &mut [MaybeUninit<u8>];

    /// The contents, all initialised, which are overwritten if nothing is spare. Default: none, and
    /// then a buffer without spare bytes is refused.
    fn contents(&mut self) -> &mut [u8] {
        &mut []
    }

    /// The first `count` bytes of what [`spare`](Self::spare) gave were written, and belong to the
    /// contents from now on.
    ///
    /// # Safety
    ///
    /// `spare` was called before, nothing changed the value since, and those bytes are initialised.
    unsafe fn advance(&mut self, count: usize);
}

// SAFETY: a vector owns its heap memory, which moves only when the vector grows, through a
// `&mut Vec` that nobody has meanwhile. A vector is a raw pointer and two numbers: moving it makes
// no claim on the memory behind the pointer.
unsafe impl IoBuf for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// Where a buffer is read into.
pub(super) enum Room<'a> {
    /// After the contents.
    Spare(&'a mut [MaybeUninit<u8>]),
    /// Over the contents, from their beginning.
    Contents(&'a mut [u8]),
}

impl<'a> Room<'a> {
    /// `None` if there is not one byte.
    pub(super) fn of<B: IoBufMut>(buffer: &'a mut B) -> Option<Self> {
        if !buffer.spare().is_empty() {
            return Some(Room::Spare(buffer.spare()));
        }
        let contents = buffer.contents();
        (!contents.is_empty()).then_some(Room::Contents(contents))
    }
}

// SAFETY: as above. The spare capacity is no part of the contents, so nobody relies on its bytes; the
// contents are bytes, for which any value is one.
unsafe impl IoBufMut for Vec<u8> {
    /// The spare capacity.
    fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        self.spare_capacity_mut()
    }

    fn contents(&mut self) -> &mut [u8] {
        self
    }

    unsafe fn advance(&mut self, count: usize) {
        // SAFETY: the caller says that `count` bytes behind the contents are initialised; they lie
        // within the spare capacity, so the new length is within the capacity.
        unsafe { self.set_len(self.len() + count) };
    }
}

// SAFETY: memory that is never freed and never written to.
unsafe impl IoBuf for &'static [u8] {
    fn bytes(&self) -> &[u8] {
        self
    }
}

// SAFETY: memory that is never freed and never written to.
unsafe impl IoBuf for &'static str {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

// SAFETY: the slice lives on the heap as long as this reference to it, and is not written to: that
// takes the only reference.
unsafe impl IoBuf for Arc<[u8]> {
    fn bytes(&self) -> &[u8] {
        self
    }
}
