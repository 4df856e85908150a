//! Hosts: where a thread's time comes from and how it idles. The only place that knows the standard
//! library's clocks and threads.
//!
//! [`StdClock`] tells the time and sleeps; [`StdIdle`] idles a thread for a reactor; [`PreciseTimer`] is
//! the timer of tasks on any runtime whose own timers are too coarse for a predicted wait; [`Runtime`] is
//! the object most programs use, built from two strings; [`Watcher`] awaits words for tasks of other
//! runtimes.
//!
//! # System calls
//!
//! On Linux, all through the crate `rustix`, without unsafe code here: `clock_gettime` (a vDSO read),
//! `futex` with `FUTEX_WAIT_BITSET` and an absolute deadline on `CLOCK_MONOTONIC`, `futex` with
//! `FUTEX_WAKE`, and `prctl` with `PR_SET_TIMERSLACK`. Elsewhere what [`std::time`] and [`std::sync`]
//! offer.
#![forbid(unsafe_code)]

mod kernel;
mod precise_timer;
mod runtime;
mod std_clock;
mod std_idle;
#[cfg(feature = "tokio")]
mod tokio_clock;
mod watcher;

pub use precise_timer::{PreciseSleep, PreciseTimer};
pub use runtime::{
    Handle, PointStats, Runtime, RuntimeBuilder, RuntimePort, RuntimeStats, Spawned, executor_caps,
};
pub use std_clock::{StdClock, thread_cpu_time};
/// For the model checker's tests.
#[cfg(loom)]
#[doc(hidden)]
pub use std_idle::IdleState;
pub use std_idle::{ParkPolicy, StdIdle};
#[cfg(feature = "tokio")]
pub use tokio_clock::TokioClock;
pub use watcher::{Watch, WatchError, WatchOptions, WatchPolicy, WatchResult, WatchStats, Watcher};
