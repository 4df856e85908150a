//! Watching words from a thread of its own, for tasks of any runtime.
//!
//! ```text
//!  poll of a Watch --> inbox --> [ thread on duty: lines, agenda --> status --> waker ] --> poll
//!  future.rs           inbox.rs    scan.rs         table.rs          entry.rs
//!                                  crew.rs, roster.rs, duty.rs: who is on duty
//! ```
//!
//! # Who asks the status, and what a status that hangs does
//!
//! A word is only a hint: no watch ends well before its status agreed. Asking on the awaiting task
//! would block its runtime where the driver hangs; handing the question to another thread would add
//! a thread's wake-up to every completion. So the thread that saw the word asks, at once, and what
//! protects everybody else is that *the thread can be replaced*: before any call of a user's code
//! it gives its tables back, and a spare thread that sees it in the same call for too long (see
//! [`WatchPolicy::patience`]) goes on with them. The thread in the call is given up and counted; it
//! delivers its answer should it ever return, and is the spare again. Each status is thus asked on
//! a thread that nobody waits for.
//!
//! A call that hangs delays other watches by the patience, once; it is not made again. What it was
//! asked for stays unanswered: that watch ends at its deadline, if it has one, or when the call
//! returns. Until then no other status of the same *device* is asked, so that a device that hangs
//! holds one thread, however many watches it has; watches of other devices go on as ever. Those of
//! the hanging device end at their deadlines; once the call has been away for half a second, and so
//! is not one that only waits for its turn on a busy machine, a watch whose status could not be
//! asked for a backstop ends with [`StatusStuck`](crate::ErrorCode::StatusStuck).
//!
//! Once [`WatchPolicy::stuck_max`] threads are stuck, of as many devices, the last one asks nobody any
//! more: it goes on waking what passes its deadline, and after half a second of that a watch whose
//! status cannot be asked for a backstop ends with that error. The same holds while the system
//! refuses a spare thread, which is asked for again once a patience.
//!
//! # One query a slot and backstop
//!
//! A slot is one in-order stream, whose numbers increase. So of all watches of a slot whose words
//! are silent, the one with the least number is asked once a backstop, for all of them: while it is
//! pending, so are the others. Once it is done or fails, the next one is asked at once, and so on
//! up to one that is pending: a fault ends all watches of a stream within one backstop.
//!
//! # Which thread calls what
//!
//! Statuses, wakers, and the destructors of both and of lines are called by the watcher's threads,
//! with no lock held, one at a time unless one is stuck. They may come back to the watcher. A panic
//! of a status is its watch's error; one of a waker or a destructor is counted.
//!
//! # Memory ordering
//!
//! A word is read by an acquire load, and what the status reads comes after it; the result is
//! handed over under a lock. So what the device wrote before its store, and what happened before
//! the status answered, is visible to whoever awaited the watch.
//!
//! # Costs
//!
//! A watch is one allocation and one push under a lock that few threads share; a wake of the thread
//! on duty only where that sleeps and has to do something earlier than it thought. The look at all
//! words costs two cache lines for each line that somebody waits on. A watch that is forgotten by
//! [`core::mem::forget`] keeps its line until it ends.

mod ages;
mod counters;
mod crew;
mod devices;
mod duty;
mod entry;
mod future;
mod inbox;
#[cfg(all(test, loom))]
mod model;
mod policy;
mod roster;
mod scan;
mod sync;
mod table;

pub use counters::WatchStats;
pub use future::Watch;
pub use policy::WatchPolicy;

use crate::core::error::{Error, Result};
use crate::core::idle::Idle;
use crate::core::line::OwnedDescriptor;
use crate::core::port::{DeviceStream, Waited};
use crate::core::time::{DurNs, MonoNs};
use crate::fork::Own;
use crate::host::{StdClock, StdIdle};
use crate::monotonic;
use alloc::sync::Arc;
use core::fmt;
use core::num::NonZeroUsize;
use core::sync::atomic::Ordering;
use core::task::Waker;
use scan::Shared;

/// What a [`Watch`] resolves to.
pub type WatchResult = Result<Waited, WatchError>;

