//! Where a buffer waits for its device after its lease was dropped.

use super::LeaseStream;
use super::buffer::DeviceBuffer;
use super::node::{Entry, List, Place};
use super::stats::{LeaseCounts, LeaseStats};
use crate::core::error::{ErrorCode, Result};
use crate::core::line::reached;
use crate::fork::Birth;
use alloc::sync::Arc;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The reclaim list of one stream.
///
/// The stream owns it. When the stream's last handle goes, its destructor calls `finish` with the
/// last status it has; whatever is still here when the list itself is dropped is leaked and counted.
#[derive(Debug)]
pub struct Reclaim {
    waiting: List,
    counts: Arc<LeaseCounts>,
    birth: Birth,
}

/// What is known of a waiting entry.
enum Verdict {
    Done,
    Pending,
    /// Nobody can tell whether the device is done.
    Unknown,
}

impl Reclaim {
    /// An empty list that counts in `counts`, which all streams of a device share.
    #[must_use]
    pub fn new(counts: Arc<LeaseCounts>) -> Self {
        Reclaim { waiting: List::new(), counts, birth: Birth::here() }
    }

    /// What became of the buffers of all streams that share the counts.
    #[must_use]
    pub fn stats(&self) -> LeaseStats {
        self.counts.get()
    }

    /// Whether no buffer waits here. A sweep of another thread may be holding some.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// [`LeaseStream::sweep`], of the streams that the buffers were leased on.
    ///
    /// No lock is held while a status is asked or a buffer dropped, so that these may use this list. In
    /// a forked child it does nothing.
    pub fn sweep(&self) -> usize {
        let mut known = Known::new(self.waiting.oldest());
        self.sweep_by(|entry| match entry.stream() {
            Some(stream) => known.verdict(entry.number(), stream),
            None => Verdict::Unknown,
        })
    }

    /// Drops what the device is done with as far as the word says so, and the status agrees. Without a
    /// status call where the word says that nothing is.
    pub(in crate::backend) fn sweep_reached(&self, stream: &dyn LeaseStream) {
        let line = (**stream.line()).as_ref();
        if !reached(line, stream.slot(), self.waiting.oldest()) {
            return;
        }
        let mut known = Known::new(self.waiting.oldest());
        self.sweep_by(|entry| {
            if !reached(line, stream.slot(), entry.number()) {
                return Verdict::Pending;
            }
            entry.stream().map_or(Verdict::Unknown, |of| known.verdict(entry.number(), of))
        });
    }

    /// The stream goes, and this is its last status: what it does not say to be done is leaked and
    /// counted.
    ///
    /// Called by the destructor of the stream that the buffers were leased on, with its own status
    /// and nothing else: what `status` calls done is freed.
    #[cfg_attr(not(feature = "software"), allow(dead_code, reason = "not every backend is there"))]
    pub(crate) fn finish(&self, status: impl Fn(u64) -> Result<bool>) {
        self.sweep_by(|entry| match status(entry.number()) {
            Ok(true) => Verdict::Done,
            Ok(false) | Err(_) => Verdict::Unknown,
        });
    }

    fn sweep_by(&self, mut verdict: impl FnMut(&Entry) -> Verdict) -> usize {
        if self.birth.is_forked() {
            return 0;
        }
        let mut chain = self.waiting.take_all();
        let mut dropped = 0;
        // A status that panics finds its entry in the chain still, which goes back to the list.
        while let Some(first) = chain.first() {
            let verdict = verdict(first);
            let Some(entry) = chain.next() else { break };
            match verdict {
                Verdict::Pending => self.waiting.push(entry),
                Verdict::Unknown => {
                    self.counts.waits_no_more();
                    self.counts.leaked();
                    entry.leak();
                }
                Verdict::Done => {
                    // SAFETY: the status of the stream that the buffer was leased on says that all
                    // work in front of its mark is done, and the work that uses the buffer is.
                    let freed = contain(|| unsafe { entry.free() });
                    if !freed {
                        self.counts.panicked();
                    }
                    self.counts.waits_no_more();
                    self.counts.returned();
                    dropped += 1;
                }
            }
        }
        dropped
    }

