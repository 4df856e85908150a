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

/// A buffer whose spare bytes the kernel may write: for [`read`](super::UringHandle::read) and
/// [`recv`](super::UringHandle::recv).
///
/// # Safety
///
/// From a call of [`spare`](Self::spare) until the value is dropped or one of the methods is called:
///
/// * the slice stays at its address and writable, wherever the value itself is moved, and also where
///   the value is forgotten rather than dropped;
/// * nobody else reads or writes it, and it is not initialised memory that is relied on to keep its
///   value.
pub unsafe trait IoBufMut: 'static {
    /// The bytes that may be written to.
    fn spare(&mut self) -> &mut [MaybeUninit<u8>];

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

// SAFETY: as above. The spare capacity is no part of the contents, so nobody relies on its bytes.
unsafe impl IoBufMut for Vec<u8> {
    /// What is free behind the contents: reading appends.
    fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        self.spare_capacity_mut()
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
