//! What the tests share: an idle on a manual clock that records what it was asked for.
#![allow(dead_code, reason = "each test file uses its part")]

use gpu_async_reactor::{
    Clock, CompletionLine, CompletionPort, DurNs, Executor, Idle, ManualClock, MonoNs, Reactor,
    Result, RunStats,
};
use std::collections::VecDeque;

/// One request to an idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trace {
    /// Sleep until this instant, in ns.
    Sleep(u64),
    /// Park on a line for at most this long, in ns, and whether it ended ready.
    Park(u64, bool),
}

/// Sleeps and parks by moving a manual clock, after the next scripted action, if any.
pub struct TraceIdle<'c> {
    clock: &'c ManualClock,
    pub trace: Vec<Trace>,
    /// What happens while the thread is idle, one for each idle, at the middle of it.
    pub meanwhile: VecDeque<Box<dyn FnMut() + 'c>>,
    pub tell_threads_apart: bool,
    /// Whether a trace that does not end is a failure.
    pub forbid_endless: bool,
}

impl<'c> TraceIdle<'c> {
    pub fn new(clock: &'c ManualClock) -> Self {
        let (trace, meanwhile) = (Vec::new(), VecDeque::new());
        TraceIdle { clock, trace, meanwhile, tell_threads_apart: false, forbid_endless: true }
    }
}

impl Idle for TraceIdle<'_> {
    fn sleep_until(&mut self, at: MonoNs) {
        self.trace.push(Trace::Sleep(at.0));
        if let Some(mut meanwhile) = self.meanwhile.pop_front() {
            meanwhile();
        }
        self.clock.set(at);
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        assert!(!self.forbid_endless || self.trace.len() < 10_000, "parks without end");
        if !ready(line) {
            self.clock.advance(DurNs(bound.0 / 2));
            if let Some(mut meanwhile) = self.meanwhile.pop_front() {
                meanwhile();
            }
            if !ready(line) {
                self.clock.advance(DurNs(bound.0 - bound.0 / 2));
            }
        }
        let ready = ready(line);
        self.trace.push(Trace::Park(bound.0, ready));
        ready
    }

    fn thread_token(&self) -> Option<fn() -> usize> {
        fn token() -> usize {
            std::thread_local!(static HERE: u8 = const { 0 });
            HERE.with(|here| std::ptr::from_ref(here).addr())
        }
        self.tell_threads_apart.then_some(token as fn() -> usize)
    }
}

/// Runs what is left, with a park bound of 50 us.
pub fn noop_run<F: Future>(
    executor: &mut Executor<F>,
    reactor: &Reactor<'_, &ManualClock>,
    idle: &mut TraceIdle<'_>,
) -> Result<RunStats> {
    executor.run(reactor, idle, DurNs::from_us(50))
}

/// Drives a wait whose every step returns at once.
pub fn inline<F: Future>(wait: F) -> F::Output {
    gpu_async_reactor::run_inline(wait).expect("nothing pends on a manual clock")
}

/// What one pause of a [`ScriptPort`] takes.
pub const PAUSE_NS: u64 = 10;

/// A port whose status and word change at given times of a manual clock.
pub struct ScriptPort<'c> {
    clock: &'c ManualClock,
    pub done_at: u64,
    pub word_at: u64,
    pub fails_at: u64,
    pub calls: Vec<String>,
    /// Whether `calls` is written: not for long spins.
    pub record_calls: bool,
    pub last_query_at: u64,
    pub last_answer: bool,
    armed: bool,
}

impl<'c> ScriptPort<'c> {
    /// Work that is done at `done_at`, its word stored at the same time.
    pub fn new(clock: &'c ManualClock, done_at: u64) -> Self {
        ScriptPort {
            clock,
            done_at,
            word_at: done_at,
            fails_at: u64::MAX,
            calls: Vec::new(),
            record_calls: true,
            last_query_at: 0,
            last_answer: false,
            armed: false,
        }
    }

    pub fn log(&self) -> String {
        self.calls.join(" ")
    }

    fn now(&self) -> u64 {
        self.clock.monotonic_ns().0
    }

    fn note(&mut self, call: impl FnOnce() -> String) {
        if self.record_calls {
            self.calls.push(call());
        }
    }

    fn status(&mut self) -> Result<bool, &'static str> {
        self.last_query_at = self.now();
        if self.now() >= self.fails_at {
            return Err("device fault");
        }
        self.last_answer = self.now() >= self.done_at;
        Ok(self.last_answer)
    }
}

impl CompletionPort for ScriptPort<'_> {
    type Error = &'static str;

    fn begin(&mut self) {
        self.note(|| "begin".into());
        self.armed = false;
    }

    fn query(&mut self) -> Result<bool, &'static str> {
        self.note(|| "query".into());
        self.status()
    }

    async fn block(&mut self) -> Result<(), &'static str> {
        self.note(|| "block".into());
        self.clock.set(MonoNs(self.done_at));
        Ok(())
    }

    async fn poll(&mut self) -> Result<(), &'static str> {
        self.note(|| "poll".into());
        self.clock.set(MonoNs(self.done_at.min(self.fails_at)));
        self.status().map(|done| assert!(done))
    }

    fn arm(&mut self) -> Result<(), &'static str> {
        assert!(!self.armed, "a wait arms once");
        self.armed = true;
        self.note(|| "arm".into());
        Ok(())
    }

    async fn park(&mut self, bound: DurNs) -> Result<bool, &'static str> {
        assert!(self.armed && bound.0 > 0, "a park is armed and has a bound");
        self.note(|| format!("park:{}", bound.0));
        self.clock.set(MonoNs(self.word_at.min(self.now() + bound.0)));
        Ok(self.now() >= self.word_at)
    }

    fn seen(&mut self) -> bool {
        self.note(|| "seen".into());
        self.armed && self.now() >= self.word_at
    }

    async fn pause(&mut self) {
        self.note(|| "pause".into());
        self.clock.advance(DurNs(PAUSE_NS));
    }
}
