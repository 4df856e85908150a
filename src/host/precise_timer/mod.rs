//! A timer for tasks of any runtime that ends its sleeps close to their time.
//!
//! ```text
//!  PreciseSleep::poll --1--> board (by deadline) --3--> waker of the task --4--> poll: spin the rest,
//!        |                        ^                        ^                       paid from a budget
//!        '--2 only if earliest----|---> unparker           |
//!                                 '---- timer thread ------'   asleep until the earliest - lead
//! ```
//!
//! | edge | what | where |
//! |---|---|---|
//! | 1 | a poll before its time writes its deadline and waker on the board | [`sleep`] |
//! | 2 | it wakes the thread only if its deadline became the earliest | [`sleep`] |
//! | 3 | the thread takes down what is due, lets the lock go, and wakes in the order of the deadlines | [`thread`] |
//! | 4 | the task was woken by the *lead* before its time, and is late or early by a little | [`lead`] |
//!
//! # The interleaving that must not lose a sleep
//!
//! The thread looks at the board, finds nothing due before T, and goes to sleep until T; between
//! the look and the sleep a task writes an earlier deadline. The thread sleeps by [`StdIdle`],
//! whose unparker is sticky: used before the sleep, it makes the sleep return at once. That
//! protocol is model-checked (`tests/loom_unpark.rs`); everything else happens under the board's
//! lock.

mod board;
mod lead;
mod sleep;
mod thread;

pub use sleep::PreciseSleep;

use super::std_clock::StdClock;
use super::std_idle::{ParkPolicy, StdIdle};
use crate::core::error::{Error, Result};
use crate::core::idle::Idle;
use crate::core::time::{Clock, DurNs, MonoNs, Timer};
use crate::fork::Own;
use crate::monotonic;
use alloc::string::ToString;
use alloc::sync::Arc;
use board::Board;
use core::fmt;
use core::task::Waker;
use lead::Lead;
use std::sync::Mutex;

/// A clock and a timer for tasks of any runtime, tokio's first, by one thread of its own.
///
/// The timers of runtimes are made for time-outs: tokio's rounds up to a whole millisecond (15 ms
/// on Windows), so a predicted sleep of 200 us would end most of a millisecond late, on every wait.
/// This one ends its sleeps within some tens of microseconds of their time and never before it.
///
/// One timer serves any number of tasks on any number of threads and runtimes; clones are handles
/// of the same timer. Its time is that of [`StdClock`], not tokio's: pausing tokio's time does not
/// stop it.
///
/// ```
/// # fn main() -> gpu_async_reactor::Result<()> {
/// use gpu_async_reactor::{Clock, DurNs, host::PreciseTimer};
///
/// let timer = PreciseTimer::new()?;
/// let at = timer.monotonic_ns().after(DurNs::from_us(200));
/// let sleep = timer.sleep(at); // `Send`: may be awaited in a spawned task
/// # drop(sleep);
/// # Ok(())
/// # }
/// ```
///
/// # How close
///
/// A task is resumed by two wakes of the kernel in a row, the timer thread's and its own, each of
/// which takes 5 to 50 us. The timer therefore wakes a task early, by a *lead* that it learns from
/// how late the last ones were, and a task that is early spins for the rest within its poll: for 50
/// us at most, beyond which it takes turns with the other ready tasks of its runtime. A sleep that
/// is shorter than the lead from the beginning is spun as well.
///
/// All that spinning draws from one budget of the timer, of less than a quarter of a core beyond a
/// first millisecond, however many tasks sleep and however short their sleeps are
/// ([`spun`](Self::spun) reads it). A task that finds it used up is woken at its time instead of
/// before, and resumed later by those two wakes. The suite `sleep` of the benchmarks prints the
/// lateness and what it costs. [`with_longest_lead`](Self::with_longest_lead) bounds the lead; with
/// zero, no CPU is spent and tasks are resumed later by those two wakes.
///
/// # Costs
///
/// Nothing due: the thread is asleep in the kernel, without a period. A sleep costs O(log n) under
/// a lock; setting one wakes the thread only if its deadline became the earliest, dropping one
/// never does. It allocates only if there are more sleeps at a time than ever before.
///
/// # Its end
///
/// The thread ends once the last handle and the last sleep are gone; nobody waits for it. It does
/// not exist in a child process after `fork`, where handles and sleeps of the parent's take no lock
/// and a sleep blocks the thread that polls it: see [`PreciseSleep`]. A timer that is made in the
/// child works.
///
/// # Paused time
///
/// A runtime of tokio whose time is paused (`tokio::time::pause`) takes itself for idle while its
/// tasks wait for this timer, as it does for anything outside of it, and moves its own time on to
/// its next timer. A `tokio::time::timeout` of 10 s around a sleep of 5 ms by this timer thus
/// elapses at once. Under paused time use `TokioClock` (feature `tokio`).
#[derive(Clone)]
pub struct PreciseTimer {
    shared: Own<Arc<Handle>>,
}

