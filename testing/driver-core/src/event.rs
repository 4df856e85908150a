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
    pub fn create_event(&mut self, flags: u32) -> Outcome<u64> {
        let context = self.sound_current()?;
        let handle = self.new_handle();
        let (point, capture, last_stream) = (None, None, None);
        self.events.insert(handle, Event { context, point, capture, flags, last_stream });
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
        event.capture = capture;
        event.last_stream = Some(stream);
        Ok(())
    }

    /// Refuses to ask for, or wait for, an event that was recorded in a capture, and by some versions one
    /// whose stream is captured now: `breaks` is what that is refused with.
    fn guard_event(&mut self, handle: u64, breaks: Option<Refusal>) -> Outcome {
        self.read_stream_of(handle, breaks)?;
        let Some(capture) = self.event(handle)?.capture else { return Ok(()) };
        let entry = self.entry;
        self.invalidate(capture, entry);
        Err(Refusal::CapturedEvent)
    }

    /// What a driver does whose events keep a pointer to the stream of their last record.
    fn read_stream_of(&mut self, handle: u64, breaks: Option<Refusal>) -> Outcome {
        let last = self.event(handle)?.last_stream;
        let Some(last) = last.filter(|_| self.traits().event_reads_its_stream) else {
            return Ok(());
        };
        let entry = self.entry;
        if !self.is_there(last) {
            self.log(format!("{entry}: freed memory was read: the event's stream was destroyed"));
            return Ok(());
        }
        let active = self.streams[&last].capture.filter(|id| !self.captures[id].invalidated);
        match (active, breaks) {
            (Some(capture), Some(refusal)) => {
                self.invalidate(capture, entry);
                Err(refusal)
            }
            _ => Ok(()),
        }
    }

    /// Whether a stream was not destroyed.
    fn is_there(&self, stream: u64) -> bool {
        self.streams.get(&stream).is_some_and(|stream| !stream.destroyed)
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
        let breaks = self.traits().event_query_breaks_capture;
        self.guard_event(handle, breaks.then_some(Refusal::CapturedEvent))?;
        self.submit_batched();
        // One that was never recorded is over.
        let point = self.event(handle)?.point;
        let over = point.is_none_or(|point| self.has_come(point));
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
        let breaks = self.traits().event_wait_breaks_capture;
        self.guard_event(handle, breaks.then_some(Refusal::CaptureUnsupported))?;
        let sleeping = self.traits().sleeping_flags;
        let event = self.event(handle)?;
        let sleeps = sleeping.sleep(event.flags);
        match event.point {
            None => Ok(()),
            Some(point) if sleeps => self.settle_point(context, point),
            Some(point) => self.spin_to_point(context, point),
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
        let (point, recorded_in, last) = {
            let event = self.event(event)?;
            (event.point, event.capture, event.last_stream)
        };
        if self.traits().event_reads_its_stream && last.is_some_and(|last| !self.is_there(last)) {
            // Taken for an event that is over.
            return Ok(());
        }
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
