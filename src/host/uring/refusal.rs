//! Why a kernel or a sandbox gives no ring, or no longer serves one.

use crate::core::error::Error;
use core::fmt;
use rustix::io::Errno;
use std::io;
use std::string::ToString;

/// Why there is no ring here, or why one was lost. Its `Display` is the reason that warnings name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum UringRefusal {
    /// The administrator switched `io_uring` off: `kernel.io_uring_disabled` is 1 (only for processes
    /// of the group `kernel.io_uring_group` or with CAP_SYS_ADMIN) or 2 (for all).
    Sysctl {
        /// The value of `kernel.io_uring_disabled`.
        disabled: u32,
    },
    /// EPERM or EACCES although the sysctl allows it: a seccomp filter, as containers have it, or a
    /// security module.
    Forbidden {
        /// The system call that was refused.
        call: &'static str,
    },
    /// ENOSYS: a kernel before 5.1 or built without it, or a filter that pretends so.
    NoSystemCall {
        /// The system call that is missing.
        call: &'static str,
    },
    /// ENOMEM: before Linux 5.12 rings count against the limit of locked memory.
    Memory,
    /// The kernel has rings, but not all that is needed.
    Lacks {
        /// What is missing, with the first Linux that has it.
        what: &'static str,
    },
    /// Another error.
    Other {
        /// The system call that failed.
        call: &'static str,
        /// The number of the error.
        errno: i32,
    },
}

impl UringRefusal {
    /// What `error` of `call` means, where `kernel.io_uring_disabled` is `sysctl`.
    pub(super) fn of(call: &'static str, error: &io::Error, sysctl: Option<u32>) -> Self {
        let errno = error.raw_os_error().unwrap_or(0);
        match Errno::from_raw_os_error(errno) {
            Errno::PERM | Errno::ACCESS => match sysctl {
                Some(disabled @ 1..) => UringRefusal::Sysctl { disabled },
                _ => UringRefusal::Forbidden { call },
            },
            Errno::NOSYS => UringRefusal::NoSystemCall { call },
            Errno::NOMEM => UringRefusal::Memory,
            _ => UringRefusal::Other { call, errno },
        }
    }
}

impl fmt::Display for UringRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UringRefusal::Sysctl { disabled: 1 } => f.write_str(
                "EPERM: sysctl kernel.io_uring_disabled is 1: only processes of the group \
                 kernel.io_uring_group or with CAP_SYS_ADMIN may use io_uring",
            ),
            UringRefusal::Sysctl { disabled } => write!(
                f,
                "EPERM: sysctl kernel.io_uring_disabled is {disabled}: no process may use io_uring"
            ),
            UringRefusal::Forbidden { call } => write!(
                f,
                "EPERM from {call} although the sysctl kernel.io_uring_disabled does not forbid it: \
                 a seccomp filter or a security module"
            ),
            UringRefusal::NoSystemCall { call } => write!(
                f,
                "ENOSYS from {call}: a kernel before 5.1 or built without io_uring, or a seccomp filter"
            ),
            UringRefusal::Memory => f.write_str(
                "ENOMEM from io_uring_setup: before Linux 5.12 rings count against the limit of \
                 locked memory (ulimit -l)",
            ),
            UringRefusal::Lacks { what } => write!(f, "the kernel's io_uring lacks {what}"),
            UringRefusal::Other { call, errno } => {
                write!(f, "{call}: {}", io::Error::from_raw_os_error(*errno))
            }
        }
    }
}

impl core::error::Error for UringRefusal {}

impl From<UringRefusal> for io::Error {
    /// An error of the kind that the number stands for; the refusal is its source and its text.
    fn from(refusal: UringRefusal) -> Self {
        let kind = match refusal {
            UringRefusal::Sysctl { .. } | UringRefusal::Forbidden { .. } => {
                io::ErrorKind::PermissionDenied
            }
            UringRefusal::NoSystemCall { .. } | UringRefusal::Lacks { .. } => {
                io::ErrorKind::Unsupported
            }
            UringRefusal::Memory => io::ErrorKind::OutOfMemory,
            UringRefusal::Other { errno, .. } => io::Error::from_raw_os_error(errno).kind(),
        };
        io::Error::new(kind, refusal)
    }
}

impl From<UringRefusal> for Error {
    /// A [`Backend`](crate::ErrorCode::Backend) error of the call `io_uring`.
    fn from(refusal: UringRefusal) -> Self {
        Error::backend("io_uring", refusal.to_string())
    }
}
