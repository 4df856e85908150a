//! Hosts: where a thread's time comes from and how it idles. The only place that knows the standard
//! library's clocks and threads.
//!
//! [`StdClock`] tells the time and sleeps; [`StdIdle`] idles a thread for a reactor; [`Runtime`] is the
//! object most programs use, built from two strings. For tasks of other runtimes: [`Watcher`] awaits
//! words, and [`PreciseTimer`] sleeps where their own timers are too coarse for a predicted wait.
//!
//! # System calls
//!
//! On Linux, all through the crate `rustix`, without unsafe code here: `clock_gettime` (a vDSO read),
//! `futex` with `FUTEX_WAIT_BITSET` and an absolute deadline on `CLOCK_MONOTONIC`, `futex` with
//! `FUTEX_WAKE`, and `prctl` with `PR_GET_TIMERSLACK` and `PR_SET_TIMERSLACK`. Elsewhere what
//! [`std::time`] and [`std::sync`] offer.
#![deny(unsafe_code)]

/// The feature `io-uring`, on the systems that have it.
macro_rules! where_io_uring {
    ($($item:item)*) => { $(
        #[cfg(all(
            feature = "io-uring",
            target_os = "linux",
            target_pointer_width = "64",
            any(
                target_arch = "x86_64",
                target_arch = "aarch64",
                target_arch = "riscv64",
                target_arch = "loongarch64",
                target_arch = "powerpc64"
            )
        ))]
        $item
    )* };
}

/// Elsewhere.
macro_rules! where_no_io_uring {
    ($($item:item)*) => { $(
        #[cfg(not(all(
            feature = "io-uring",
            target_os = "linux",
            target_pointer_width = "64",
            any(
                target_arch = "x86_64",
                target_arch = "aarch64",
                target_arch = "riscv64",
                target_arch = "loongarch64",
                target_arch = "powerpc64"
            )
        )))]
        $item
    )* };
}

mod budget;
mod idling;
mod kernel;
mod precise_timer;
mod runtime;
mod std_clock;
mod std_idle;
#[cfg(feature = "tokio")]
mod tokio_clock;
mod uring_caps;
mod watcher;

pub use precise_timer::{PreciseSleep, PreciseTimer};
pub use runtime::{
    Handle, PointStats, Runtime, RuntimeBuilder, RuntimeHealth, RuntimePort, RuntimeStats, Spawned,
    executor_caps,
};
pub use std_clock::{StdClock, thread_cpu_time};
/// For the model checker's tests.
#[cfg(loom)]
#[doc(hidden)]
pub use std_idle::IdleState;
pub use std_idle::{ParkPolicy, StdIdle};
#[cfg(feature = "tokio")]
pub use tokio_clock::TokioClock;
pub use uring_caps::io_uring_caps;

pub use watcher::{Watch, WatchError, WatchOptions, WatchPolicy, WatchResult, WatchStats, Watcher};

where_io_uring! {
    pub mod uring;
    pub use uring::{UringHandle, UringIdle, UringRefusal};
}
