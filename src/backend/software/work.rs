//! What a stream can be asked to do.

use super::buffer::SoftwareBuffer;
use super::fault::{Fault, Hang, StoreFault};
use crate::core::time::{DurNs, MonoNs};
use alloc::{boxed::Box, vec::Vec};
use core::{fmt, ops::Range};

/// Pieces of work, run one after the other once [queued](super::SoftwareStream::queue).
///
/// Marks are not among them: they are made by [`DeviceStream::mark`](crate::DeviceStream::mark),
/// which returns the number.
#[must_use = "work does nothing before it is queued"]
#[derive(Default)]
pub struct Work {
    pub(super) pieces: Vec<Piece>,
}

/// One piece of work.
pub(super) enum Piece {
    Call(Box<dyn FnOnce() + Send>),
    Delay(DurNs),
    Copy { from: SoftwareBuffer, range: Range<usize>, to: SoftwareBuffer, at: usize },
    Fault(Fault),
    Hang(Hang),
    Mark(Mark),
}

/// A store to come.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    pub(super) number: u64,
    /// The number for the doorbell; none where the stream has none.
    pub(super) ring: Option<u64>,
    pub(super) wrong: Option<StoreFault>,
}

/// A piece of work in a queue.
pub(super) struct Queued {
    pub(super) piece: Piece,
    pub(super) at: MonoNs,
}

impl Work {
    /// No work.
    pub fn new() -> Self {
        Work::default()
    }

    /// Then calls `code` on a worker thread, with no lock held. It may use any stream, this one as
    /// well, but must not wait for its own. While it runs it occupies its worker. If it panics, the
    /// stream faults with [`Fault::CLOSURE_PANICKED`].
    pub fn run(self, code: impl FnOnce() + Send + 'static) -> Self {
        self.then(Piece::Call(Box::new(code)))
    }

    /// Then lets `time` pass, counted from the end of the work before it, or from when it was queued
    /// where that came later; waking a worker does not lengthen it. A delay occupies no worker, but
    /// for the spin before its end.
    pub fn delay(self, time: DurNs) -> Self {
        self.then(Piece::Delay(time))
    }

    /// Then copies `range` of `from` to `to`, from byte `at` on. Both may be the same buffer.
    ///
    /// # Panics
    ///
    /// Where `range` does not lie within `from`, or its length does not fit into `to` at `at`.
    /// On the worker, which faults the stream, where a buffer was made before the process was forked.
    pub fn copy(
        self,
        from: &SoftwareBuffer,
        range: Range<usize>,
        to: &SoftwareBuffer,
        at: usize,
    ) -> Self {
        assert!(range.start <= range.end && range.end <= from.len(), "the source is too short");
        assert!(at.checked_add(range.len()).is_some_and(|end| end <= to.len()), "it does not fit");
        self.then(Piece::Copy { from: from.clone(), range, to: to.clone(), at })
    }

    /// Then faults: work behind it is discarded, and every call on the stream answers with this
    /// status for ever; every call on the device, where the fault is
    /// [of the device](Fault::of_the_device).
    pub fn fault(self, fault: Fault) -> Self {
        self.then(Piece::Fault(fault))
    }

    /// Then stands still until `hang` is released. It occupies no worker.
    pub fn hang(self, hang: &Hang) -> Self {
        self.then(Piece::Hang(hang.clone()))
    }

    /// How many pieces there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    fn then(mut self, piece: Piece) -> Self {
        self.pieces.push(piece);
        self
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("pieces", &self.len()).finish()
    }
}
