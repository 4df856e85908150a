//! Events: points of streams with a handle.

use crate::driver::Call;
use crate::refusal::{Outcome, Refusal};
use crate::state::{Event, State};
use crate::work::Op;

impl State {
    fn event(&mut self, handle: u64) -> Outcome<&mut Event> {
        let gone = !self.events.contains_key(&handle);
        if gone && self.was_handle(handle) {
            self.log("an event was used after it was destroyed");
        }
        self.events.get_mut(&handle).ok_or(Refusal::InvalidHandle)
    }

    /// The context of an event, if this call may use it.
    fn sound_event(&mut self, handle: u64) -> Outcome<u64> {
        let owner = self.event(handle)?.context;
        self.sound_owner(owner)?;
        Ok(owner)
    }
}

impl Call {
    /// A new event in the current context.
    ///
    /// # Errors
    ///
    /// A sticky fault.
    pub fn create_event(&mut self) -> Outcome<u64> {
        let context = self.sound_current()?;
        let handle = self.new_handle();
        let event = Event { context, point: None, recorded: false, capture: None };
        self.events.insert(handle, event);
        Ok(handle)
    }

    /// Destroys an event, recorded or not.
    ///
    /// # Errors
    ///
    /// That there is no such event, or a sticky fault.
    pub fn destroy_event(&mut self, handle: u64) -> Outcome {
        self.sound_event(handle)?;
        self.events.remove(&handle);
        Ok(())
    }

    /// Makes an event the present end of a stream.
    ///
    /// # Errors
    ///
    /// Handles of two contexts, a sticky fault, a broken capture.
    pub fn record_event(&mut self, event: u64, stream: u64) -> Outcome {
        let stream = self.stream(stream)?;
        let owner = self.event(event)?.context;
        if owner != self.streams[&stream].context {
            return Err(Refusal::InvalidHandle);
        }
        let point = self.enqueue(stream, vec![Op::Mark])?;
        let capture = self.streams[&stream].capture;
        let event = self.event(event)?;
        event.point = point;
        event.recorded = true;
        event.capture = capture;
        Ok(())
    }

    /// Refuses to ask for, or wait for, an event that was recorded in a capture.
    fn guard_event(&mut self, handle: u64) -> Outcome {
        let Some(capture) = self.event(handle)?.capture else { return Ok(()) };
        let entry = self.entry;
        self.invalidate(capture, entry);
        Err(Refusal::CapturedEvent)
    }

    /// Whether the work before an event is over.
    ///
    /// # Errors
    ///
    /// That it is not, a sticky fault, or that a capture forbids to ask.
    pub fn query_event(&mut self, handle: u64) -> Outcome {
        self.stand_still();
        self.sound_event(handle)?;
        self.guard()?;
        self.guard_event(handle)?;
        let unrecorded_is_ready = self.rules.unrecorded_is_ready;
        let event = self.event(handle)?;
        let over = match event.point {
            None => unrecorded_is_ready || event.recorded,
            Some(point) => self.has_come(point),
        };
        if over { Ok(()) } else { Err(Refusal::NotReady) }
    }

    /// Waits until the work before an event, as it is recorded now, is over.
    ///
    /// # Errors
    ///
    /// A sticky fault, or that a capture forbids to wait.
    pub fn synchronize_event(&mut self, handle: u64) -> Outcome {
        let context = self.sound_event(handle)?;
        self.guard()?;
        self.guard_event(handle)?;
        match self.event(handle)?.point {
            None => Ok(()),
            Some(point) => self.settle_point(context, point),
        }
    }

    /// Has a stream wait for an event, as it is recorded now.
    ///
    /// # Errors
    ///
    /// A sticky fault, or a dependency that a capture forbids.
    pub fn wait_event(&mut self, stream: u64, event: u64) -> Outcome {
        let entry = self.entry;
        let stream = self.stream(stream)?;
        self.guard_legacy(stream, entry)?;
        let (point, recorded_in) = {
            let event = self.event(event)?;
            (event.point, event.capture)
        };
        let capture = self.capture_of(stream)?;
        match (capture, recorded_in) {
            (None, Some(other)) if self.captures.contains_key(&other) => {
                // The stream joins the capture.
                self.streams.get_mut(&stream).expect("found above").capture = Some(other);
                Ok(())
            }
            (_, Some(other)) if !self.captures.contains_key(&other) => Err(Refusal::CapturedEvent),
            (Some(own), Some(other)) if own == other => Ok(()),
            (Some(own), Some(other)) => {
                self.invalidate(own, entry);
                self.invalidate(other, entry);
                Err(Refusal::CaptureMerge)
            }
            (Some(own), None) => {
                self.invalidate(own, entry);
                Err(Refusal::CaptureIsolation)
            }
            (None, _) => {
                let wait = point.and_then(|point| self.wait_op(stream, point));
                self.enqueue(stream, vec![wait.unwrap_or(Op::Mark)])?;
                Ok(())
            }
        }
    }
}