/// Why a watch ended without completion.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchError {
    /// What the status answered.
    Status(Error),
    /// The deadline passed. The device may still be at work: keep what it uses, watch again.
    TimedOut(Waited),
    /// Nothing is known of the device: the watcher was dropped
    /// ([`WatcherClosed`](crate::ErrorCode::WatcherClosed)), the status cannot be asked
    /// ([`StatusStuck`](crate::ErrorCode::StatusStuck)), or this is a forked child
    /// ([`Forked`](crate::ErrorCode::Forked)).
    Watcher(Error),
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WatchError::Status(error) | WatchError::Watcher(error) => error.fmt(f),
            WatchError::TimedOut(waited) => {
                write!(f, "timed out after {} with the work still pending", waited.elapsed)
            }
        }
    }
}

impl core::error::Error for WatchError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            WatchError::Status(error) | WatchError::Watcher(error) => Some(error),
            WatchError::TimedOut(_) => None,
        }
    }
}

/// How often a watch asks its status, and how long it waits at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchOptions {
    backstop: DurNs,
    deadline: Option<MonoNs>,
    device: Option<NonZeroUsize>,
}

impl WatchOptions {
    /// Asks the status every `backstop`, at least 1 us, while the word is silent. No deadline, and
    /// the device of the stream or, of a plain word, that of its line.
    #[must_use]
    pub const fn new(backstop: DurNs) -> Self {
        let backstop = if backstop.0 < 1_000 { DurNs(1_000) } else { backstop };
        WatchOptions { backstop, deadline: None, device: None }
    }

    /// States which device the status asks: while a status call of one device does not return, no
    /// other status with the same `key` is asked. A stream states it itself
    /// ([`device_key`](DeviceStream::device_key)); without it, and with a key of 0, each line
    /// counts as a device of its own.
    #[must_use]
    pub const fn device(mut self, key: usize) -> Self {
        self.device = NonZeroUsize::new(key);
        self
    }

    /// Ends with [`WatchError::TimedOut`] once the process's monotonic clock ([`StdClock`]) shows
    /// `deadline`, after one more look.
    #[must_use]
    pub const fn deadline(mut self, deadline: MonoNs) -> Self {
        self.deadline = Some(deadline);
        self
    }
}

/// A background thread that awaits words for tasks of any runtime, and a spare one beside it.
///
/// Cheap to clone: the clones are handles of the same watcher. Its futures are `Send` and
/// `'static`; they do not keep it alive.
///
/// ```
/// use gpu_async_reactor::backend::software::SoftwareDevice;
/// use gpu_async_reactor::host::{WatchOptions, WatchPolicy, Watcher};
/// use gpu_async_reactor::{DeviceStream, DurNs, End};
/// # use std::{pin::pin, sync::Arc, task::{Context, Poll, Wake, Waker}, thread};
/// # struct Unpark(thread::Thread);
/// # impl Wake for Unpark { fn wake(self: Arc<Self>) { self.0.unpark(); } }
/// # fn block_on<F: Future>(future: F) -> F::Output {
/// #     let waker = Waker::from(Arc::new(Unpark(thread::current())));
/// #     let mut future = pin!(future);
/// #     loop {
/// #         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
/// #             Poll::Ready(output) => return output,
/// #             Poll::Pending => thread::park(),
/// #         }
/// #     }
/// # }
///
/// let stream = Arc::new(SoftwareDevice::new()?.stream()?);
/// let watcher = Watcher::new(WatchPolicy::BALANCED)?;
/// stream.delay(DurNs::from_us(300))?;
/// let number = stream.mark()?;
/// let watch = watcher.watch_stream(stream, number, WatchOptions::new(DurNs::from_ms(2)));
/// assert_eq!(block_on(watch).unwrap().end, End::Parked);
/// # Ok::<(), gpu_async_reactor::Error>(())
/// ```
///
/// # Its end
///
/// With the last handle the watcher ends: what is still watched resolves to
/// [`WatcherClosed`](crate::ErrorCode::WatcherClosed), also what is polled first after that. The
/// drop waits for the threads, twice the patience and 100 ms at the most, but not for those that
/// are stuck, and not where it happens on one of them.
///
/// # Forked children
///
/// In a child forked since it was made there are no threads: a watch resolves to
/// [`Forked`](crate::ErrorCode::Forked) at its next poll, and dropping a watch or the watcher
/// takes no lock, waits for nobody and drops nothing. A watcher made in the child works.
///
/// # Paused time
///
/// A runtime of tokio whose time is paused takes itself for idle while its tasks wait for a
/// watcher, as it does for anything outside of it, and moves its own time on to its next timer: a
/// `tokio::time::timeout` around a watch elapses at once. State a
/// [`deadline`](WatchOptions::deadline) there instead.
#[derive(Clone)]
pub struct Watcher(Own<Arc<Handle>>);

