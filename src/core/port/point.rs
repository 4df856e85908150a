//! The point of a stream that a port stands at: what its queries ask about.

use super::stream::DeviceStream;
use crate::core::error::Result;
use crate::core::line::{OwnedDescriptor, reached};

/// A point of a stream, made by a port's `mark`: the number whose store was queued there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ticket {
    number: u64,
}

impl Ticket {
    /// The point of `number`, for who has marked the stream itself.
    pub(crate) fn of(number: u64) -> Self {
        Ticket { number }
    }

    /// The number that the device stores at this point.
    #[must_use]
    pub fn number(self) -> u64 {
        self.number
    }
}

/// A stream, and the point of it that is asked about.
///
/// ```text
/// Everything --arm--> Armed(n) --begin--> Everything      a port of the stream
/// Given(n)   --arm--> Given(n) --begin--> Given(n)        a port made by `at(ticket)`
/// ```
#[derive(Clone, Debug)]
pub(super) struct StreamPoint<S> {
    stream: S,
    point: Point,
}

#[derive(Clone, Copy, Debug)]
enum Point {
    Everything,
    Armed(u64),
    Given(u64),
}

impl<S: DeviceStream> StreamPoint<S> {
    pub(super) fn new(stream: S) -> Self {
        StreamPoint { stream, point: Point::Everything }
    }

    pub(super) fn stream(&self) -> &S {
        &self.stream
    }

    pub(super) fn mark(&self) -> Result<Ticket> {
        Ok(Ticket::of(self.stream.mark()?))
    }

    /// The same stream at the point of `ticket`.
    pub(super) fn at(&self, ticket: Ticket) -> StreamPoint<&S> {
        StreamPoint { stream: &self.stream, point: Point::Given(ticket.number) }
    }

    pub(super) fn begin(&mut self) {
        if let Point::Armed(_) = self.point {
            self.point = Point::Everything;
        }
    }

    pub(super) fn arm(&mut self) -> Result<()> {
        match self.point {
            Point::Everything | Point::Armed(_) => self.point = Point::Armed(self.stream.mark()?),
            Point::Given(_) => {}
        }
        Ok(())
    }

    pub(super) fn query(&self) -> Result<bool> {
        match self.point {
            Point::Everything => self.stream.query(),
            Point::Armed(number) | Point::Given(number) => self.stream.query_mark(number),
        }
    }

    pub(super) fn check_poll(&self) -> Result<()> {
        match self.point {
            Point::Everything => self.stream.check_poll(),
            Point::Armed(_) | Point::Given(_) => Ok(()),
        }
    }

    pub(super) fn synchronize(&self) -> Result<()> {
        match self.point {
            Point::Everything => self.stream.synchronize(),
            Point::Armed(number) | Point::Given(number) => self.stream.synchronize_mark(number),
        }
    }

    /// The number that the word must reach; none before the port is armed.
    pub(super) fn number(&self) -> Option<u64> {
        match self.point {
            Point::Everything => None,
            Point::Armed(number) | Point::Given(number) => Some(number),
        }
    }

    pub(super) fn seen(&self) -> bool {
        self.number().is_some_and(|number| {
            reached((**self.stream.line()).as_ref(), self.stream.slot(), number)
        })
    }

    /// What a park watches; none before the port is armed.
    pub(super) fn descriptor(&self) -> Option<OwnedDescriptor> {
        let line = self.stream.line().clone();
        let slot = self.stream.slot();
        self.number().map(|target| OwnedDescriptor { line, slot, target })
    }
}
