//! How an operation ended.

use super::refusal::UringRefusal;
use crate::fork;
use std::io;

/// How an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The kernel's answer: less than 0 is an error's number.
    Kernel(i32),
    /// The ring was lost before the kernel had the operation: it has not begun.
    Refused(UringRefusal),
    /// The ring was lost while the kernel had the operation. It has let go of it, and it may have
    /// taken effect.
    Lost(UringRefusal),
    /// The buffer has no room for a byte.
    NoRoom,
    /// The ring is that of the process which this one was forked from.
    Forked,
}

impl Ended {
    /// The number that the kernel answered, or why there is none.
    pub(super) fn result(self) -> io::Result<u32> {
        match self {
            Ended::Kernel(answer) => {
                u32::try_from(answer).map_err(|_| io::Error::from_raw_os_error(-answer))
            }
            Ended::Refused(why) | Ended::Lost(why) => Err(why.into()),
            Ended::NoRoom => {
                let what = "a buffer of no capacity: there is no byte to read into";
                Err(io::Error::new(io::ErrorKind::InvalidInput, what))
            }
            Ended::Forked => Err(io::Error::other(fork::forked("io_uring"))),
        }
    }
}
