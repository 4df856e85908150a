//! Captures: streams whose work is recorded instead of run, and the calls that break them.
//!
//! Source: the CUDA driver API's pages of `cuThreadExchangeStreamCaptureMode`,
//! `cuStreamBeginCapture`, `cuStreamEndCapture` and `cuStreamIsCapturing`, which HIP follows.
//!
//! | the calling thread's mode | forbidden while |
//! |---|---|
//! | global | this thread began a capture that is not relaxed, or any other a global one |
//! | thread-local | this thread began a capture that is not relaxed |
//! | relaxed | never |
//!
//! A forbidden call has no effect but one: it invalidates the captures that forbid it.
//!
//! Beside these, a wait for a whole context breaks captures in any mode, and so do status calls of some
//! events by some versions: [`Traits`](crate::Traits).

use crate::driver::Call;
use crate::refusal::{Outcome, Refusal};
use crate::state::State;
use std::thread::ThreadId;

/// A thread's mode, or a capture's.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Mode {
    /// Disturbed by calls of any thread.
    #[default]
    Global,
    /// Disturbed by calls of the thread that captures.
    ThreadLocal,
    /// Not disturbed.
    Relaxed,
}

impl Mode {
    /// The mode of the vendors' number.
    ///
    /// # Errors
    ///
    /// That there is none.
    pub fn of(number: i32) -> Outcome<Self> {
        match number {
            0 => Ok(Mode::Global),
            1 => Ok(Mode::ThreadLocal),
            2 => Ok(Mode::Relaxed),
            _ => Err(Refusal::InvalidValue),
        }
    }

    /// The vendors' number.
    #[must_use]
    pub fn number(self) -> i32 {
        self as i32
    }
}

/// The status of a stream, by the vendors' numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum CaptureStatus {
    /// It runs its work.
    None,
    /// It records its work.
    Active,
    /// It did, and a call has broken the capture.
    Invalidated,
}

pub(crate) struct Capture {
    /// The stream that it began on.
    pub(crate) origin: u64,
    pub(crate) thread: ThreadId,
    pub(crate) mode: Mode,
    pub(crate) invalidated: bool,
    pub(crate) recorded: u64,
}

impl State {
    /// Refuses a call that is potentially unsafe during a capture, and invalidates what forbids it.
    pub(crate) fn guard_as(&mut self, entry: &str) -> Outcome {
        let me = std::thread::current().id();
        let mode = self.thread().mode;
        let forbids = |capture: &Capture| match mode {
            Mode::Relaxed => false,
            Mode::ThreadLocal => capture.thread == me && capture.mode != Mode::Relaxed,
            Mode::Global if capture.thread == me => capture.mode != Mode::Relaxed,
            Mode::Global => capture.mode == Mode::Global,
        };
        let broken = self.captures.iter().filter(|(_, capture)| forbids(capture));
        let broken: Vec<u64> = broken.map(|(&id, _)| id).collect();
        if broken.is_empty() {
            return Ok(());
        }
        for id in broken {
            self.invalidate(id, entry);
        }
        Err(Refusal::CaptureUnsupported)
    }

    pub(crate) fn invalidate(&mut self, capture: u64, entry: &str) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            if !capture.invalidated {
                capture.invalidated = true;
                self.log(format!("{entry}: a capture was invalidated"));
            }
        }
    }

    /// The captures of streams that synchronise with the legacy stream of `context`.
    fn implicit_captures(&self, context: u64) -> Vec<u64> {
        let streams = self.streams.values();
        let blocking = streams.filter(|stream| stream.context == context && stream.blocking);
        blocking.filter_map(|stream| stream.capture).collect()
    }

    /// Refuses the use of the legacy stream while a stream that synchronises with it is captured.
    pub(crate) fn guard_legacy(&mut self, stream: u64, entry: &str) -> Outcome {
        if !self.streams[&stream].legacy {
            return Ok(());
        }
        let broken = self.implicit_captures(self.streams[&stream].context);
        if broken.is_empty() {
            return Ok(());
        }
        for capture in broken {
            self.invalidate(capture, entry);
        }
        Err(Refusal::CaptureImplicit)
    }

    /// Refuses to ask for, or wait for, what is recorded only.
    pub(crate) fn guard_status(&mut self, stream: u64, entry: &str) -> Outcome {
        self.guard_legacy(stream, entry)?;
        match self.streams[&stream].capture {
            None => Ok(()),
            Some(capture) => {
                let before = self.captures[&capture].invalidated;
                self.invalidate(capture, entry);
                let refusal =
                    if before { Refusal::CaptureInvalidated } else { Refusal::CaptureUnsupported };
                Err(refusal)
            }
        }
    }

    /// The capture that work for `stream` goes into, if any.
    pub(crate) fn capture_of(&self, stream: u64) -> Outcome<Option<u64>> {
        match self.streams[&stream].capture {
            Some(capture) if self.captures[&capture].invalidated => {
                Err(Refusal::CaptureInvalidated)
            }
            capture => Ok(capture),
        }
    }
}

