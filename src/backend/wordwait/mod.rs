//! The word wait: parking a thread in hardware on a completion line, until somebody stores to it.
//!
//! A parked thread executes nothing, its hyper-thread's resources go to the sibling, and it wakes within
//! some 100 ns of the store, without a system call on either side: what a spin offers, without its
//! power. The core stays the thread's, though: to the system's accounting a park is running time.
//!
//! [`WordWait::probe`] is the only way to get a [`WordWait`], so that a value is proof that the CPU has
//! the instructions and that they do what they should: nobody can force them.
//!
//! ```
//! use gpu_async_reactor::backend::wordwait::WordWait;
//! use gpu_async_reactor::{CompletionLine, DurNs, Slot, reached};
//!
//! match WordWait::probe() {
//!     Ok(word_wait) => {
//!         let line = CompletionLine::default();
//!         let reached = word_wait.park(&line, |line| reached(line, Slot::ALL[0], 1), DurNs::from_us(50));
//!         assert!(!reached, "nobody stored");
//!     }
//!     Err(why) => println!("parks by spinning and sleeping here: {why}"),
//! }
//! ```
//!
//! # The families
//!
//! | family | where | a wait ends by, besides a store | how late a bound is noticed |
//! |---|---|---|---|
//! | [`Umwait`](Family::Umwait) | x86-64 with WAITPKG | its deadline, the kernel's cap, an interrupt | not |
//! | [`Mwaitx`](Family::Mwaitx) | x86-64 with MONITORX | its timer, an interrupt | not |
//! | [`Wfet`](Family::Wfet) | aarch64 Linux with FEAT_WFxT | its deadline, any event | not |
//! | [`Wfe`](Family::Wfe) | aarch64 Linux with the event stream | any event | 100 us |
//!
//! On other machines [`WordWait::probe`] answers [`Unsupported::Target`].
//!
//! # Time
//!
//! A park's bound is kept by the system's monotonic clock, read once before the first wait and once
//! after each. A single wait's deadline is on the CPU's counter (time stamp counter, CNTVCT_EL0), whose
//! rate is measured against that clock when probing, over 1 ms; the rate that the machine states
//! (CPUID.15h, CNTFRQ_EL0) is taken where it agrees within the measurement's error and 0.1 %.
//! [`WordWait::counter_error_ppm`] tells the error bound. No wait is longer than 1 ms, so an error
//! of 100 ppm is 100 ns, and does not add up. On x86-64 an invariant counter is required.
//!
//! # Memory ordering
//!
//! The arm is ordered before the loads of the look behind it: the modules of the instructions say why. The park
//! itself publishes nothing: what a device wrote before its store is visible by the acquire load
//! that `ready` makes.
//!
//! # Cost
//!
//! Probing takes 2 to 4 ms where there is an instruction, and some microseconds where there is none:
//! 1 ms of spinning to measure the counter, and a self-test of 16 waits of 50 us and 5 stores from a
//! thread that it starts and joins. Nothing is cached: keep the value, it is `Copy`. A park costs an
//! arm, two looks and two clock reads beside its wait, and 1,000 re-arms a second at least. It allocates
//! nothing and makes no system call.

#[cfg(all(target_arch = "aarch64", target_os = "linux", not(loom)))]
#[path = "aarch64.rs"]
mod instruction;
#[cfg(all(target_arch = "x86_64", not(loom)))]
#[path = "x86_64.rs"]
mod instruction;
#[cfg(any(
    loom,
    not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_os = "linux")))
))]
#[path = "none.rs"]
mod instruction;

#[cfg(all(test, loom))]
mod model;
mod monitor;
mod scale;
mod self_test;
#[cfg(all(test, not(loom)))]
mod tests;
mod unsupported;

pub use monitor::Parked;
pub use unsupported::{Feature, Hypervisor, SelfTestFault, Unsupported};

use crate::core::line::CompletionLine;
use crate::core::time::DurNs;
use crate::monotonic;
use core::fmt;
use instruction::Instruction;
use scale::Scale;

/// A family of wait instructions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Family {
    /// `umonitor` and `umwait`.
    Umwait,
    /// `monitorx` and `mwaitx` with its timer.
    Mwaitx,
    /// `ldaxr` and `wfet`.
    Wfet,
    /// `ldaxr` and `wfe`, ended by the kernel's event stream.
    Wfe,
}

impl Family {
    /// The name of the wait instruction.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Family::Umwait => "umwait",
            Family::Mwaitx => "mwaitx",
            Family::Wfet => "wfet",
            Family::Wfe => "wfe",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Parks the calling thread on a line. `Copy`; any number of threads may park by one.
#[derive(Clone, Copy, Debug)]
pub struct WordWait {
    instruction: Instruction,
    scale: Scale,
}

impl WordWait {
    /// Looks for an instruction, measures its counter, and tests that it parks: see the
    /// [cost](self#cost).
    ///
    /// # Errors
    ///
    /// What is missing, or what the test saw. A busy machine can fail a test that it would pass
    /// otherwise; more than half of the tries must go wrong for that.
    pub fn probe() -> Result<WordWait, Unsupported> {
        let word_wait = WordWait::untested()?;
        self_test::run(&word_wait.instruction, &word_wait.scale, monotonic::now)?;
        Ok(word_wait)
    }

    /// Without the self-test, which an emulator fails.
    fn untested() -> Result<WordWait, Unsupported> {
        use monitor::Monitor;
        use self_test::STORES;
        let instruction = Instruction::detect()?;
        let measured =
            Scale::measure(|| instruction.ticks(), monotonic::now, instruction.nominal_hz());
        let fault = SelfTestFault::CounterStands;
        let scale = measured.ok_or(Unsupported::SelfTest { fault, count: 0, of: STORES })?;
        Ok(WordWait { instruction, scale })
    }

    /// Parks until `ready(line)` or until `bound` has passed, and returns what `ready(line)` said
    /// last. With a bound of 0 it looks once.
    ///
    /// `ready` is called with the monitor armed. It is short and only loads: a store, a
    /// read-modify-write or a system call may disarm the monitor, and the store that it then misses is
    /// found by the next wait, after 1 ms at most. It may depend on more than the line if whoever
    /// changes that also stores to the line, as a [`Doorbell`](crate::Doorbell)'s users do.
    ///
    /// A store to any word of the line ends the wait; where it makes nothing ready the thread parks
    /// again. The line is write-back memory, as host memory and a device's coherent mapped memory are.
    #[inline]
    pub fn park<R: Fn(&CompletionLine) -> bool>(
        &self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        self.park_counted(line, ready, bound).ready
    }

    /// As [`park`](Self::park), and tells how it went.
    #[inline]
    pub fn park_counted<R: Fn(&CompletionLine) -> bool>(
        &self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> Parked {
        monitor::park(&self.instruction, &self.scale, monotonic::now, line, ready, bound)
    }

    /// The instructions that it parks by.
    #[must_use]
    pub fn family(&self) -> Family {
        self.instruction.family()
    }

    /// The rate of the counter that the deadlines of waits are on.
    #[must_use]
    pub fn counter_hz(&self) -> u64 {
        self.scale.hz
    }

    /// How far [`counter_hz`](Self::counter_hz) can be off against the clock, in parts per million.
    #[must_use]
    pub fn counter_error_ppm(&self) -> u32 {
        self.scale.error_ppm
    }
}
