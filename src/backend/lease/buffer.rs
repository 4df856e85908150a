//! What can be leased, and how the program reads it while it has it.

use core::ptr::NonNull;
use core::slice;

/// Memory that a device may read or write while the program has no access.
///
/// Its methods [`as_slice`](Self::as_slice) and [`as_mut_slice`](Self::as_mut_slice) are the
/// program's access while the buffer is not leased.
///
/// # Safety
///
/// - The memory at [`address`](Self::address), [`bytes`](Self::bytes) long, is valid for reads and
///   writes of any thread, and both answers are always the same.
/// - It does not move when the value moves, and is freed or used again by nothing but the value's
///   own destructor.
/// - Nobody else holds a reference into it or hands one out: who has the value borrowed is the only
///   one to borrow the memory, and by the same rules.
/// - Every byte of it is initialised, before the first use too.
pub unsafe trait DeviceBuffer: Send + 'static {
    /// The address of the first byte, as this process sees it.
    fn address(&self) -> NonNull<u8>;

    /// How many bytes there are.
    fn bytes(&self) -> usize;

    /// The memory as numbers; bytes that make no whole one at the end are left out.
    ///
    /// # Panics
    ///
    /// Where the address is not aligned for `T`. That of a pinned buffer always is.
    fn as_slice<T: Plain>(&self) -> &[T]
    where
        Self: Sized,
    {
        let (first, count) = typed::<T>(self.address(), self.bytes());
        // SAFETY: the contract of this trait: valid for reads, initialised, and, since `self` is
        // borrowed, written by nobody: not by the program, which would have to borrow `self`
        // mutably, and not by a device, which has the value in a lease meanwhile. Any bit pattern
        // is a value of a `Plain`; `typed` checked the alignment and kept the length.
        unsafe { slice::from_raw_parts(first.as_ptr(), count) }
    }

    /// The same, to write.
    ///
    /// # Panics
    ///
    /// As [`as_slice`](Self::as_slice).
    fn as_mut_slice<T: Plain>(&mut self) -> &mut [T]
    where
        Self: Sized,
    {
        let (first, count) = typed::<T>(self.address(), self.bytes());
        // SAFETY: as above, valid for writes too; `self` is borrowed mutably, so that nobody else
        // reads or writes. Any value of a `Plain` leaves initialised bytes.
        unsafe { slice::from_raw_parts_mut(first.as_ptr(), count) }
    }
}

fn typed<T: Plain>(address: NonNull<u8>, bytes: usize) -> (NonNull<T>, usize) {
    let first = address.cast::<T>();
    assert!(first.is_aligned(), "the buffer is not aligned for its numbers");
    (first, bytes / size_of::<T>())
}

/// Plain numbers: any bytes are one, and one has no bytes that are not its value.
///
/// Sealed: the integers and floating-point numbers of Rust.
///
/// # Safety
///
/// Any bit pattern is a value, and there is no padding.
pub unsafe trait Plain: Copy + Send + Sync + 'static + sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! plain {
    ($($number:ty),*) => {$(
        impl sealed::Sealed for $number {}
        // SAFETY: a primitive number: every bit pattern is a value, without padding.
        unsafe impl Plain for $number {}
    )*};
}

plain!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64);
