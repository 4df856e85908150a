//! x86-64: `umonitor`/`umwait` (WAITPKG) and `monitorx`/`mwaitx` (MONITORX).
//!
//! # What the manuals say
//!
//! | | `umwait` | `mwaitx` |
//! |---|---|---|
//! | manual | Intel SDM vol. 2, UMONITOR, UMWAIT | AMD APM vol. 3, MONITORX, MWAITX |
//! | offered by | CPUID.7.0:ECX\[5\] | CPUID.8000_0001h:ECX\[29\] |
//! | operands | EDX:EAX deadline on the time stamp counter, bit 0 of the register: C0.1 | EBX ticks, ECX\[1\]: use them, EAX\[7:4\]: C-state |
//! | ends by | a store to the line, the deadline, an interrupt, the kernel's cap (carry flag set) | a store to the line, the ticks, an interrupt |
//! | faults | #UD without the CPUID bit | #UD without the CPUID bit |
//! | memory | reads one byte, as a load does, and needs write-back memory | the same |
//!
//! C0.1 and the C-state hint F (none) are the shallow waits: they wake within some 100 ns. The
//! deeper ones would save more power and cost up to a microsecond a wake.
//!
//! Both monitors are armed by an instruction that is ordered as a load, and loads are not done before
//! earlier loads (Intel SDM vol. 3, memory ordering; AMD APM vol. 2, memory system): the look
//! behind an arm sees what the arm would miss. A device's store into coherent, write-back memory is
//! seen by the monitor like that of another CPU.
//!
//! The kernel's cap is `IA32_UMWAIT_CONTROL`, on Linux `/sys/devices/system/cpu/umwait_control/max_time`,
//! 100,000 ticks unless changed; an emulator may leave the carry flag alone.

use super::Family;
use super::monitor::{Ended, Monitor};
use super::unsupported::{Feature, Hypervisor, Unsupported};
use crate::core::line::CompletionLine;
use core::arch::asm;
use core::arch::x86_64::{__cpuid_count, _rdtsc, CpuidResult};

/// The instructions of one family. A value is proof that the CPU has them: [`detect`](Self::detect)
/// is its only source.
#[derive(Clone, Copy, Debug)]
pub(super) enum Instruction {
    Umwait(Proof),
    Mwaitx(Proof),
}

/// Made by [`Instruction::detect`] only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proof(());

const WAITPKG_ECX: u32 = 1 << 5;
const MONITORX_ECX: u32 = 1 << 29;
const INVARIANT_TSC_EDX: u32 = 1 << 8;
const HYPERVISOR_ECX: u32 = 1 << 31;

impl Instruction {
    pub(super) fn detect() -> Result<Self, Unsupported> {
        let missing = |any_of| Err(Unsupported::Missing { any_of, hypervisor: hypervisor() });
        let waitpkg = leaf(7).is_some_and(|leaf| leaf.ecx & WAITPKG_ECX != 0);
        let monitorx = leaf(0x8000_0001).is_some_and(|leaf| leaf.ecx & MONITORX_ECX != 0);
        if !waitpkg && !monitorx {
            return missing(&[Feature::Waitpkg, Feature::Monitorx]);
        }
        if leaf(0x8000_0007).is_none_or(|leaf| leaf.edx & INVARIANT_TSC_EDX == 0) {
            return missing(&[Feature::InvariantTsc]);
        }
        let proof = Proof(());
        Ok(if waitpkg { Instruction::Umwait(proof) } else { Instruction::Mwaitx(proof) })
    }

    pub(super) fn family(self) -> Family {
        match self {
            Instruction::Umwait(_) => Family::Umwait,
            Instruction::Mwaitx(_) => Family::Mwaitx,
        }
    }

    /// The counter's rate as CPUID.15h states it: crystal (ECX) by ratio (EBX / EAX). Intel SDM
    /// vol. 2, CPUID: each is 0 where it is not stated.
    pub(super) fn nominal_hz(self) -> Option<u64> {
        let leaf = leaf(0x15)?;
        let product = u64::from(leaf.ecx) * u64::from(leaf.ebx);
        product.checked_div(u64::from(leaf.eax)).filter(|hz| *hz > 0)
    }
}

/// CPUID `leaf`, sub-leaf 0; `None` beyond the last leaf of its range.
fn leaf(leaf: u32) -> Option<CpuidResult> {
    let last = cpuid(leaf & 0x8000_0000).eax;
    (leaf <= last).then(|| cpuid(leaf))
}

#[allow(unused_unsafe, reason = "a safe function from Rust 1.9x on")]
fn cpuid(leaf: u32) -> CpuidResult {
    // SAFETY: every x86-64 CPU has the instruction. It reads and writes four registers, which the
    // function declares, and no memory.
    unsafe { __cpuid_count(leaf, 0) }
}