struct Handle(Arc<Shared>);

impl Watcher {
    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// A [`Backend`](crate::ErrorCode::Backend) error where the system refuses a thread.
    pub fn new(policy: WatchPolicy) -> Result<Self> {
        let policy = policy.clamped();
        let idle = StdIdle::with(StdClock::new(), policy.park);
        let unparker = idle.unparker().unwrap_or_else(|| Waker::noop().clone());
        let shared = Arc::new(Shared::new(policy, idle, unparker, crew::start_thread));
        let watcher = Watcher(Own::new(Arc::new(Handle(shared))));
        // From here on, an early return ends the thread that was started.
        crew::start(watcher.shared())?;
        Ok(watcher)
    }

    /// Watches the word of `descriptor`. `status` is the authority: it is asked once the word is
    /// reached and every backstop, on a thread of the watcher, and returns `true` once the work is
    /// done, or why it never will be.
    ///
    /// Watches of one slot are taken for those of one in-order stream: each backstop asks the one
    /// with the least number, and the next ones only after that is done or has failed.
    ///
    /// The word may come before the status agrees, which is then asked again after 1 us, and after
    /// an eighth more of the time since the word each time.
    pub fn watch<F: FnMut() -> Result<bool> + Send + 'static>(
        &self,
        descriptor: OwnedDescriptor,
        options: WatchOptions,
        status: F,
    ) -> Watch<F> {
        let shared = Own::of(self.0.birth(), self.shared().clone());
        Watch::new(shared, descriptor, options, status)
    }

    /// Watches the mark of `number` on `stream`, whose status is
    /// [`query_mark`](DeviceStream::query_mark). The watch keeps the stream alive; its last drop
    /// may happen on a thread of the watcher.
    pub fn watch_stream<S: DeviceStream + Send + Sync + ?Sized + 'static>(
        &self,
        stream: Arc<S>,
        number: u64,
        options: WatchOptions,
    ) -> Watch<impl FnMut() -> Result<bool> + Send + use<S>> {
        let line = stream.line().clone();
        let options = match options.device {
            Some(_) => options,
            None => options.device(stream.device_key()),
        };
        let descriptor = OwnedDescriptor { line, slot: stream.slot(), target: number };
        self.watch(descriptor, options, move || stream.query_mark(number))
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> WatchStats {
        self.shared().counters.get()
    }

    /// The age of the oldest watch that is pending; `None` if none is. Read at any time, whatever
    /// the device does: a program's health check. It is as of the last look of the thread on duty,
    /// so a watch that was just registered, ended or dropped may count for a slice of the policy,
    /// or a patience, more or less.
    #[must_use]
    pub fn oldest_pending(&self) -> Option<DurNs> {
        let began = MonoNs(self.shared().oldest.load(Ordering::Relaxed));
        (began != MonoNs::MAX).then(|| monotonic::now().since(began))
    }

    /// The policy, as it is followed.
    #[must_use]
    pub fn policy(&self) -> WatchPolicy {
        self.shared().policy
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let Handle(shared) = self;
        shared.inbox.close();
        shared.unparker.wake_by_ref();
        shared.crew.roster.wait_for_end(crew::end_bound(&shared.policy));
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher")
            .field("policy", &self.policy())
            .field("stats", &self.stats())
            .finish()
    }
}
