//! Arguments of entry points, as the foreign caller passes them.
//!
//! A value of these types exists only as an argument of an entry point. Its caller has promised what
//! the vendor's header asks for: a pointer is null or good for what the entry point does with it.
//! That promise is what makes the methods here safe to call.

use crate::refusal::{Outcome, Refusal};
use core::ffi::{CStr, c_char, c_void};

/// Where the caller wants an answer.
#[repr(transparent)]
pub struct Out<T>(*mut T);

// Not derived: whatever `T` is, this is an address.
impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Writes the answer.
    ///
    /// # Errors
    ///
    /// That the pointer is null.
    pub fn set(self, value: T) -> Outcome {
        self.check()?;
        // SAFETY: not null, so by the caller's promise aligned and valid for writing a `T`.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Refuses a null pointer, before anything is done whose answer it is for.
    ///
    /// # Errors
    ///
    /// That the pointer is null.
    pub fn check(self) -> Outcome {
        if self.0.is_null() { Err(Refusal::InvalidValue) } else { Ok(()) }
    }
}

impl<T: Copy> Out<T> {
    /// What the caller put there.
    ///
    /// # Errors
    ///
    /// That the pointer is null.
    pub fn get(self) -> Outcome<T> {
        self.check()?;
        // SAFETY: not null, so by the caller's promise aligned and an initialised `T`.
        Ok(unsafe { self.0.read() })
    }

    /// What the caller put into an array.
    ///
    /// # Errors
    ///
    /// That the pointer is null.
    pub fn list(self, len: usize) -> Outcome<Vec<T>> {
        self.check()?;
        // SAFETY: not null, so by the caller's promise `len` initialised values of `T` lie there,
        // which nobody writes during the call.
        Ok(unsafe { core::slice::from_raw_parts(self.0, len) }.to_vec())
    }

    /// Writes `text` and a zero, cut to `len`.
    ///
    /// # Errors
    ///
    /// That the pointer is null, or that not even the zero fits.
    pub fn fill(self, text: &[T], zero: T, len: i32) -> Outcome {
        self.check()?;
        let len = usize::try_from(len).map_err(|_| Refusal::InvalidValue)?;
        let room = len.checked_sub(1).ok_or(Refusal::InvalidValue)?;
        let text = &text[..text.len().min(room)];
        for (at, byte) in text.iter().chain([&zero]).enumerate() {
            // SAFETY: not null, so by the caller's promise valid for writing `len` values, and `at`
            // stays below `len`.
            unsafe { self.0.add(at).write(*byte) };
        }
        Ok(())
    }
}

/// Text from the caller.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*const c_char);

impl Text {
    /// The text; empty for a null pointer.
    #[must_use]
    pub fn get(self) -> String {
        if self.0.is_null() {
            return String::new();
        }
        // SAFETY: not null, so by the caller's promise a text that ends with a zero and that nobody
        // writes during the call.
        unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned()
    }
}

/// A function of the host with its argument, to be called by a worker.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct HostFunction(Option<unsafe extern "C" fn(*mut c_void)>);

/// The argument of a host function. The fake device passes it on and never looks behind it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct HostData(*mut c_void);

// SAFETY: who queues a host function promises that function and argument may be used on a thread
// of the driver's.
unsafe impl Send for HostData {}

impl HostFunction {
    /// Whether it is null.
    #[must_use]
    pub fn is_null(self) -> bool {
        self.0.is_none()
    }

    /// Calls it, with no lock held.
    pub(crate) fn call(self, data: HostData) {
        if let Some(function) = self.0 {
            // SAFETY: who queued it promised that it may be called once, with this argument, from a
            // thread of the driver's, once the work before it is over.
            unsafe { function(data.0) };
        }
    }
}

/// A piece of the program's memory, as an address.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct HostAddress(*mut u8);

// SAFETY: an address. Who passed it promised that the device may use what is behind it.
unsafe impl Send for HostAddress {}

impl HostAddress {
    /// The null pointer.
    pub const NULL: HostAddress = HostAddress(core::ptr::null_mut());

    /// The address of memory of the fake device's own.
    pub(crate) fn of(memory: *mut u8) -> Self {
        HostAddress(memory)
    }

    /// The number.
    #[must_use]
    pub fn addr(self) -> usize {
        self.0.addr()
    }

    /// The address `bytes` further on.
    #[must_use]
    pub fn after(self, bytes: usize) -> Self {
        HostAddress(self.0.wrapping_add(bytes))
    }

    pub(crate) fn pointer(self) -> *mut u8 {
        self.0
    }
}
