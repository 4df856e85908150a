//! What stands for everything of ours on a stream: for a close, and when a stream of the program's is dropped.

use super::{Point, StreamCore};
use crate::backend::mapped::calls::Interface;
use crate::backend::mapped::events::Event;
use crate::backend::mapped::handle::StreamHandle;
use crate::backend::mapped::lock;
use crate::backend::mapped::retired::Retired;
use crate::core::error::Result;
use crate::core::pool::SlotLease;
use core::sync::atomic::Ordering;

impl<A: Interface> StreamCore<A> {
    /// The event that stands for everything of ours on the stream, if anything may be outstanding, and whether
    /// it is the last one of the list.
    fn last_event(&self, api: &A, call: &str) -> Result<Option<(Event, bool)>> {
        let issued = self.issued.load(Ordering::Acquire);
        // A store may be on its way whose mark was refused, since its event could not be recorded.
        let is_listed = lock(&self.queue).landing <= issued;
        let last = match self.point_of(issued)? {
            Point::Done if is_listed => return Ok(None),
            Point::Event { event, .. } if is_listed => Some(event),
            _ => None,
        };
        if A::EVENTS_READ_STREAMS || last.is_none() {
            self.check(call)?;
            self.check_not_captured(api, call)?;
        }
        if let Some(event) = last {
            return Ok(Some((event, true)));
        }
        let event = self.context.events.take(api)?;
        // SAFETY: both are live, as in `queue_mark`.
        match unsafe { api.record(*event, self.handle) } {
            Ok(()) => Ok(Some((event, false))),
            Err(error) => {
                self.context.events.give_back([event]);
                Err(error)
            }
        }
    }

    /// Has `side`, a stream of the context's own, wait for everything of ours on this one.
    pub(in crate::backend::mapped) fn have_wait(&self, api: &A, side: StreamHandle) -> Result<()> {
        let Some((event, is_listed)) = self.last_event(api, "close")? else { return Ok(()) };
        // SAFETY: the event is held, and the stream of its record live, as in `check_not_captured`.
        let waits = unsafe { api.wait_event(side, *event) };
        if !is_listed {
            self.context.events.give_back([event]);
        }
        waits
    }

    /// Leaves what waits for the stream of the program's to the context, since the stream may be gone
    /// behind this.
    pub(super) fn retire(&mut self, lease: &mut Option<SlotLease>) -> Result<()> {
        let context = self.context.clone();
        let event = context.home.within("drop a stream", |api| {
            let Some((event, is_listed)) = self.last_event(api, "drop a stream")? else {
                return Ok(None);
            };
            if !A::EVENTS_READ_STREAMS {
                if is_listed {
                    // It goes to the context, and not back to the pool.
                    lock(&self.outstanding).pop_back();
                }
                return Ok(Some(event));
            }
            let own = context.events.take(api)?;
            let moved = context.on_side_stream(api, |side| {
                // SAFETY: the side stream is the context's own, both events are held, and the stream of the
                // first one's record lives while this core is dropped.
                unsafe { api.wait_event(side, *event).and_then(|()| api.record(*own, side)) }
            });
            let (unused, moved) = match moved {
                Ok(()) => ((!is_listed).then_some(event), Ok(Some(own))),
                Err(error) => (Some(own), Err(error)),
            };
            context.events.give_back(unused);
            moved
        })?;
        let Some(event) = event else { return Ok(()) };
        let lease = if context.form.is_none() { lease.take() } else { None };
        context.retire(Retired {
            event,
            number: *self.issued.get_mut(),
            line: self.line.clone(),
            slot: self.slot,
            reclaim: core::mem::take(&mut self.reclaim),
            lease,
        });
        Ok(())
    }
}
