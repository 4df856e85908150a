//! Making a ring, or finding out why there is none.
//!
//! Everything that the ring will need is asked for and tried here, once: a sandbox may allow
//! `io_uring_setup` and refuse `io_uring_enter`. Later errors are the operations' own.

use super::refusal::UringRefusal;
use super::release::Release;
use super::unparker::Bell;
use io_uring::{IoUring, Probe, opcode};
use alloc::boxed::Box;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::io;

/// How the kernel runs what is left to do of a completion on the thread that owns the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RingMode {
    /// When the thread enters the ring to look for it (Linux 6.1).
    Deferred,
    /// At the thread's next system call, without an interrupt (Linux 5.19).
    Cooperative,
    /// At once, by an interrupt.
    Plain,
}

/// A step of the set-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SetupCall {
    /// `io_uring_setup`. A mode that is refused with EINVAL is followed by the next one.
    Setup(RingMode),
    /// `io_uring_register`, which returns what operations there are.
    Register,
    /// `io_uring_enter`, with one operation that ends at once.
    Enter,
}

impl SetupCall {
    fn name(self) -> &'static str {
        match self {
            SetupCall::Setup(_) => "io_uring_setup",
            SetupCall::Register => "io_uring_register",
            SetupCall::Enter => "io_uring_enter",
        }
    }
}

/// What a ring may need of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RingNeed {
    /// Waits with a time-out, no lost completions, arguments read at submission (Linux 5.11).
    Waits,
    /// The operations of [`UringHandle`](super::UringHandle), all of them (Linux 5.11).
    Operations,
    /// Waits until an instant rather than for a time (Linux 6.12). Without: for a time.
    InstantWaits,
    /// Futex waits (Linux 6.7). Without: an event counter.
    FutexWaits,
}

/// Stands between the set-up and the kernel. [`Kernel`] changes nothing; a test injects what another
/// kernel or a sandbox would answer.
pub trait SetupCalls {
    /// Asked right before each system call. An error takes the call's place.
    ///
    /// # Errors
    ///
    /// What the system call is to answer.
    fn before(&self, call: SetupCall) -> io::Result<()> {
        let _ = call;
        Ok(())
    }

    /// The value of `kernel.io_uring_disabled`, where it can be read.
    fn disabled_sysctl(&self) -> Option<u32> {
        let text = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?;
        text.trim().parse().ok()
    }

    /// Whether the kernel has what is needed; `found` is what it says itself.
    fn has(&self, need: RingNeed, found: bool) -> bool {
        let _ = need;
        found
    }

    /// What stands between the kernel and each `io_uring_enter` after the set-up. Default: nothing.
    fn later_enters(&self) -> Option<BeforeEnter> {
        None
    }
}

/// Called right before each `io_uring_enter` after the set-up, with its number, from 1. An error takes
/// the call's place: so a test refuses a ring that a program has. It must not use the ring.
pub type BeforeEnter = Box<dyn FnMut(u64) -> io::Result<()>>;

/// The kernel as it is.
#[derive(Clone, Copy, Default, Debug)]
pub struct Kernel;

impl SetupCalls for Kernel {}

/// A ring that was tried.
pub(super) struct Made {
    pub(super) uring: IoUring,
    pub(super) mode: RingMode,
    pub(super) bell: Bell,
    pub(super) instant_waits: bool,
    pub(super) release: Release,
    pub(super) before: Option<BeforeEnter>,
}

/// The operations that a handle offers, and the ring's own.
const OPERATIONS: [u8; 11] = [
    opcode::Nop::CODE,
    opcode::Read::CODE,
    opcode::Write::CODE,
    opcode::Recv::CODE,
    opcode::Send::CODE,
    opcode::Accept::CODE,
    opcode::Connect::CODE,
    opcode::Timeout::CODE,
    opcode::AsyncCancel::CODE,
    opcode::PollAdd::CODE,
    opcode::Close::CODE,
];

/// Makes a ring with room for `entries` submissions and tries it.
pub(super) fn make(entries: u32, calls: &dyn SetupCalls) -> Result<Made, UringRefusal> {
    let refused = |call: SetupCall| {
        move |error: io::Error| UringRefusal::of(call.name(), &error, calls.disabled_sysctl())
    };
    let (mut uring, mode) = open(entries, calls)?;

    let params = uring.params();
    let waits = params.is_feature_ext_arg()
        && params.is_feature_nodrop()
        && params.is_feature_submit_stable();
    if !calls.has(RingNeed::Waits, waits) {
        return Err(UringRefusal::Lacks { what: "waits with a time-out (Linux 5.11)" });
    }
    // Both came with Linux 6.12, and only this one has a flag.
    let instant_waits = calls.has(RingNeed::InstantWaits, params.is_feature_min_timeout());

    let mut probe = Probe::new();
    calls
        .before(SetupCall::Register)
        .and_then(|()| uring.submitter().register_probe(&mut probe))
        .map_err(refused(SetupCall::Register))?;
    let operations = OPERATIONS.iter().all(|&code| probe.is_supported(code));
    if !calls.has(RingNeed::Operations, operations) {
        return Err(UringRefusal::Lacks { what: "operations of sockets or timers (Linux 5.11)" });
    }
    let futex_waits = probe.is_supported(opcode::FutexWait::CODE);
    let bell = if calls.has(RingNeed::FutexWaits, futex_waits) {
        Bell::Futex
    } else {
        let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Bell::Event(counter.map_err(|errno| UringRefusal::Other {
            call: "eventfd2",
            errno: errno.raw_os_error(),
        })?)
    };

    calls
        .before(SetupCall::Enter)
        .and_then(|()| try_out(&mut uring))
        .map_err(refused(SetupCall::Enter))?;
    let release = Release::of(&uring).map_err(refused(SetupCall::Register))?;
    Ok(Made { uring, mode, bell, instant_waits, release, before: calls.later_enters() })
}

/// The best mode that the kernel has.
fn open(entries: u32, calls: &dyn SetupCalls) -> Result<(IoUring, RingMode), UringRefusal> {
    let mut refusal = None;
    for mode in [RingMode::Deferred, RingMode::Cooperative, RingMode::Plain] {
        let mut builder = IoUring::builder();
        builder.setup_clamp();
        match mode {
            RingMode::Deferred => {
                builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
            }
            RingMode::Cooperative => {
                builder.setup_coop_taskrun().setup_taskrun_flag();
            }
            RingMode::Plain => {}
        }
        let call = SetupCall::Setup(mode);
        match calls.before(call).and_then(|()| builder.build(entries)) {
            Ok(uring) => return Ok((uring, mode)),
            Err(error) => {
                let why = UringRefusal::of(call.name(), &error, calls.disabled_sysctl());
                refusal = Some(why);
                if error.raw_os_error() != Some(Errno::INVAL.raw_os_error()) {
                    break;
                }
            }
        }
    }
    Err(refusal.unwrap_or(UringRefusal::Lacks { what: "any mode" }))
}

/// Submits an operation that ends at once, and takes its completion.
fn try_out(uring: &mut IoUring) -> io::Result<()> {
    let nop = opcode::Nop::new().build();
    // SAFETY: this operation refers to no memory and to no descriptor.
    let pushed = unsafe { uring.submission().push(&nop) };
    pushed.map_err(|_| io::Error::from(Errno::NOBUFS))?;
    uring.submit_and_wait(1)?;
    uring.completion().for_each(drop);
    Ok(())
}
