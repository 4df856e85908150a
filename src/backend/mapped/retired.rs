//! What a dropped stream of the program's leaves while its work is not done.
//!
//! The program may destroy its stream once everything of it was dropped. So nothing here names the stream:
//! there is an event that stands for its last mark, and what waits for that. Where events read their streams
//! ([`EVENTS_READ_STREAMS`](super::calls::Calls::EVENTS_READ_STREAMS)), it is an event of a stream of the
//! context's own, which was told to wait for the last mark while the program's stream was still there.

use super::calls::Interface;
use super::context::Context;
use super::events::Event;
use super::handle::StreamHandle;
use super::lock;
use super::stream::StreamCore;
use crate::backend::lease::{Reclaim, is_of_the_caller};
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::line::{SharedLine, Slot};
use crate::core::pool::SlotLease;
use alloc::{sync::Arc, vec::Vec};

pub(super) struct Retired {
    pub(super) event: Event,
    /// The last number, and where the device stores it.
    pub(super) number: u64,
    pub(super) line: SharedLine,
    pub(super) slot: Slot,
    /// Buffers that wait for the event at the latest.
    pub(super) reclaim: Reclaim,
    /// The slot, where no device stores its numbers: the host does once the event says so.
    pub(super) lease: Option<SlotLease>,
}

impl Retired {
    /// Whether its word shows that it may be over, or there is no word to show it.
    fn may_be_over(&self) -> bool {
        self.lease.is_some() || (*self.line).as_ref().load(self.slot) >= self.number
    }
}

impl<A: Interface> Context<A> {
    pub(super) fn retire(&self, retired: Retired) {
        lock(&self.retired).push(retired);
    }

    /// Lets go of what is over, of `looks` retired streams; where `by_word`, of those whose word is there,
    /// so that no status is asked in vain.
    pub(super) fn sweep_retired(&self, looks: usize, by_word: bool) {
        let looked: Vec<Retired> = {
            let mut retired = lock(&self.retired);
            let looks = looks.min(retired.len());
            retired.drain(..looks).collect()
        };
        for retired in looked {
            if by_word && !retired.may_be_over() {
                self.retire(retired);
                continue;
            }
            // No lock is held: a status call may take long.
            // SAFETY: the event is held. Where events read their streams, its stream is the context's own.
            let asked = self.home.within("sweep", |api| unsafe { api.query_event(*retired.event) });
            match asked {
                Ok(false) => self.retire(retired),
                Err(error) if is_of_the_caller(error.code()) => self.retire(retired),
                Ok(true) => self.end(retired, Ok(true)),
                Err(error) => {
                    self.count_failure::<()>(Err(error.clone()));
                    self.end(retired, Err(error));
                }
            }
        }
    }

    /// Lets go of `retired`, whose last status this is.
    fn end(&self, retired: Retired, status: Result<bool>) {
        retired.reclaim.finish(|_| status.clone());
        let is_done = matches!(status, Ok(true));
        if let Some(lease) = retired.lease {
            if is_done {
                (*retired.line).as_ref().store(retired.slot, retired.number);
            }
            self.give_slot_back(lease, !is_done);
        }
        self.events.give_back([retired.event]);
    }

    /// Has a stream of the context's own wait for all that this library has queued in it, and sleeps until
    /// that is done. No call is made that concerns other streams of the context: waiting for all of it
    /// would break every capture there.
    ///
    /// # Errors
    ///
    /// [`Captured`](crate::ErrorCode::Captured) where a stream is captured whose marks can then not be
    /// waited for, and the driver's status.
    pub(super) fn settle(&self) -> Result<()> {
        let streams = self.live_streams();
        self.home.check("close")?;
        self.home.within("close", |api| {
            // One that is there, so that none is made to be destroyed at once.
            let has_side = !lock(&self.side_streams).is_empty();
            let idle = if has_side { None } else { lock(&self.idle).pop() };
            let Some(idle) = idle else {
                return self.on_side_stream(api, |side| self.settle_on(api, side, &streams));
            };
            // SAFETY: from `create_stream`; only a close destroys it, which takes it out of the list.
            let settled = match unsafe { api.is_capturing(idle) } {
                Ok(false) => self.settle_on(api, idle, &streams),
                Ok(true) => Err(Error::new(ErrorCode::Captured, ["close"])),
                Err(error) => Err(error),
            };
            lock(&self.idle).push(idle);
            settled
        })
    }

    /// Has `side`, a stream of the context's own, wait for everything, and sleeps behind that.
    fn settle_on(&self, api: &A, side: StreamHandle, streams: &[Arc<StreamCore<A>>]) -> Result<()> {
        // Recorded again and again: a wait is for the event as it is recorded then.
        let event = self.events.take(api)?;
        let idle = lock(&self.idle).clone();
        let waited = idle.into_iter().try_for_each(|idle| {
            // SAFETY: both streams are the context's own, and destroyed behind this alone; the event is held.
            unsafe {
                if api.is_capturing(idle)? {
                    return Err(Error::new(ErrorCode::Captured, ["close"]));
                }
                api.record(*event, idle)?;
                api.wait_event(side, *event)
            }
        });
        self.events.give_back([event]);
        waited?;
        streams.iter().try_for_each(|stream| stream.have_wait(api, side))?;
        let retired: Vec<Event> =
            lock(&self.retired).iter().map(|retired| retired.event.clone()).collect();
        for event in retired {
            // SAFETY: as in `sweep_retired`.
            unsafe { api.wait_event(side, *event) }?;
        }
        self.sleep_behind(api, side)
    }
}
