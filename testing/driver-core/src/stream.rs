//! Streams: what their handles mean, and what is queued on them.
//!
//! The handles 0 (null) and 1 (legacy) name one stream of the current context, 2 names one stream for
//! each thread. The legacy stream waits for all streams of its context that were not created
//! non-blocking, the per-thread ones included, and they for it.

use crate::abi::{HostData, HostFunction};
use crate::driver::Call;
use crate::refusal::{Outcome, Refusal};
use crate::rules::{GreenStream, UnknownStream};
use crate::state::{Point, State, Stream, Waiter};
use crate::work::Op;
use gpu_async_reactor::backend::software::Hang;

/// The null stream's handle.
pub const NULL: u64 = 0;
/// The legacy default stream's handle.
pub const LEGACY: u64 = 1;
/// The handle of the calling thread's default stream.
pub const PER_THREAD: u64 = 2;

/// The name under which markers are counted that status calls queue.
pub const MARKER: &str = "a status call's marker";

impl State {
    fn new_stream(&mut self, context: u64, blocking: bool, legacy: bool) -> Outcome<u64> {
        let queue = self.software()?.stream().map_err(|_| Refusal::OutOfMemory)?;
        let handle = self.new_handle();
        let stream = Stream {
            context,
            queue,
            queued: 0,
            done: 0,
            blocking,
            legacy,
            destroyed: false,
            reset: false,
            capture: None,
            holds: Vec::new(),
        };
        self.streams.insert(handle, stream);
        Ok(handle)
    }

    fn legacy(&mut self, context: u64) -> Outcome<u64> {
        if let Some(stream) = self.contexts[&context].legacy {
            return Ok(stream);
        }
        let stream = self.new_stream(context, false, true)?;
        self.contexts.get_mut(&context).expect("there").legacy = Some(stream);
        Ok(stream)
    }

    fn per_thread(&mut self, context: u64) -> Outcome<u64> {
        let thread = std::thread::current().id();
        if let Some(&stream) = self.contexts[&context].per_thread.get(&thread) {
            return Ok(stream);
        }
        let stream = self.new_stream(context, true, false)?;
        let context = self.contexts.get_mut(&context).expect("there");
        context.per_thread.insert(thread, stream);
        Ok(stream)
    }

    /// The stream of `handle`, if this call may use it.
    pub(crate) fn stream(&mut self, handle: u64) -> Outcome<u64> {
        match handle {
            NULL | LEGACY => {
                let context = self.sound_current()?;
                self.legacy(context)
            }
            PER_THREAD => {
                let context = self.sound_current()?;
                self.per_thread(context)
            }
            _ => {
                let owner = self.stream_owner(handle)?;
                self.sound_owner(owner)?;
                Ok(handle)
            }
        }
    }

    /// The context of a stream that was created.
    fn stream_owner(&mut self, handle: u64) -> Outcome<u64> {
        match self.streams.get(&handle) {
            Some(stream) if !stream.destroyed => Ok(stream.context),
            _ => {
                if self.was_handle(handle) {
                    self.log("a stream was used after it was destroyed");
                }
                Err(match self.traits().unknown_stream {
                    UnknownStream::InvalidHandle => Refusal::InvalidHandle,
                    UnknownStream::ContextDestroyed => Refusal::ContextDestroyed,
                    UnknownStream::Followed => {
                        self.log("a stream's handle that names nothing was followed");
                        Refusal::ContextDestroyed
                    }
                })
            }
        }
    }

    pub(crate) fn has_come(&self, point: Point) -> bool {
        self.streams.get(&point.stream).is_none_or(|stream| stream.done >= point.count)
    }

    /// All that is queued on `stream`.
    pub(crate) fn end_of(&self, stream: u64) -> Point {
        Point { stream, count: self.streams[&stream].queued }
    }

    /// The work that `stream` waits for since one of the two is the legacy stream.
    fn implied(&self, stream: u64) -> Vec<Point> {
        let own = &self.streams[&stream];
        let others = self.streams.iter().filter(|(other, _)| **other != stream);
        let implied = others.filter(|(_, other)| {
            other.context == own.context
                && ((own.legacy && other.blocking) || (own.blocking && other.legacy))
        });
        implied.map(|(&other, _)| self.end_of(other)).filter(|end| !self.has_come(*end)).collect()
    }

    /// The hang at which `stream` waits for `point`, unless that has come.
    pub(crate) fn wait_op(&mut self, stream: u64, point: Point) -> Option<Op> {
        if self.has_come(point) {
            return None;
        }
        let hang = Hang::new();
        let context = self.streams[&stream].context;
        self.waiters.push(Waiter { point, context, hang: hang.clone() });
        Some(Op::Stand(hang))
    }

    /// Releases the work that waits for what has come, or for a context that has faulted.
    pub(crate) fn release_waiters(&mut self) {
        let waiters = std::mem::take(&mut self.waiters);
        let (due, left): (Vec<_>, Vec<_>) = waiters.into_iter().partition(|waiter| {
            let context = &self.contexts[&waiter.context];
            context.fault.is_some() || context.destroyed || self.has_come(waiter.point)
        });
        self.waiters = left;
        due.iter().for_each(|waiter| waiter.hang.release());
    }

    /// Releases the work of `context` that stands until released.
    pub(crate) fn release_holds(&mut self, context: u64) {
        let streams = self.streams.values_mut().filter(|stream| stream.context == context);
        streams.flat_map(|stream| stream.holds.drain(..)).for_each(|hold| hold.release());
        self.release_waiters();
    }

