//! Keeping a panic of the program's code out of the library's.

use core::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code of the program: a waker, a destructor, a callback. Returns what it returned, or `None`
/// if it panicked.
///
/// The payload of the panic is forgotten, not dropped: its destructor is the program's too, and may
/// panic again. What `code` captured is dropped by the time that this returns, and what it left
/// half-done is visible afterwards: the caller gives it nothing of the library's that must be whole.
pub(crate) fn contain<R>(code: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(output) => Some(output),
        Err(payload) => {
            mem::forget(payload);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::panic_any;

    struct PanicsOnDrop;

    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            panic!("a payload's destructor");
        }
    }

    #[test]
    fn a_panic_ends_here_and_its_payload_too() {
        assert_eq!(contain(|| 7), Some(7));
        assert_eq!(contain(|| panic_any(PanicsOnDrop)), None::<()>);
    }
}
