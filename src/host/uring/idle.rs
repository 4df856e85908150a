//! Idling a thread in its ring.

use super::handle::UringHandle;
use super::refusal::UringRefusal;
use super::ring::Ring;
use super::setup::{self, Kernel, RingMode, SetupCalls};
use super::unparker::Unparker;
use crate::core::idle::Idle;
use crate::core::line::CompletionLine;
use crate::core::time::{DurNs, MonoNs};
use crate::host::idling::{Idling, Sleeper};
use crate::host::std_clock::StdClock;
use crate::host::std_idle::policy::ParkPolicy;
use crate::host::std_idle::thread_token;
use alloc::{
    rc::Rc,
    string::{String, ToString},
    sync::Arc,
};
use core::fmt;
use core::task::Waker;

/// How many submissions a ring has room for where nothing else is asked for. More operations than
/// that can be in flight.
const ENTRIES: u32 = 256;

/// The time between two entries of the kernel that a busy executor aims at: some twenty to forty times
/// what one costs.
const BUSY_ENTER: DurNs = DurNs::from_us(20);

/// Idles the thread that made it in an `io_uring`, which also carries the program's own I/O.
///
/// # Sleeping
///
/// [`sleep_until`](Idle::sleep_until) is one wait in the ring with a deadline in nanoseconds on
/// `CLOCK_MONOTONIC`; operations that were queued are submitted by the same system call. It ends early
/// by the unparker and by the completion of an operation. The kernel does not apply the timer slack of
/// the thread to it, so that is left as it is.
///
/// The deadline is the wait's own (`IORING_ENTER_EXT_ARG`) rather than a timer operation: it needs no
/// entry, leaves no timer behind where something else ends the wait, and measured 0.2 to 1.3 us less
/// late at p50.
///
/// # Parking
///
/// [`park_line`](Idle::park_line) follows its [`ParkPolicy`]; its sleeps are waits in the ring, and a
/// completion of an operation ends it at any time.
///
/// # The unparker
///
/// As the one of [`StdIdle`](crate::host::StdIdle): one swap, and a system call only where the thread
/// waits in the ring. It is sticky.
///
/// # Operations
///
/// [`handle`](Self::handle) starts them. They go on while the thread idles here, and while an executor
/// runs with this idle: a busy one enters the ring every 20 us where there is something to submit or
/// to be taken. Their wakers are called by this thread, from within its sleep, park or look, with
/// nothing borrowed.
///
/// Handles and futures keep the ring. When the last of them is gone, what was dropped in flight is
/// waited for, 100 ms at the most; see [`uring_leaked`](super::uring_leaked) for the rest.
pub struct UringIdle {
    idling: Idling,
    ring: Rc<Ring>,
    unparker: Arc<Unparker>,
    mode: RingMode,
    /// When a busy executor last entered the kernel, by the executor's clock.
    busy_entered: Option<MonoNs>,
}

impl UringIdle {
    /// A ring for the calling thread, which parks by `policy`.
    ///
    /// # Errors
    ///
    /// Why there is no ring here.
    pub fn new(clock: StdClock, policy: ParkPolicy) -> Result<Self, UringRefusal> {
        UringIdle::with_entries(clock, policy, ENTRIES)
    }

    /// The same, with room for `entries` submissions (rounded up to a power of two): how many are
    /// handed to the kernel by one system call.
    ///
    /// # Errors
    ///
    /// Why there is no ring here.
    pub fn with_entries(
        clock: StdClock,
        policy: ParkPolicy,
        entries: u32,
    ) -> Result<Self, UringRefusal> {
        UringIdle::with_calls(clock, policy, entries, &Kernel)
    }

    /// The same, with `calls` between the set-up and the kernel: for tests of what a program does
    /// where a ring is refused or lacks something.
    ///
    /// # Errors
    ///
    /// Why there is no ring here.
    pub fn with_calls(
        clock: StdClock,
        policy: ParkPolicy,
        entries: u32,
        calls: &dyn SetupCalls,
    ) -> Result<Self, UringRefusal> {
        let (ring, unparker, mode) = Ring::new(setup::make(entries.max(2), calls)?);
        let ring = Rc::new(ring);
        let idling = Idling::new(clock, policy);
        Ok(UringIdle { idling, ring, unparker, mode, busy_entered: None })
    }

    /// A ring that parks by [`ParkPolicy::BALANCED`], and what to tell
    /// [`ExecutorCaps::io_uring`](crate::ExecutorCaps::io_uring).
    pub fn probe(clock: StdClock) -> (Result<Self, UringRefusal>, Result<(), String>) {
        let idle = UringIdle::new(clock, ParkPolicy::default());
        let caps = idle.as_ref().map(|_| ()).map_err(ToString::to_string);
        (idle, caps)
    }

    /// What starts operations on this ring.
    #[must_use]
    pub fn handle(&self) -> UringHandle {
        UringHandle { ring: self.ring.clone() }
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> StdClock {
        self.idling.clock
    }

    /// The policy of its parks.
    #[must_use]
    pub fn policy(&self) -> ParkPolicy {
        self.idling.policy
    }

    /// How the kernel hands completions over.
    #[must_use]
    pub fn mode(&self) -> RingMode {
        self.mode
    }
}

/// A thread that sleeps in its ring.
struct InRing<'a> {
    ring: &'a Ring,
    unparker: &'a Unparker,
}

impl Sleeper for InRing<'_> {
    fn take(&self) -> bool {
        self.unparker.state().take()
    }

    /// Whether an operation ended.
    #[inline]
    fn look(&self, may_enter: bool) -> bool {
        self.ring.has_io() && self.ring.poll(may_enter).0
    }

    fn sleep(&self, at: MonoNs) -> bool {
        let state = self.unparker.state();
        let reaped = state.fall_asleep().then(|| self.ring.wait(at));
        // Awake before any waker runs: one that unparks this thread costs no system call.
        let notified = state.rise();
        let ended = reaped.is_some_and(|reaped| self.ring.finish(reaped));
        notified || ended
    }
}

impl Idle for UringIdle {
    fn sleep_until(&mut self, at: MonoNs) {
        let ring = InRing { ring: &self.ring, unparker: &self.unparker };
        self.idling.sleep_until(&ring, at);
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        let ring = InRing { ring: &self.ring, unparker: &self.unparker };
        self.idling.park_line(&ring, line, ready, bound)
    }

    fn spin_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        let ring = InRing { ring: &self.ring, unparker: &self.unparker };
        self.idling.spin_line(&ring, line, ready, bound)
    }

    fn unparker(&self) -> Option<Waker> {
        Some(Waker::from(self.unparker.clone()))
    }

    fn thread_token(&self) -> Option<fn() -> usize> {
        Some(thread_token)
    }

    #[inline]
    fn has_io(&self) -> bool {
        self.ring.has_io()
    }

    fn poll_io(&mut self, now: MonoNs) -> bool {
        let may_enter = self.busy_entered.is_none_or(|last| now.since(last) >= BUSY_ENTER);
        let (ended, entered) = self.ring.poll(may_enter);
        if entered {
            self.busy_entered = Some(now);
        }
        ended
    }
}

impl fmt::Debug for UringIdle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringIdle")
            .field("clock", &self.idling.clock)
            .field("policy", &self.idling.policy)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}
