//! What is answered about a mark whose event must not be asked now.
//!
//! Where events read their streams ([`EVENTS_READ_STREAMS`](crate::backend::mapped::calls::Calls)), asking about one
//! breaks a capture of its stream. The mark is pending meanwhile; its word alone ends no wait, since safe code
//! can forge it.

use super::StreamCore;
use crate::backend::mapped::calls::Interface;
use crate::backend::mapped::events::Event;
use crate::backend::mapped::lock;
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::time::DurNs;
use crate::monotonic;
use std::thread;

/// How long a mark whose word is there stays pending since its stream is captured, where its status cannot be
/// asked meanwhile. Behind it the wait ends by an error: the thread that waits may be the one that would end
/// the capture.
const CAPTURE_PATIENCE: DurNs = DurNs::from_ms(5_000);
/// After how long without a look a capture is taken for another one.
const CAPTURE_GAP: DurNs = DurNs::from_ms(1_500);

impl<A: Interface> StreamCore<A> {
    /// What a query of the event of `number` answers, within the context.
    pub(super) fn query_event(&self, api: &A, number: u64, event: &Event) -> Result<bool> {
        if A::EVENTS_READ_STREAMS {
            if self.thread.is_some_and(|own| own != thread::current().id()) {
                // Whether this thread's handle is captured says nothing about the stream.
                return self.unasked(number, ErrorCode::ForeignThread);
            }
            // SAFETY: the handle is live, as in `check_not_captured`.
            if unsafe { api.is_capturing(self.handle) }? {
                return self.pending_in_capture(number);
            }
        }
        // SAFETY: the event is live, as in `queue_mark`, and so is its stream.
        unsafe { api.query_event(**event) }
    }

    /// The answer about a mark whose status cannot be asked here and now: pending, or where its word says
    /// that there is nothing to wait for any more, the error `why`. The word alone ends no wait.
    fn unasked(&self, number: u64, why: ErrorCode) -> Result<bool> {
        let is_there = (*self.line).as_ref().load(self.slot) >= number;
        if is_there { Err(Error::new(why, ["query_mark"])) } else { Ok(false) }
    }

    /// The answer about a mark whose status would break the capture of the stream: pending, and behind
    /// [`CAPTURE_PATIENCE`] an error, where nothing but the end of the capture is waited for.
    fn pending_in_capture(&self, number: u64) -> Result<bool> {
        let is_there = (*self.line).as_ref().load(self.slot) >= number;
        if self.context.form.is_some() && !is_there {
            return Ok(false);
        }
        let now = monotonic::now();
        let mut captured = lock(&self.captured);
        let since = match *captured {
            Some((since, last)) if now.since(last) < CAPTURE_GAP => since,
            _ => now,
        };
        *captured = Some((since, now));
        if now.since(since) < CAPTURE_PATIENCE {
            return Ok(false);
        }
        Err(Error::new(ErrorCode::Captured, ["query_mark"]))
    }
}