/// CPUID.1:ECX\[31\] is 1 under a hypervisor, which signs leaf 4000_0000h; AMD APM vol. 3, CPUID
/// reserves both for that use.
fn hypervisor() -> Option<Hypervisor> {
    if cpuid(1).ecx & HYPERVISOR_ECX == 0 {
        return None;
    }
    let signed = cpuid(0x4000_0000);
    let mut signature = [0; 12];
    for (bytes, word) in signature.chunks_exact_mut(4).zip([signed.ebx, signed.ecx, signed.edx]) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    Some(Hypervisor { signature })
}

impl Monitor for Instruction {
    #[allow(unused_unsafe, reason = "may become a safe function")]
    fn ticks(&self) -> u64 {
        // SAFETY: every x86-64 CPU has the instruction; a system that forbids it to user programs
        // breaks their clocks as well. It writes two registers, which the function declares.
        unsafe { _rdtsc() }
    }

    #[inline]
    fn arm(&self, line: &CompletionLine) {
        match self {
            // SAFETY: `self` proves that the CPU has the instruction. It reads the byte at the
            // address, which is borrowed, so mapped and readable, for the whole of the call; nothing
            // is written. It uses one register as input and changes none, nor the flags, nor the stack.
            // Without `nomem` the compiler moves no access to memory across it. Monitoring outlives
            // the borrow only as a hint: a store to memory that has another use ends a wait early.
            Instruction::Umwait(Proof(())) => unsafe {
                asm!("umonitor {0}", in(reg) line, options(nostack, preserves_flags));
            },
            // SAFETY: as above, with RAX as the address; ECX and EDX (no extensions, no hints: the
            // only values that are defined) are inputs that it does not change.
            Instruction::Mwaitx(Proof(())) => unsafe {
                asm!(
                    "monitorx",
                    in("rax") line, in("ecx") 0, in("edx") 0,
                    options(nostack, preserves_flags),
                );
            },
        }
    }

    #[inline]
    fn wait(&self, until: u64) -> Ended {
        match self {
            Instruction::Umwait(Proof(())) => {
                /// Wait in C0.1.
                const SHALLOW: u32 = 1;
                let capped: u8;
                // SAFETY: `self` proves that the CPU has the instruction; bit 0 is the only bit of
                // its operand that may be set. It reads three registers, changes the flags, which are
                // not declared preserved, and accesses neither memory nor stack. SETC writes the
                // low byte of an output that may share a register with an input, since it comes last.
                unsafe {
                    asm!(
                        "umwait {shallow:e}",
                        "setc {capped}",
                        shallow = in(reg) SHALLOW,
                        in("eax") until as u32,
                        in("edx") (until >> 32) as u32,
                        capped = lateout(reg_byte) capped,
                        options(nostack),
                    );
                }
                if capped == 0 { Ended::Unknown } else { Ended::Capped }
            }
            Instruction::Mwaitx(Proof(())) => {
                /// EAX\[7:4\] = F: stay in C0.
                const NO_C_STATE: u32 = 0xf0;
                /// ECX[1]: EBX holds the longest time to wait.
                const USE_TIMER: u32 = 1 << 1;
                let left = until.saturating_sub(self.ticks());
                let left = u32::try_from(left).unwrap_or(u32::MAX);
                if left == 0 {
                    return Ended::Unknown;
                }
                // SAFETY: `self` proves that the CPU has the instruction; the values of ECX and EAX
                // are defined ones. It reads EAX, EBX and ECX and changes no register. RBX belongs
                // to the compiler and cannot be an operand: it is exchanged with one before and
                // after, so that it has its value again when the block ends, and the operand,
                // declared as written, holds what it held before. Flags are not changed by any of
                // the three, and there is no access to memory or stack.
                unsafe {
                    asm!(
                        "xchg {timer}, rbx",
                        "mwaitx",
                        "xchg {timer}, rbx",
                        timer = inout(reg) u64::from(left) => _,
                        in("eax") NO_C_STATE,
                        in("ecx") USE_TIMER,
                        options(nostack, preserves_flags),
                    );
                }
                Ended::Unknown
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_beyond_the_last_one_are_not_read() {
        assert!(leaf(0).is_some() && leaf(1).is_some() && leaf(0x8000_0000).is_some());
        assert!(leaf(0x7fff_ffff).is_none() && leaf(0xffff_ffff).is_none());
    }

    #[test]
    fn a_hypervisor_is_named_where_its_bit_is_set() {
        let present = cpuid(1).ecx & HYPERVISOR_ECX != 0;
        assert_eq!(hypervisor().is_some(), present);
    }
}