/// Held by handles and sleeps, not by the thread.
struct Handle(Arc<Shared>);

/// What handles, sleeps and the thread share.
struct Shared {
    board: Mutex<Board>,
    lead: Lead,
    /// Of the thread's idle.
    unparker: Waker,
}

impl PreciseTimer {
    /// The longest lead unless told otherwise.
    const LONGEST_LEAD: DurNs = DurNs::from_us(150);

    /// Starts a timer and its thread.
    ///
    /// # Errors
    ///
    /// A [`Backend`](crate::ErrorCode::Backend) error where the system refuses the thread.
    pub fn new() -> Result<Self> {
        Self::with_longest_lead(Self::LONGEST_LEAD)
    }

    /// Starts a timer that wakes tasks at most `longest` before their time: the most that one sleep
    /// spins. With zero nobody spins. [`new`](Self::new) allows 150 us.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_longest_lead(longest: DurNs) -> Result<Self> {
        let idle = StdIdle::with(StdClock::new(), ParkPolicy::default());
        let unparker = idle.unparker().expect("this idle has one");
        let lead = Lead::new(longest);
        let shared = Arc::new(Shared { board: Mutex::new(Board::default()), lead, unparker });
        let of_thread = shared.clone();
        std::thread::Builder::new()
            .name("precise-timer".to_string())
            .spawn(move || thread::keep_time(&of_thread, idle))
            .map_err(|error| Error::backend("start a timer thread", error.to_string()))?;
        Ok(PreciseTimer { shared: Own::new(Arc::new(Handle(shared))) })
    }

    /// A sleep until `at`. It is set at its first poll; dropping it takes it back.
    pub fn sleep(&self, at: MonoNs) -> PreciseSleep {
        PreciseSleep::new(self.shared.clone(), at)
    }

    /// How much before their time tasks are woken at present, if the budget allows it.
    #[must_use]
    pub fn lead(&self) -> DurNs {
        self.shared.0.lead.get()
    }

    /// How long tasks have spun in all, at most: what was taken out of the budget.
    #[must_use]
    pub fn spun(&self) -> DurNs {
        self.shared.0.lead.spun()
    }

    /// Number of sleeps that are set. 0 in a child that was forked since the timer was made.
    #[must_use]
    pub fn pending(&self) -> usize {
        if self.shared.birth().is_forked() { 0 } else { self.shared.0.board().len() }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.board().close();
        self.0.unparker.wake_by_ref();
    }
}

impl Clock for PreciseTimer {
    #[inline]
    fn monotonic_ns(&self) -> MonoNs {
        monotonic::now()
    }
}

impl Timer for PreciseTimer {
    async fn sleep_until(&self, at: MonoNs) {
        self.sleep(at).await;
    }
}

impl fmt::Debug for PreciseTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreciseTimer")
            .field("lead", &self.lead())
            .field("pending", &self.pending())
            .finish()
    }
}
