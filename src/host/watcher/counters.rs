//! What a watcher counts.

use core::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a [`Watcher`](super::Watcher) has done since it was made.
        ///
        /// The counts are read one after the other while the watcher goes on.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        #[non_exhaustive]
        pub struct WatchStats {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The counts. Relaxed: a count orders nothing.
        #[derive(Default)]
        pub(super) struct Counters {
            $(pub(super) $name: AtomicU64,)*
        }

        impl Counters {
            pub(super) fn get(&self) -> WatchStats {
                WatchStats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Watches that the thread on duty has taken up.
    registered,
    /// Watches that ended because the work was done, backstops included.
    completed,
    /// Completions that a backstop saw while the word had not moved: lost or late stores.
    backstop_completions,
    /// Watches that ended with an error.
    errors,
    /// Watches whose deadline passed.
    timed_out,
    /// Watches whose future was dropped before they ended.
    dropped,
    /// Calls of a status.
    queries,
    /// Calls that were given up because they did not return in time. Each cost a thread, until it
    /// came back. On a machine whose cores are taken that may be one that was only waiting for its
    /// turn, which harms nobody.
    abandoned,
    /// Calls that returned after they were given up.
    returned,
    /// Wakes of the sleeping thread on duty by a registration or by a call that returned late.
    wakes,
    /// Wakers and destructors that panicked.
    panics,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