    /// Takes a stream's handle away. What is queued still runs.
    pub(crate) fn bury_stream(&mut self, handle: u64) {
        let stream = self.streams.get_mut(&handle).expect("found by the caller");
        stream.destroyed = true;
        let over = stream.done == stream.queued;
        if let Some(capture) = stream.capture.take() {
            self.invalidate(capture, "a stream was destroyed");
            if self.captures.get(&capture).is_some_and(|capture| capture.origin == handle) {
                self.captures.remove(&capture);
                for stream in self.streams.values_mut().filter(|s| s.capture == Some(capture)) {
                    stream.capture = None;
                }
            }
        }
        if over {
            self.streams.remove(&handle);
        }
    }
}

impl Call {
    /// A new stream in the current context.
    ///
    /// # Errors
    ///
    /// A sticky fault.
    pub fn create_stream(&mut self, non_blocking: bool) -> Outcome<u64> {
        let context = self.sound_current()?;
        self.new_stream(context, !non_blocking, false)
    }

    /// Destroys a stream, at once and whatever it is doing. Its work still runs.
    ///
    /// # Errors
    ///
    /// That there is no such stream, or a sticky fault.
    pub fn destroy_stream(&mut self, handle: u64) -> Outcome {
        if handle <= PER_THREAD {
            return Err(Refusal::InvalidHandle);
        }
        let stream = self.stream(handle)?;
        self.bury_stream(stream);
        Ok(())
    }

    /// Whether everything queued is over.
    ///
    /// # Errors
    ///
    /// That it is not, a sticky fault, or that a capture forbids to ask.
    pub fn query_stream(&mut self, handle: u64) -> Outcome {
        self.stand_still();
        let stream = self.stream(handle)?;
        self.guard()?;
        let entry = self.entry;
        self.guard_status(stream, entry)?;
        self.submit_batched();
        if self.streams[&stream].legacy
            && self.traits().legacy_query_queues_marker
            && !self.implied(stream).is_empty()
        {
            self.injections.count(MARKER);
            self.enqueue(stream, vec![Op::Mark])?;
        }
        let end = self.end_of(stream);
        if self.has_come(end) { Ok(()) } else { Err(Refusal::NotReady) }
    }

    /// Waits until everything queued so far is over.
    ///
    /// # Errors
    ///
    /// A sticky fault, or that a capture forbids to wait.
    pub fn synchronize_stream(&mut self, handle: u64) -> Outcome {
        let stream = self.stream(handle)?;
        self.guard()?;
        let entry = self.entry;
        self.guard_status(stream, entry)?;
        let end = self.end_of(stream);
        self.spin_to_point(self.streams[&stream].context, end)
    }

    /// The same as [`settle_point`](Self::settle_point), on the processor all the while.
    pub(crate) fn spin_to_point(&mut self, context: u64, point: Point) -> Outcome {
        self.submit_batched();
        self.spin_until(|state| state.is_dead(context) || state.has_come(point));
        self.check_fault(context)?;
        self.flush(context);
        Ok(())
    }

    /// Waits until `point` has come or its context has faulted.
    pub(crate) fn settle_point(&mut self, context: u64, point: Point) -> Outcome {
        self.submit_batched();
        self.wait_until(|state| state.is_dead(context) || state.has_come(point));
        self.check_fault(context)?;
        self.flush(context);
        Ok(())
    }

    /// The context of a stream; for a special handle the current one.
    ///
    /// # Errors
    ///
    /// That there is none, or that this version does not tell that of a green context's stream.
    pub fn stream_context(&mut self, handle: u64) -> Outcome<u64> {
        if let Some(&green) = self.green.get(&handle) {
            return match self.traits().green_stream {
                GreenStream::Unsupported => Err(Refusal::NotSupported),
                GreenStream::ContextOfItsOwn => Ok(green),
            };
        }
        if handle <= PER_THREAD { self.current() } else { self.stream_owner(handle) }
    }

    /// The device of a stream; for a special handle that of the current context.
    ///
    /// # Errors
    ///
    /// That there is none.
    pub fn stream_device(&mut self, handle: u64) -> Outcome<i32> {
        let context = self.stream_context(handle)?;
        Ok(self.contexts[&context].device)
    }

    /// Queues a host function. It is not called once the context has a sticky fault.
    ///
    /// # Errors
    ///
    /// A null function, a sticky fault, a broken capture.
    pub fn launch_host(&mut self, stream: u64, function: HostFunction, data: HostData) -> Outcome {
        if function.is_null() {
            return Err(Refusal::InvalidValue);
        }
        let stream = self.stream(stream)?;
        self.enqueue(stream, vec![Op::Host(function, data)])?;
        Ok(())
    }

    /// Queues work behind what is there, as one, or records it. Returns its end, or none where it
    /// was recorded.
    pub(crate) fn enqueue(&mut self, stream: u64, ops: Vec<Op>) -> Outcome<Option<Point>> {
        let entry = self.entry;
        self.guard_legacy(stream, entry)?;
        if let Some(capture) = self.capture_of(stream)? {
            self.captures.get_mut(&capture).expect("active").recorded += ops.len() as u64;
            return Ok(None);
        }
        let implied = self.implied(stream);
        let waits: Vec<_> =
            implied.into_iter().filter_map(|point| self.wait_op(stream, point)).collect();
        let driver = self.driver;
        let batch = self.injections.batching.then(Hang::new);
        self.batched.extend(batch.clone());
        let batch = batch.map(Op::Stand);
        let work = Op::work(driver, stream, batch.into_iter().chain(waits).chain(ops));
        let pieces = work.1;
        let entry = self.streams.get_mut(&stream).expect("resolved by the caller");
        entry.queue.queue(work.0).map_err(|_| Refusal::NotInitialized)?;
        entry.queued += pieces;
        Ok(Some(self.end_of(stream)))
    }
}
