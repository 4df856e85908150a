//! Idling a thread with what the standard library's systems offer: precise sleeps, parks by a
//! stated policy, both ended from any thread.

pub(in crate::host) mod hardware;
pub(in crate::host) mod policy;
pub(in crate::host) mod state;

pub use policy::ParkPolicy;
#[cfg(loom)]
pub use state::IdleState;

use super::idling::{Check, Idling, Sleeper};
use super::kernel::Bed;
use super::std_clock::StdClock;
use crate::core::idle::Idle;
use crate::core::line::CompletionLine;
use crate::core::plan::HostCaps;
use crate::core::time::{DurNs, MonoNs};
use alloc::{string::String, sync::Arc, task::Wake};
use core::cell::Cell;
use core::fmt;
use core::sync::atomic::AtomicU32;
use core::task::Waker;
use hardware::HardwarePark;
#[cfg(not(loom))]
use state::IdleState;

/// Idles one thread at a time, over a [`StdClock`].
///
/// # Sleeping
///
/// [`sleep_until`](Idle::sleep_until) is an absolute futex wait on `CLOCK_MONOTONIC`, with the
/// timer slack of the thread lowered to 1 ns meanwhile (see [`StdClock`], which also keeps it if
/// told to). It never ends early but by the unparker, and late by the kernel's wake-up: 4 to 10 us
/// at p50 with 1 ns of slack and 54 to 60 us with the usual 50 us, on a virtual machine with two
/// cores (the test `a_sleep_never_ends_early` in `tests/std_idle.rs` prints it); deeper idle states
/// of a CPU add to that. Elsewhere it waits on a condition variable.
///
/// # Parking
///
/// [`park_line`](Idle::park_line) parks in hardware where [`probe`](Self::probe) found that the CPU
/// can, and else follows its [`ParkPolicy`]. `ready` is called by the parking thread, with no lock
/// held. The unparker does not store to the line: a park in hardware is ended by a foreign wake
/// because an executor's waker rings the doorbell, whose line is what is monitored, before it uses
/// the unparker. Without a doorbell the bound ends it.
///
/// # The unparker
///
/// One word, shared by the idle and the wakers of [`unparker`](Idle::unparker), each a reference
/// count. Waking is one swap, and a futex wake only where the thread sleeps in the kernel. It is
/// sticky: with the thread awake, the next sleep or park returns at once. A waker of an earlier
/// executor over the same idle can end a sleep of the present one, which looks at its own ready set
/// and sleeps again; no executor can use up what concerns another, since what it has to do stands
/// in that one's ready set. What happened before a wake is visible after the sleep that it ended.
pub struct StdIdle {
    idling: Idling,
    /// Parks instead of the policy; or why there is none.
    hardware: Result<HardwarePark, Arc<str>>,
    unparker: Arc<Unparker>,
}

impl StdIdle {
    /// An idle that parks by `policy` and never in hardware.
    #[must_use]
    pub fn with(clock: StdClock, policy: ParkPolicy) -> Self {
        StdIdle::parking(clock, policy, Err("it was made to park by its policy alone".into()))
    }

    fn parking(
        clock: StdClock,
        policy: ParkPolicy,
        hardware: Result<HardwarePark, Arc<str>>,
    ) -> Self {
        let unparker = Arc::new(Unparker(Bed::new(0)));
        StdIdle { idling: Idling::new(clock, policy), hardware, unparker }
    }

    /// An idle that parks as well as this host can, and what the host offers to wait plans: in
    /// hardware where the CPU has an instruction for it that passes its self-test, else by
    /// [`ParkPolicy::BALANCED`], with [`HostCaps::device_word_wait`] saying what is missing. A
    /// `flag` plan then resolves to `poll`. Costs 2 to 4 ms where there is an instruction.
    #[must_use]
    pub fn probe(clock: StdClock) -> (StdIdle, HostCaps) {
        let hardware = HardwarePark::probe().map_err(Arc::from);
        let idle = StdIdle::parking(clock, ParkPolicy::default(), hardware);
        let caps = idle.host_caps();
        (idle, caps)
    }

