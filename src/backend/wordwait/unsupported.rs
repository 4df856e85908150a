//! Why a thread cannot park on a word here.

use core::fmt;

/// A feature of a CPU or kernel that a family of wait instructions needs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Feature {
    /// x86-64: `umonitor` and `umwait`.
    Waitpkg,
    /// x86-64: `monitorx` and `mwaitx`.
    Monitorx,
    /// x86-64: a time stamp counter that runs at one rate in every state of the CPU.
    InvariantTsc,
    /// aarch64: `wfet`, which takes a deadline.
    Wfxt,
    /// aarch64: the kernel's event stream, which ends every `wfe` within about 100 us.
    EventStream,
}

impl Feature {
    /// Its name, as the CPU's manual or the kernel spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Feature::Waitpkg => "WAITPKG",
            Feature::Monitorx => "MONITORX",
            Feature::InvariantTsc => "invariant TSC",
            Feature::Wfxt => "FEAT_WFxT",
            Feature::EventStream => "event stream",
        }
    }

    /// Where a program reads whether it is there.
    #[must_use]
    pub const fn bit(self) -> &'static str {
        match self {
            Feature::Waitpkg => "CPUID.7.0:ECX[5]",
            Feature::Monitorx => "CPUID.8000_0001h:ECX[29]",
            Feature::InvariantTsc => "CPUID.8000_0007h:EDX[8]",
            Feature::Wfxt => "HWCAP2_WFXT, ID_AA64ISAR2_EL1.WFxT",
            Feature::EventStream => "HWCAP_EVTSTRM",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.bit())
    }
}

/// A hypervisor, by the twelve bytes with which it signs CPUID leaf 4000_0000h (EBX, ECX, EDX).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hypervisor {
    /// The bytes as they stand there.
    pub signature: [u8; 12],
}

impl Hypervisor {
    /// Its common name, for the signatures that are known.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        Some(match &self.signature {
            b"KVMKVMKVM\0\0\0" => "KVM",
            b"Linux KVM Hv" => "KVM with Hyper-V interfaces",
            b"Microsoft Hv" => "Hyper-V",
            b"VMwareVMware" => "VMware",
            b"XenVMMXenVMM" => "Xen",
            b"TCGTCGTCGTCG" => "QEMU without KVM",
            b"bhyve bhyve " => "bhyve",
            b"ACRNACRNACRN" => "ACRN",
            b"VBoxVBoxVBox" => "VirtualBox",
            b"prl hyperv  " | b" lrpepyh  vr" => "Parallels",
            b"QNXQVMBSQG\0\0" => "QNX",
            _ => return None,
        })
    }
}

impl fmt::Display for Hypervisor {
    /// The name, and the signature in quotes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.name() {
            write!(f, "{name}, ")?;
        }
        let signature = self.signature.trim_ascii_end();
        let shown = signature.split(|byte| *byte == 0).next().unwrap_or_default();
        write!(f, "signature \"{}\"", shown.escape_ascii())
    }
}

/// What the self-test of a probe saw go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum SelfTestFault {
    /// Armed waits on a line that nobody stores to return at once.
    ReturnsAtOnce,
    /// A store from another thread does not end the wait.
    IgnoresStores,
    /// The counter that the waits' deadlines are on does not run.
    CounterStands,
    /// The thread that stores did not come to it within two seconds. The machine is too busy to tell.
    NoStore,
    /// The system refused the thread that stores.
    NoThread,
}

/// Why a thread cannot park on a word here. Its `Display` is one line for a person.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Unsupported {
    /// This crate knows no wait instruction for user programs on this kind of machine.
    Target {
        /// The architecture, as [`std::env::consts::ARCH`] spells it.
        arch: &'static str,
        /// The system, as [`std::env::consts::OS`] spells it.
        os: &'static str,
    },
    /// The CPU, or the kernel, does not offer what is needed, or a hypervisor hides it.
    Missing {
        /// Each would do where there are several.
        any_of: &'static [Feature],
        /// The hypervisor that the program runs under, if the CPU names one. A guest cannot tell
        /// whether the CPU lacks the feature or the hypervisor hides it.
        hypervisor: Option<Hypervisor>,
    },
    /// The instruction is there, and an armed wait does not do what it should.
    SelfTest {
        /// What went wrong.
        fault: SelfTestFault,
        /// How often it was seen.
        count: u32,
        /// Of how many tries.
        of: u32,
    },
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsupported::Target { arch, os } => {
                write!(f, "no wait instruction is known for user programs on {arch} {os}")
            }
            Unsupported::Missing { any_of, hypervisor } => {
                f.write_str("the CPU does not show ")?;
                for (at, feature) in any_of.iter().enumerate() {
                    let separator = if at == 0 { "" } else { " nor " };
                    write!(f, "{separator}{feature}")?;
                }
                match hypervisor {
                    Some(name) => write!(f, "; a hypervisor that may hide it is present: {name}"),
                    None => Ok(()),
                }
            }
            Unsupported::SelfTest { fault, count, of } => match fault {
                SelfTestFault::ReturnsAtOnce => {
                    write!(
                        f,
                        "self-test: {count} of {of} armed waits returned at once, unstored to"
                    )
                }
                SelfTestFault::IgnoresStores => {
                    write!(f, "self-test: {count} of {of} armed waits were not ended by a store")
                }
                SelfTestFault::CounterStands => {
                    write!(f, "self-test: the counter of the waits' deadlines does not run")
                }
                SelfTestFault::NoStore => {
                    write!(f, "self-test: {count} of {of} stores did not come within two seconds")
                }
                SelfTestFault::NoThread => {
                    write!(f, "self-test: the system refused the thread that stores")
                }
            },
        }
    }
}

impl core::error::Error for Unsupported {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn a_refusal_names_the_missing_bits_and_the_hypervisor() {
        let any_of = &[Feature::Waitpkg, Feature::Monitorx];
        let hypervisor = Some(Hypervisor { signature: *b"KVMKVMKVM\0\0\0" });
        assert_eq!(
            Unsupported::Missing { any_of, hypervisor }.to_string(),
            "the CPU does not show WAITPKG (CPUID.7.0:ECX[5]) nor MONITORX \
             (CPUID.8000_0001h:ECX[29]); a hypervisor that may hide it is present: \
             KVM, signature \"KVMKVMKVM\""
        );
        let bare = Unsupported::Missing { any_of: &[Feature::InvariantTsc], hypervisor: None };
        assert_eq!(
            bare.to_string(),
            "the CPU does not show invariant TSC (CPUID.8000_0007h:EDX[8])"
        );
    }

    #[test]
    fn an_unknown_hypervisor_is_shown_by_its_signature_whatever_stands_there() {
        let shown = |signature| Hypervisor { signature }.to_string();
        assert_eq!(shown(*b"SomethingNew"), "signature \"SomethingNew\"");
        assert_eq!(shown([0xff; 12]).matches(r"\xff").count(), 12);
        assert_eq!(shown([0; 12]), "signature \"\"");
    }

    #[test]
    fn a_failed_self_test_tells_the_count_it_saw() {
        let fault = SelfTestFault::ReturnsAtOnce;
        assert_eq!(
            Unsupported::SelfTest { fault, count: 15, of: 16 }.to_string(),
            "self-test: 15 of 16 armed waits returned at once, unstored to"
        );
    }
}
