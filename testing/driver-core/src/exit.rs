//! The end of the process: a call after the library's destructors crashes, as it does in the vendors'.
//!
//! Only where the environment asks for it by [`CRASH`]: a test that ends while its threads are in
//! the driver is no failure of what it tests.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set to `1`, it has a call after the library's destructors abort the process.
pub const CRASH: &str = "TEST_DRIVER_CRASHES_AT_EXIT";

static DESTROYED: AtomicBool = AtomicBool::new(false);

/// Called among the library's destructors.
pub fn destroyed() {
    if std::env::var_os(CRASH).is_some_and(|value| value == "1") {
        DESTROYED.store(true, Ordering::Release);
        // It cannot fail in a way that matters any more.
        let _ = writeln!(std::io::stderr(), "the library's destructors have run");
    }
}

/// Crashes where the library's destructors have run.
pub(crate) fn check(entry: &str) {
    if DESTROYED.load(Ordering::Acquire) {
        // It cannot fail in a way that matters any more.
        let _ = writeln!(std::io::stderr(), "{entry}: called after the library's destructors");
        std::process::abort();
    }
}