    /// A buffer begins to be leased.
    pub(super) fn leased(&self) {
        self.counts.leased();
    }

    /// A leased buffer is handed back.
    pub(super) fn returned(&self) {
        self.counts.returned();
    }

    /// A leased buffer waits for the mark of `number`. No lock, no allocation, no call.
    pub(super) fn wait<B: DeviceBuffer>(&self, place: Place<B>, number: u64) {
        self.counts.waits();
        self.waiting.push(place.entry(number));
    }

    /// A leased buffer is given up.
    pub(super) fn leak<B: DeviceBuffer>(&self, place: Place<B>) {
        self.counts.leaked();
        place.entry(0).leak();
    }

    /// Whether the process was forked since.
    pub(super) fn is_forked(&self) -> bool {
        self.birth.is_forked()
    }

    /// That error, where it was.
    pub(super) fn check_fork(&self, call: &str) -> Result<()> {
        self.birth.check(call)
    }
}

/// What the queries of one sweep have shown: a stream is in order, so that what is in front of a done
/// mark is done, and what is behind a pending one is pending. What is between is halved by each query.
struct Known {
    /// The stream that the rest is about.
    stream: Option<Arc<dyn LeaseStream>>,
    /// No number that is asked for is smaller.
    oldest: u64,
    done: u64,
    pending: Option<u64>,
}

impl Known {
    fn new(oldest: u64) -> Self {
        Known { stream: None, oldest, done: 0, pending: None }
    }

    fn verdict(&mut self, number: u64, stream: Arc<dyn LeaseStream>) -> Verdict {
        let same =
            |of: &Arc<dyn LeaseStream>| Arc::as_ptr(of).addr() == Arc::as_ptr(&stream).addr();
        if !self.stream.as_ref().is_some_and(same) {
            *self = Known { stream: Some(stream.clone()), ..Known::new(self.oldest) };
        }
        let mut halving = true;
        loop {
            if number <= self.done {
                return Verdict::Done;
            }
            if self.pending.is_some_and(|pending| number >= pending) {
                return Verdict::Pending;
            }
            let probe = if halving { self.probe(number) } else { number };
            match stream.query_mark(probe) {
                Ok(true) => self.done = probe,
                Ok(false) => self.pending = Some(probe),
                // An error concerns the number that it was the answer for.
                Err(_) if probe != number => halving = false,
                // The status cannot be asked from here and now, which says nothing about the device.
                Err(error) if is_of_the_caller(error.code()) => return Verdict::Pending,
                Err(_) => return Verdict::Unknown,
            }
        }
    }

    /// What to ask for next, for an answer about `number`: the middle of what is not known, where that
    /// has two ends. It is a number of this stream's too.
    fn probe(&self, number: u64) -> u64 {
        let from = self.done.max(self.oldest.saturating_sub(1));
        match self.pending {
            Some(pending) if from < number => from + (pending - from) / 2,
            _ => number,
        }
    }
}

/// Whether an error of a status concerns the caller, and says nothing about the device.
pub(in crate::backend) fn is_of_the_caller(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::ForeignThread | ErrorCode::Captured | ErrorCode::Forked)
}

/// Runs a buffer's destructor, and says whether it returned.
fn contain(code: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(()) => true,
        Err(payload) => {
            // The payload's destructor is foreign code too. What that panics with is forgotten.
            if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                core::mem::forget(again);
            }
            false
        }
    }
}

impl Default for Reclaim {
    /// An empty list with counts of its own.
    fn default() -> Self {
        Reclaim::new(Arc::default())
    }
}

impl Drop for Reclaim {
    fn drop(&mut self) {
        self.sweep_by(|_| Verdict::Unknown);
    }
}
