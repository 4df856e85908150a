//! The future of one sleep.

use super::Handle;
use super::board::Entry;
use crate::core::time::{DurNs, MonoNs};
use crate::monotonic;
use alloc::sync::Arc;
use core::fmt;
use core::hint;
use core::pin::Pin;
use core::task::{Context, Poll};

/// What is left to the deadline is spun within one poll where it is no longer than this: less than a
/// runtime takes to notice, and less than giving way and coming back would take once the thread
/// has gone to sleep.
const SPIN_IN_POLL: DurNs = DurNs::from_us(50);

/// Resolves at an instant or shortly after it, never before. Made by
/// [`PreciseTimer::sleep`](super::PreciseTimer::sleep).
///
/// `Send`, for any runtime. Dropping it takes it back.
#[must_use = "a future does nothing until it is awaited"]
pub struct PreciseSleep {
    timer: Arc<Handle>,
    at: MonoNs,
    state: State,
}

/// ```text
/// New --poll, before its time--> Set --taken down by the thread, polled--> Woken
///  '-----------'------------------'----------------------------------------'---> ready, at its time
/// ```
#[derive(Clone, Copy)]
enum State {
    New,
    Set(Entry),
    /// The thread has woken the task, or had no time to.
    Woken,
}

impl PreciseSleep {
    pub(super) fn new(timer: Arc<Handle>, at: MonoNs) -> Self {
        PreciseSleep { timer, at, state: State::New }
    }

    /// The instant.
    #[must_use]
    pub fn deadline(&self) -> MonoNs {
        self.at
    }

    /// Sets the sleep, with a waker that is cloned and, if need be, dropped without a lock.
    fn set(&mut self, cx: &Context<'_>) {
        let shared = &self.timer.0;
        let waker = cx.waker().clone();
        let (entry, earliest) = shared.board().set(self.at, waker);
        self.state = State::Set(entry);
        if earliest {
            shared.unparker.wake_by_ref();
        }
    }

    /// Sees to it that the task of `cx` is woken; `false` where the thread has taken the sleep down.
    fn is_set_for(&self, entry: Entry, cx: &Context<'_>) -> bool {
        let shared = &self.timer.0;
        let known = shared.board().would_wake(entry, cx.waker());
        if known != Some(false) {
            return known.is_some();
        }
        let waker = cx.waker().clone();
        let old = shared.board().replace_waker(entry, waker);
        // Where the thread took the sleep down in between, `old` is the new waker, and the one that
        // was woken is a task's that does not wait any more.
        let still = shared.board().would_wake(entry, cx.waker()).is_some();
        drop(old);
        still
    }

    fn unset(&mut self) {
        if let State::Set(entry) = self.state {
            self.state = State::Woken;
            let waker = self.timer.0.board().take_back(entry);
            drop(waker);
        }
    }
}

impl Future for PreciseSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let now = monotonic::now();
        let lead = &this.timer.0.lead;
        match this.state {
            _ if this.at == MonoNs::MAX => return Poll::Pending,
            State::New if this.at.since(now) > lead.get() => {
                this.set(cx);
                return Poll::Pending;
            }
            State::New => this.state = State::Woken,
            State::Set(entry) if this.is_set_for(entry, cx) => {
                if now < this.at {
                    return Poll::Pending;
                }
                this.unset();
            }
            State::Set(_) => {
                lead.observe(this.at, now);
                this.state = State::Woken;
            }
            State::Woken => {}
        }
        if this.at.since(now) > SPIN_IN_POLL {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        while monotonic::now() < this.at {
            hint::spin_loop();
        }
        Poll::Ready(())
    }
}

impl Drop for PreciseSleep {
    fn drop(&mut self) {
        self.unset();
    }
}

impl fmt::Debug for PreciseSleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreciseSleep").field("at", &self.at).finish_non_exhaustive()
    }
}
