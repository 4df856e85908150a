//! Running foreign code (wakers, destructors, statuses) so that its panic ends there.
//!
//! The library calls code of the program for many of its users in a row. A panic of one must not
//! cost another its wake, its watch or its thread, and must not abort a program that is already
//! unwinding. All such calls go through [`contain`]; each caller counts what it contained. The
//! panic hook has printed the message by then.

/// Runs `code`. Returns `None` if it panicked.
///
/// The payload of the panic is forgotten, because its destructor is foreign code too and may panic.
/// Without the standard library a panic cannot be caught and ends the program.
#[inline]
pub(crate) fn contain<R>(code: impl FnOnce() -> R) -> Option<R> {
    #[cfg(feature = "std")]
    {
        // Unwind safety: what the closure leaves half done is the program's own, or is
        // consistent at every call that it makes; the callers answer for that.
        match std::panic::catch_unwind(core::panic::AssertUnwindSafe(code)) {
            Ok(value) => Some(value),
            Err(payload) => {
                core::mem::forget(payload);
                None
            }
        }
    }
    #[cfg(not(feature = "std"))]
    Some(code())
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::contain;

    #[test]
    fn a_panic_ends_where_it_is_contained_and_so_does_one_of_its_payload() {
        struct Payload;
        impl Drop for Payload {
            fn drop(&mut self) {
                panic!("a payload of the test");
            }
        }
        assert_eq!(contain(|| 7), Some(7));
        assert_eq!(contain(|| -> u8 { panic!("a test") }), None);
        assert_eq!(contain(|| -> u8 { std::panic::panic_any(Payload) }), None);
    }
}
