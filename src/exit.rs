//! The end of the process, while threads may still be calling a driver.
//!
//! `exit` runs handlers and destructors while every other thread goes on: a watcher's would call into a
//! driver library whose own destructors have run, which crashes rather than answers. So a handler of
//! `atexit` ends all calls before: from then on they answer [`Exiting`](crate::ErrorCode::Exiting), and the
//! handler waits until those that are running have returned, [`PATIENCE`] at most.
//!
//! Handlers run in the opposite order of their registration, and destructors of libraries after them. A
//! driver may register handlers of its own whenever it makes something, so ours is registered again
//! after each library was initialised and each device opened; a second run finds nothing to do.
//!
//! ```text
//! a call:      running + 1, then reads the word of fork.rs -- not exiting --> calls -> running - 1
//! the handler: writes that word, then reads running until it is 0
//! ```
//!
//! # Memory ordering
//!
//! Each side writes one word and then reads the other's, all sequentially consistent, so that not both
//! miss the other's write: a call that the handler does not see running sees the exit. Leaving a call
//! is a release, which the handler's read acquires: what the call did is over.
//!
//! # What it does not cover
//!
//! A call that blocks for longer than the handler waits: it is left inside the driver. `_exit` and `abort`,
//! which run nothing. Windows, where the other threads have ended before a library hears of the end.
//! In a child that was forked while another thread was in a call, the handler waits its full time.

use crate::core::error::Result;
use crate::fork::Birth;
use core::sync::atomic::{AtomicUsize, Ordering};
#[cfg(unix)]
use std::time::{Duration, Instant};

/// How long an exit waits for running calls.
#[cfg(unix)]
const PATIENCE: Duration = Duration::from_millis(20);

/// Calls of drivers that are running, of all threads.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// There while a driver is being called.
#[must_use = "the call is over where this is dropped"]
pub(crate) struct Calling(());

impl Drop for Calling {
    #[inline]
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Release);
    }
}

/// Begins `call` of a driver that is of the process of `birth`, or refuses it. Costs two additions to a
/// word that all threads share.
#[inline]
pub(crate) fn calling(birth: Birth, call: &str) -> Result<Calling> {
    // A forked child never counts: what it counts in is a copy that may be in the middle of a call.
    birth.check(call)?;
    RUNNING.fetch_add(1, Ordering::SeqCst);
    let calling = Calling(());
    birth.check_by(call, Ordering::SeqCst)?;
    Ok(calling)
}

/// Has the end of this process wait for its calls.
#[cfg(unix)]
pub(crate) fn register() {
    extern "C" fn at_exit() {
        crate::fork::begin_exit();
        let begun = Instant::now();
        while RUNNING.load(Ordering::SeqCst) != 0 && begun.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
    }
    // SAFETY: the handler is a function of this program or library, which is there as long as what it
    // was registered for. It takes no lock and does not unwind.
    let status = unsafe { libc::atexit(at_exit) };
    // That no memory is left is the one failure there is. The exit then is as without this module.
    debug_assert_eq!(status, 0, "atexit");
}

/// Nothing to wait for: see above.
#[cfg(not(unix))]
pub(crate) fn register() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_counted_while_it_runs() {
        let calling = calling(Birth::here(), "call").unwrap();
        assert!(RUNNING.load(Ordering::SeqCst) > 0);
        drop(calling);
    }
}
