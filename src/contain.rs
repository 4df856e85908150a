//! Running code of the program whose panic must end there.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `code`. `None` if it panicked.
///
/// The payload of the panic is forgotten: its destructor is the program's too, and may panic once
/// more. The panic hook has printed the message by then.
pub(crate) fn contain<R>(code: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(value) => Some(value),
        Err(payload) => {
            core::mem::forget(payload);
            None
        }
    }
}

#[cfg(test)]
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