    /// The same idle, which parks by `policy` if the hardware cannot.
    #[must_use]
    pub fn parking_by(mut self, policy: ParkPolicy) -> Self {
        self.idling = Idling::new(self.clock(), policy);
        self
    }

    /// What this idle offers to wait plans: what a plan resolves to with these is how it parks.
    #[must_use]
    pub fn host_caps(&self) -> HostCaps {
        caps_of(&self.hardware)
    }

    /// Its park in hardware, or why there is none.
    #[allow(dead_code, reason = "for an idle in a ring")]
    pub(in crate::host) fn hardware(&self) -> &Result<HardwarePark, Arc<str>> {
        &self.hardware
    }

    /// Another idle that parks as this one does, with an unparker of its own.
    #[must_use]
    pub fn another(&self) -> Self {
        StdIdle::parking(self.clock(), self.policy(), self.hardware.clone())
    }

    /// Whether parks are in hardware.
    #[must_use]
    pub fn parks_in_hardware(&self) -> bool {
        self.hardware.is_ok()
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
}

/// A thread that sleeps in a futex wait.
struct InBed<'a> {
    clock: StdClock,
    unparker: &'a Unparker,
}

impl Sleeper for InBed<'_> {
    fn take(&self) -> bool {
        self.unparker.state().take()
    }

    fn sleep(&self, at: MonoNs) -> bool {
        // Before the state says that the thread sleeps, from where on a notifier enters the kernel.
        let _slack = self.clock.low_slack(at);
        let state = self.unparker.state();
        if state.fall_asleep() {
            self.unparker.0.sleep(state::ASLEEP, at);
        }
        state.rise()
    }
}

impl StdIdle {
    /// [`park_line`](Idle::park_line) with more than one reason to end: see [`Check`].
    pub(in crate::host) fn park<R: Fn(&CompletionLine) -> Check>(
        &mut self,
        line: &CompletionLine,
        check: R,
        bound: DurNs,
    ) -> bool {
        let bed = InBed { clock: self.idling.clock, unparker: &self.unparker };
        let Ok(hardware) = self.hardware else {
            return self.idling.park(&bed, line, check, bound);
        };
        self.idling.interrupt();
        let state = self.unparker.state();
        hardware.park(line, |line| state.is_notified() || check(line) != Check::Pending, bound);
        state.take();
        check(line) == Check::Ready
    }
}

impl Idle for StdIdle {
    fn sleep_until(&mut self, at: MonoNs) {
        let bed = InBed { clock: self.idling.clock, unparker: &self.unparker };
        self.idling.sleep_until(&bed, at);
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        let check = |line: &CompletionLine| if ready(line) { Check::Ready } else { Check::Pending };
        self.park(line, check, bound)
    }

    fn spin_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        let bed = InBed { clock: self.idling.clock, unparker: &self.unparker };
        self.idling.spin_line(&bed, line, ready, bound)
    }

    fn unparker(&self) -> Option<Waker> {
        Some(Waker::from(self.unparker.clone()))
    }

    fn thread_token(&self) -> Option<fn() -> usize> {
        Some(thread_token)
    }
}

/// What a park in hardware, or the lack of one, means for wait plans.
pub(in crate::host) fn caps_of(hardware: &Result<HardwarePark, Arc<str>>) -> HostCaps {
    let device_word_wait = hardware.as_ref().map(|_| ()).map_err(|why| String::from(&**why));
    HostCaps { device_word_wait }
}

/// The address of a byte of the calling thread: no other live thread has one there.
pub(in crate::host) fn thread_token() -> usize {
    std::thread_local! {
        // A cell, so that nothing may take it for a constant and give all threads one place.
        static TOKEN: Cell<u8> = const { Cell::new(0) };
    }
    TOKEN.with(|byte| core::ptr::from_ref(byte).addr())
}

impl fmt::Debug for StdIdle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdIdle")
            .field("clock", &self.idling.clock)
            .field("policy", &self.idling.policy)
            .finish_non_exhaustive()
    }
}

/// The word that the idling thread sleeps on.
struct Unparker(Bed);

impl Unparker {
    fn state(&self) -> IdleState<&AtomicU32> {
        IdleState(self.0.word())
    }
}

impl Wake for Unparker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state().notify() {
            self.0.wake();
        }
    }
}
