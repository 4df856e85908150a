//! Sleeping in the kernel until an instant, or until a word is changed and woken.

use crate::core::time::MonoNs;
use crate::monotonic;
use core::sync::atomic::AtomicU32;

/// Blocks the thread until `at`.
pub(super) fn sleep_until(at: MonoNs) {
    let nobody_wakes = Bed::new(0);
    while monotonic::now() < at {
        nobody_wakes.sleep(0, at);
    }
}

/// A word that one thread sleeps on and others wake.
pub(super) use bed::Bed;

#[cfg(target_os = "linux")]
mod bed {
    use super::{AtomicU32, MonoNs};
    use core::num::NonZeroU32;
    use rustix::thread::futex::{self, Flags};
    use rustix::time::Timespec;

    #[derive(Debug)]
    pub(in crate::host) struct Bed(AtomicU32);

    impl Bed {
        pub(in crate::host) fn new(word: u32) -> Self {
            Bed(AtomicU32::new(word))
        }

        pub(in crate::host) fn word(&self) -> &AtomicU32 {
            &self.0
        }

        /// Sleeps while the word is `expected`, until `at`, or less. The kernel compares and falls
        /// asleep as one step, so a change followed by a wake is never missed.
        pub(in crate::host) fn sleep(&self, expected: u32, at: MonoNs) {
            let deadline = Timespec {
                // `MAX`, 584 years, is within the range of 64-bit seconds; where they have fewer,
                // the sleep ends early, as it may.
                tv_sec: (at.0 / 1_000_000_000).try_into().unwrap_or(i32::MAX.into()),
                tv_nsec: (at.0 % 1_000_000_000) as _,
            };
            // On `CLOCK_MONOTONIC`, absolute. It ends by a wake, a changed word, the time or a
            // signal: the caller looks at the word and the clock in each case.
            let _ = futex::wait_bitset(
                &self.0,
                Flags::PRIVATE,
                expected,
                Some(&deadline),
                NonZeroU32::MAX,
            );
        }

        /// Wakes the sleeper. The word was changed before.
        pub(in crate::host) fn wake(&self) {
            // Fails on addresses only, and this one is valid.
            let _ = futex::wake(&self.0, Flags::PRIVATE, 1);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod bed {
    use super::{AtomicU32, MonoNs};
    use crate::monotonic;
    use core::sync::atomic::Ordering;
    use core::time::Duration;
    use std::sync::{Condvar, Mutex, PoisonError};

    /// A condition variable, not the thread's park token: that one belongs to the whole thread and
    /// may be used by anything else that runs on it.
    #[derive(Debug)]
    pub(in crate::host) struct Bed {
        word: AtomicU32,
        lock: Mutex<()>,
        changed: Condvar,
    }

    impl Bed {
        pub(in crate::host) fn new(word: u32) -> Self {
            Bed { word: AtomicU32::new(word), lock: Mutex::new(()), changed: Condvar::new() }
        }

        pub(in crate::host) fn word(&self) -> &AtomicU32 {
            &self.word
        }

        /// Sleeps while the word is `expected`, until `at`, or less. A change that comes between the
        /// look and the wait is followed by a wake, which has to wait for the lock.
        pub(in crate::host) fn sleep(&self, expected: u32, at: MonoNs) {
            let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            if self.word.load(Ordering::Relaxed) == expected {
                // A day at the most: not every system adds longer times to its clock.
                let left = Duration::from(at.since(monotonic::now()));
                let left = left.min(Duration::from_secs(86_400));
                drop(self.changed.wait_timeout(guard, left));
            }
        }

        /// Wakes the sleeper. The word was changed before.
        pub(in crate::host) fn wake(&self) {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.changed.notify_one();
        }
    }
}
