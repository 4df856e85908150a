//! aarch64 Linux: an exclusive load arms, `wfet` or `wfe` waits.
//!
//! # What the manual says (Arm ARM, DDI 0487, B2.12 and the instructions' pages)
//!
//! - A load-exclusive marks its address in the global monitor for the CPU; another observer's store
//!   to the marked granule clears the mark, and that sends the CPU an event. The granule holds the
//!   line as long as it is of 64 bytes or more, as it is on CPUs to date; the self-test stores into
//!   the line's last word.
//! - WFE returns at once where the event register is set, and clears it; else it may suspend the CPU
//!   until an event. It may also return for no reason.
//! - WFET (FEAT_WFxT) also returns once CNTVCT_EL0 has reached the register's value.
//! - An exception return sets the event register and clears the CPU's mark: a thread that was
//!   interrupted or moved between its arm and its wait does not sleep.
//! - The load is the acquire form, `ldaxr`, because plain loads may pass it: the look behind the arm would then
//!   not be behind it.
//! - A `ready` that does an exclusive access of its own would take the mark away. It only loads.
//!
//! `wfe` alone has no deadline: it is taken only where the kernel's event stream (HWCAP_EVTSTRM)
//! ends it, each 100 us on Linux, which is then how late a bound can be noticed.

use super::Family;
use super::monitor::{Ended, Monitor};
use super::unsupported::{Feature, Unsupported};
use crate::core::line::CompletionLine;
use core::arch::asm;

/// The instructions of one family. A value is proof that the CPU has them: [`detect`](Self::detect)
/// is its only source.
#[derive(Clone, Copy, Debug)]
pub(super) enum Instruction {
    Wfet(Proof),
    Wfe(Proof),
}

/// Made by [`Instruction::detect`] only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proof(());

// The kernel's asm/hwcap.h for arm64.
const HWCAP_EVTSTRM: usize = 1 << 2;
const HWCAP_CPUID: usize = 1 << 11;
const HWCAP2_WFXT: usize = 1 << 31;

impl Instruction {
    pub(super) fn detect() -> Result<Self, Unsupported> {
        let (hwcap, hwcap2) = rustix::param::linux_hwcap();
        let proof = Proof(());
        // A kernel that is older than the bit may still show the register.
        if hwcap2 & HWCAP2_WFXT != 0 || (hwcap & HWCAP_CPUID != 0 && register_shows_wfxt()) {
            return Ok(Instruction::Wfet(proof));
        }
        if hwcap & HWCAP_EVTSTRM != 0 {
            return Ok(Instruction::Wfe(proof));
        }
        let any_of = &[Feature::Wfxt, Feature::EventStream];
        Err(Unsupported::Missing { any_of, hypervisor: None })
    }

    pub(super) fn family(self) -> Family {
        match self {
            Instruction::Wfet(_) => Family::Wfet,
            Instruction::Wfe(_) => Family::Wfe,
        }
    }

    /// The counter's rate as the firmware states it in CNTFRQ_EL0.
    pub(super) fn nominal_hz(self) -> Option<u64> {
        let hz: u64;
        // SAFETY: a read of a register that Linux lets user programs read, as it does the counter
        // itself. It writes one register, and changes neither flags, memory nor stack.
        unsafe {
            asm!("mrs {0}, cntfrq_el0", out(reg) hz, options(nomem, nostack, preserves_flags));
        }
        Some(hz & 0xffff_ffff).filter(|hz| *hz > 0)
    }
}

/// ID_AA64ISAR2_EL1.WFxT, bits 3..0: 2 or more says that the instructions are there. Only called where
/// HWCAP_CPUID says that the kernel answers for user programs.
fn register_shows_wfxt() -> bool {
    let features: u64;
    // SAFETY: HWCAP_CPUID is set, so the kernel emulates the read (its cpu-feature-registers
    // document); by the register's encoding, since older assemblers lack its name. It writes one
    // register, and changes neither flags, memory nor stack.
    unsafe {
        asm!("mrs {0}, S3_0_C0_C6_2", out(reg) features, options(nomem, nostack, preserves_flags));
    }
    features & 0xf >= 2
}

impl Monitor for Instruction {
    #[inline]
    fn ticks(&self) -> u64 {
        let ticks: u64;
        // SAFETY: Linux lets user programs read the virtual counter; its vDSO clock does. It writes
        // one register, and changes neither flags, memory nor stack. It is not declared free of
        // memory effects, so that it stays between an arm and a wait.
        unsafe {
            asm!("mrs {0}, cntvct_el0", out(reg) ticks, options(nostack, preserves_flags));
        }
        ticks
    }

    #[inline]
    fn arm(&self, line: &CompletionLine) {
        // SAFETY: every aarch64 CPU has the instruction. It reads the eight bytes at the address,
        // which is borrowed and aligned to 64, so mapped and readable; the read is one atomic load
        // of the line's first word, as acquire loads of it are elsewhere, so it races with no store.
        // It writes one register, declared, and changes neither flags nor stack. The mark that it
        // leaves in the monitor is no state of the program: nobody stores exclusively against it.
        unsafe {
            asm!("ldaxr {0}, [{1}]", out(reg) _, in(reg) line, options(nostack, preserves_flags));
        }
    }

    #[inline]
    fn wait(&self, until: u64) -> Ended {
        match self {
            // SAFETY: `self` proves that the CPU has WFET, here by its encoding with X0 as operand, since
            // assemblers know its name only with an option. It reads that register, and changes no
            // register, flag, memory or stack; Linux does not trap it.
            Instruction::Wfet(Proof(())) => unsafe {
                asm!(".inst 0xd5031000", in("x0") until, options(nostack, preserves_flags));
            },
            // SAFETY: every aarch64 CPU has WFE. It changes no register, flag, memory or stack;
            // `self` proves that the event stream ends it.
            Instruction::Wfe(Proof(())) => unsafe {
                asm!("wfe", options(nostack, preserves_flags));
            },
        }
        Ended::Unknown
    }
}
