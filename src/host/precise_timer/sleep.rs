//! The future of one sleep.

use super::Handle;
use crate::core::reactor::waiters::Registration;
use crate::core::time::{DurNs, MonoNs};
use crate::fork::Own;
use crate::host::{StdClock, kernel};
use crate::monotonic;
use alloc::sync::Arc;
use core::fmt;
use core::hint;
use core::pin::Pin;
use core::task::{Context, Poll};

/// What is left to the deadline is spun within one poll if it is no longer than this: less than a
/// runtime takes to notice, and less than giving way and coming back would take once the thread
/// has gone to sleep.
const SPIN_IN_POLL: DurNs = DurNs::from_us(50);

/// Resolves at an instant or shortly after it, never before. Made by
/// [`PreciseTimer::sleep`](super::PreciseTimer::sleep).
///
/// `Send`, for any runtime. Dropping it takes it back.
///
/// In a child forked since the timer was made there is no thread that would wake the task. A sleep
/// that is polled there blocks the thread until its time, in the kernel, and is ready then; one
/// until [`MonoNs::MAX`] stays pending, as everywhere. Dropping it there takes no lock.
#[must_use = "a future does nothing until it is awaited"]
pub struct PreciseSleep {
    timer: Own<Arc<Handle>>,
    at: MonoNs,
    state: State,
}

/// ```text
///                        .-- taken down, polled: more left than may be spun --.
///                        v                                                     |
/// New --poll: more left than may be spun--> Set -------------------------------'
///  |                                         |
///  '--poll: the rest is paid for--> Paid <---'--> ready, at its time
/// ```
#[derive(Clone, Copy)]
enum State {
    New,
    Set {
        sleep: Registration,
        /// More than the lead was left, so that its end says how long wakes take.
        telling: bool,
    },
    /// What is left may be spun away.
    Paid,
}

impl PreciseSleep {
    pub(super) fn new(timer: Own<Arc<Handle>>, at: MonoNs) -> Self {
        PreciseSleep { timer, at, state: State::New }
    }

    /// The instant.
    #[must_use]
    pub fn deadline(&self) -> MonoNs {
        self.at
    }

    /// Sets the sleep, with a waker that is cloned and, if need be, dropped without a lock.
    fn set(&mut self, cx: &Context<'_>, telling: bool) {
        let shared = &self.timer.0;
        let waker = cx.waker().clone();
        let (sleep, earliest) = shared.board().set(self.at, waker);
        self.state = State::Set { sleep, telling };
        if earliest {
            shared.unparker.wake_by_ref();
        }
    }

    /// Sees to it that the task of `cx` is woken; `false` if the thread has taken the sleep down.
    fn is_set_for(&self, sleep: Registration, cx: &Context<'_>) -> bool {
        let shared = &self.timer.0;
        let known = shared.board().would_wake(sleep, cx.waker());
        if known != Some(false) {
            return known.is_some();
        }
        let waker = cx.waker().clone();
        let old = shared.board().replace_waker(sleep, waker);
        // If the thread took the sleep down in between, `old` is the new waker, and the one that
        // was woken is a task's that does not wait any more.
        let still = shared.board().would_wake(sleep, cx.waker()).is_some();
        drop(old);
        still
    }

    fn unset(&mut self) {
        if let State::Set { sleep, .. } = self.state {
            self.state = State::Paid;
            let waker = self.timer.0.board().take_back(sleep);
            drop(waker);
        }
    }
}

impl Future for PreciseSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.at == MonoNs::MAX {
            return Poll::Pending;
        }
        if this.timer.birth().is_forked() {
            let _slack = StdClock::new().low_slack(this.at);
            kernel::sleep_until(this.at);
            return Poll::Ready(());
        }
        let now = monotonic::now();
        let left = this.at.since(now);
        let lead = &this.timer.0.lead;
        let due = match this.state {
            State::New => true,
            State::Set { sleep, .. } if this.is_set_for(sleep, cx) => left == DurNs::ZERO,
            State::Set { telling, .. } => {
                if telling {
                    lead.observe(this.at, now);
                }
                true
            }
            State::Paid => true,
        };
        if !due {
            return Poll::Pending;
        }
        if left == DurNs::ZERO {
            this.unset();
            return Poll::Ready(());
        }
        if !matches!(this.state, State::Paid) {
            if !lead.take(now, left) {
                let telling = left > lead.get();
                this.set(cx, telling);
                return Poll::Pending;
            }
            this.state = State::Paid;
        }
        if left > SPIN_IN_POLL {
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
        if !self.timer.birth().is_forked() {
            self.unset();
        }
    }
}

impl fmt::Debug for PreciseSleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreciseSleep").field("at", &self.at).finish_non_exhaustive()
    }
}
