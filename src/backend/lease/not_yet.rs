//! Why a lease did not hand its buffer back.

use super::buffer::DeviceBuffer;
use super::held::Lease;
use crate::core::error::Error;
use crate::core::port::{WaitError, Waited};
use core::fmt;

/// A lease that is not over. It keeps the lease: the device may be using the buffer.
///
/// Dropping it drops the lease, whose buffer then waits to be reclaimed.
#[must_use = "it holds the lease"]
pub struct NotYet<B: DeviceBuffer> {
    pub(super) lease: Lease<B>,
    pub(super) reason: NotYetReason,
}

/// Why a lease is not over.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NotYetReason {
    /// The device is not done.
    Pending,
    /// The deadline of the wait passed. The device may still be at work.
    TimedOut(Waited),
    /// The device's error, or that of the wait's port: whether the device is done cannot be told.
    Error(Error),
}

impl<B: DeviceBuffer> NotYet<B> {
    /// Why.
    pub fn reason(&self) -> &NotYetReason {
        &self.reason
    }

    /// The device's error, where that is the reason.
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        match &self.reason {
            NotYetReason::Error(error) => Some(error),
            NotYetReason::Pending | NotYetReason::TimedOut(_) => None,
        }
    }

    /// The lease, to wait again.
    pub fn into_lease(self) -> Lease<B> {
        self.lease
    }
}

impl From<WaitError<Error>> for NotYetReason {
    fn from(error: WaitError<Error>) -> Self {
        match error {
            WaitError::Port(error) | WaitError::Refused(error) => NotYetReason::Error(error),
            WaitError::TimedOut(waited) => NotYetReason::TimedOut(waited),
        }
    }
}

impl<B: DeviceBuffer> fmt::Display for NotYet<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            NotYetReason::Pending => f.write_str("the device is not done with the buffer"),
            NotYetReason::TimedOut(waited) => {
                let ns = waited.elapsed.0;
                write!(f, "timed out after {ns} ns with the device not done with the buffer")
            }
            NotYetReason::Error(error) => error.fmt(f),
        }
    }
}

impl<B: DeviceBuffer> fmt::Debug for NotYet<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotYet").field("lease", &self.lease).field("reason", &self.reason).finish()
    }
}

impl<B: DeviceBuffer> core::error::Error for NotYet<B> {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        self.error().map(|error| error as _)
    }
}
