//! Calls after the library's destructors have run, which crash a vendor's driver.
//!
//! The process is exiting, and nobody is left to ask for a log. So such a call writes its name to the
//! standard error and ends the process with [`CALLED`].

use std::time::Duration;

/// What a process ends with that called a driver after its end.
pub const CALLED: i32 = 86;

/// How many milliseconds a library's end takes, where this variable is set: the time for other threads to
/// call it.
pub const LINGER: &str = "FAKE_END_TAKES_MS";

pub(crate) fn called(entry: &str) -> ! {
    eprintln!("{entry}: called after the destructors of its library");
    // SAFETY: ends the process at once. What would run otherwise is the exit that is going on.
    unsafe { libc::_exit(CALLED) }
}

pub(crate) fn linger() {
    let time = std::env::var(LINGER).ok().and_then(|ms| ms.parse().ok());
    if let Some(ms) = time {
        std::thread::sleep(Duration::from_millis(ms));
    }
}
