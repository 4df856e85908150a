//! Idling a thread in its ring.

use super::handle::UringHandle;
use super::refusal::UringRefusal;
use super::ring::Ring;
use super::setup::{self, Kernel, RingMode, SetupCalls};
use super::unparker::Unparker;
use crate::core::idle::Idle;
use crate::core::line::CompletionLine;
use crate::core::plan::HostCaps;
use crate::core::time::{Clock, DurNs, MonoNs};
use crate::host::idling::{Idling, Sleeper};
use crate::host::std_clock::StdClock;
use crate::monotonic;
use crate::host::std_idle::policy::ParkPolicy;
use crate::host::std_idle::hardware::HardwarePark;
use crate::host::std_idle::{StdIdle, caps_of, thread_token};
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

/// How long a park in hardware lasts at most while I/O is under way: its completions end no such park,
/// so they are looked for in between. As much as a busy executor takes.
const PARK_BESIDE_IO: DurNs = BUSY_ENTER;

/// How long a thread sleeps at most while operations of a lost ring are with the kernel still.
const AWAITING_RELEASE: DurNs = DurNs::from_ms(2);

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
/// [`park_line`](Idle::park_line) parks in hardware if the idle was made
/// [like one](Self::parking_like) that does, as that of a [`Runtime`](crate::host::Runtime) is; while
/// I/O is under way 20 us at a time, with a look at the completions in between. Else it follows its
/// [`ParkPolicy`]; its sleeps are waits in the ring, and a completion of an operation ends it at any
/// time.
///
/// # The unparker
///
/// As the one of [`StdIdle`]: one swap, and a system call only where the thread
/// waits in the ring. It is sticky.
///
/// # Operations
///
/// [`handle`](Self::handle) starts them. They go on while the thread idles here, and while an executor
/// runs with this idle: a busy one enters the ring every 20 us where there is something to submit or
/// to be taken. Their wakers are called by this thread, from within its sleep, park or look, with
/// nothing borrowed, and what dropped operations held is freed there. The sleep or park returns after
/// that. A panic of one of these is counted ([`UringStats::panics`](super::UringStats::panics)) and
/// goes no further.
///
/// # Without the ring
///
/// Where the kernel refuses the ring after it was made (a sandbox that is entered late, a restored
/// checkpoint), and in a child that was forked, the thread sleeps on a futex as that of
/// [`StdIdle`] does, with the timer slack that it has. See [`Op`](super::Op) for
/// the operations, and [`UringHandle::lost`] for the reason.
///
/// Handles and futures keep the ring. When the last of them is gone, what was dropped in flight is
/// waited for, 100 ms at the most; see [`uring_leaked`](super::uring_leaked) for the rest.
pub struct UringIdle {
    idling: Idling,
    /// Parks instead of the policy; or why there is none.
    hardware: Result<HardwarePark, Arc<str>>,
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
        let hardware = Err("it was made to park by its policy alone".into());
        Ok(UringIdle { idling, hardware, ring, unparker, mode, busy_entered: None })
    }

    /// The same ring, whose thread parks as that of `idle` does: in hardware where it does, and else by
    /// its policy. Probing for hardware is that idle's.
    #[must_use]
    pub fn parking_like(mut self, idle: &StdIdle) -> Self {
        self.hardware = idle.hardware().clone();
        self.idling = Idling::new(self.clock(), idle.policy());
        self
    }

    /// What this idle offers to wait plans: what a plan resolves to with these is how it parks.
    #[must_use]
    pub fn host_caps(&self) -> HostCaps {
        caps_of(&self.hardware)
    }

    /// Whether parks are in hardware.
    #[must_use]
    pub fn parks_in_hardware(&self) -> bool {
        self.hardware.is_ok()
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

    #[cfg(all(test, not(loom)))]
    pub(super) fn unparker_for_tests(&self) -> Arc<Unparker> {
        self.unparker.clone()
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

    /// Whether an operation ended, so that code of the program ran.
    #[inline]
    fn look(&self, may_enter: bool) -> bool {
        self.ring.has_io() && self.ring.poll(may_enter).0
    }

    fn sleep(&self, at: MonoNs) -> bool {
        if !self.ring.serves() {
            return self.sleep_without_ring(at);
        }
        let state = self.unparker.state();
        let reaped = state.fall_asleep().then(|| self.ring.wait(at));
        // Awake before any waker runs: one that unparks this thread costs no system call.
        let notified = state.rise();
        let ran = reaped.is_some_and(|reaped| self.ring.finish(reaped));
        notified || ran
    }
}

impl InRing<'_> {
    /// Sleeps on the unparker's word, after the ring was lost or in a forked child.
    fn sleep_without_ring(&self, at: MonoNs) -> bool {
        let at = match self.ring.awaits_release() {
            true => at.min(monotonic::now().after(AWAITING_RELEASE)),
            false => at,
        };
        let state = self.unparker.state();
        if state.fall_asleep() {
            self.unparker.sleep(at);
        }
        let notified = state.rise();
        notified || self.ring.poll(true).0
    }

    /// Parks in hardware, ended by whatever ends a park in the ring.
    fn park_in_hardware<R: Fn(&CompletionLine) -> bool>(
        &self,
        hardware: HardwarePark,
        clock: StdClock,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        let state = self.unparker.state();
        let mut left = bound;
        let end = clock.monotonic_ns().after(bound);
        loop {
            // Submits what is queued, before the thread parks.
            if self.look(true) {
                return ready(line);
            }
            let slice = if self.ring.has_io() { left.min(PARK_BESIDE_IO) } else { left };
            hardware.park(line, |line| state.is_notified() || ready(line), slice);
            if state.take() || ready(line) {
                return ready(line);
            }
            left = end.since(clock.monotonic_ns());
            if left == DurNs::ZERO {
                return false;
            }
        }
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
        let Ok(hardware) = self.hardware else {
            return self.idling.park_line(&ring, line, ready, bound);
        };
        self.idling.interrupt();
        ring.park_in_hardware(hardware, self.idling.clock, line, ready, bound)
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
