//! Blocking waits that sleep.
//!
//! A vendor's blocking wait spins unless a flag of the event says that it sleeps (`cuEventSynchronize`), or
//! one of the context, which belongs to the whole process and is left alone. Marks do not carry the flag: the
//! device would interrupt the host at each of them. So a wait for a mark has a stream of the context's own
//! wait for the mark's event, and sleeps until an event of that stream: three more calls at each wait that
//! is not over when it begins.

use super::calls::Interface;
use super::context::Context;
use super::events::Event;
use super::handle::StreamHandle;
use super::lock;
use crate::core::error::Result;
use core::time::Duration;

/// The first pause after a blocking wait came back too early, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));

impl<A: Interface> Context<A> {
    /// Sleeps until `event`, as it is recorded now, within the context.
    ///
    /// # Safety
    ///
    /// As [`wait_event`](super::calls::Calls::wait_event) of the event's stream.
    pub(super) unsafe fn sleep_until(&self, api: &A, event: &Event) -> Result<()> {
        self.on_side_stream(api, |side| {
            // SAFETY: the side stream is the context's own, the event is held, and its stream as the caller
            // says.
            unsafe { api.wait_event(side, **event) }?;
            self.sleep_behind(api, side)
        })
    }

    /// Sleeps until what is queued on `stream` now is done, within the context.
    pub(super) fn sleep_behind(&self, api: &A, stream: StreamHandle) -> Result<()> {
        let event = self.events.take_sleeping(api)?;
        // SAFETY: the event is held, and the stream live: it is the context's own, or one that its
        // `StreamCore` or the program vouches for.
        let recorded = unsafe { api.record(*event, stream) };
        let slept = recorded.and_then(|()| {
            let mut pause = PAUSES.0;
            // SAFETY: as above.
            while !unsafe { api.synchronize_event(*event) }? {
                // The driver came back and says that the work is not done: without a pause this loop would
                // run hot. The status is asked as well, which ends the wait where only that tells.
                std::thread::sleep(pause);
                // SAFETY: as above.
                if unsafe { api.query_event(*event) }? {
                    break;
                }
                pause = (2 * pause).min(PAUSES.1);
            }
            Ok(())
        });
        self.events.give_sleeping_back(event);
        slept
    }

    /// Runs `calls` with a stream of the context's own that nobody else uses meanwhile.
    pub(super) fn on_side_stream<T>(
        &self,
        api: &A,
        calls: impl FnOnce(StreamHandle) -> Result<T>,
    ) -> Result<T> {
        let free = lock(&self.side_streams).pop();
        let side = free.map_or_else(|| api.create_stream(), Ok)?;
        let result = calls(side);
        // What is still queued on it is waited for by the next user: it has no work but waits for events.
        lock(&self.side_streams).push(side);
        result
    }
}