impl Call {
    /// Refuses this call if it is forbidden during a capture.
    pub(crate) fn guard(&mut self) -> Outcome {
        let entry = self.entry;
        self.guard_as(entry)
    }

    /// Begins a capture.
    ///
    /// # Errors
    ///
    /// The legacy stream, a stream that is captured already, a sticky fault.
    pub fn begin_capture(&mut self, stream: u64, mode: i32) -> Outcome {
        let mode = Mode::of(mode)?;
        let stream = self.stream(stream)?;
        if self.streams[&stream].legacy {
            return Err(Refusal::CaptureUnsupported);
        }
        if self.streams[&stream].capture.is_some() {
            return Err(Refusal::IllegalState);
        }
        let id = self.new_handle();
        let thread = std::thread::current().id();
        let capture = Capture { origin: stream, thread, mode, invalidated: false, recorded: 0 };
        self.captures.insert(id, capture);
        self.streams.get_mut(&stream).expect("found above").capture = Some(id);
        Ok(())
    }

    /// Ends a capture and returns its graph, or 0 with a refusal where it was invalidated.
    ///
    /// # Errors
    ///
    /// That it was invalidated, began elsewhere, or not at all.
    pub fn end_capture(&mut self, stream: u64) -> Outcome<u64> {
        let stream = self.stream(stream)?;
        let id = self.streams[&stream].capture.ok_or(Refusal::IllegalState)?;
        let capture = &self.captures[&id];
        if capture.origin != stream {
            return Err(Refusal::CaptureUnmatched);
        }
        let mine = capture.thread == std::thread::current().id();
        if capture.mode != Mode::Relaxed && !mine {
            return Err(Refusal::CaptureWrongThread);
        }
        let capture = self.captures.remove(&id).expect("looked at above");
        for stream in self.streams.values_mut().filter(|stream| stream.capture == Some(id)) {
            stream.capture = None;
        }
        if capture.invalidated {
            return Err(Refusal::CaptureInvalidated);
        }
        let graph = self.new_handle();
        self.graphs.insert(graph, capture.recorded);
        Ok(graph)
    }

    /// The capture status of a stream. Disturbs nothing.
    ///
    /// # Errors
    ///
    /// That the legacy stream is asked about while a stream that synchronises with it is captured.
    pub fn capture_status(&mut self, stream: u64) -> Outcome<CaptureStatus> {
        let stream = self.stream(stream)?;
        if self.streams[&stream].legacy {
            let context = self.streams[&stream].context;
            if !self.implicit_captures(context).is_empty() {
                return Err(Refusal::CaptureImplicit);
            }
        }
        let capture = self.streams[&stream].capture.map(|id| &self.captures[&id]);
        Ok(match capture {
            None => CaptureStatus::None,
            Some(capture) if capture.invalidated => CaptureStatus::Invalidated,
            Some(_) => CaptureStatus::Active,
        })
    }

    /// Sets the calling thread's mode and returns the one before.
    ///
    /// # Errors
    ///
    /// That there is no such mode.
    pub fn exchange_mode(&mut self, mode: i32) -> Outcome<i32> {
        let mode = Mode::of(mode)?;
        Ok(std::mem::replace(&mut self.thread().mode, mode).number())
    }

    /// Destroys a graph.
    ///
    /// # Errors
    ///
    /// That there is no such graph.
    pub fn destroy_graph(&mut self, graph: u64) -> Outcome {
        self.graphs.remove(&graph).map(|_| ()).ok_or(Refusal::InvalidValue)
    }
}
