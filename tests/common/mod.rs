//! What the tests share: an idle on a manual clock that records what it was asked for.
#![allow(dead_code, reason = "each test file uses its part")]

use gpu_async_reactor::{
    CompletionLine, DurNs, Executor, Idle, ManualClock, MonoNs, Reactor, Result, RunStats,
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
}

impl<'c> TraceIdle<'c> {
    pub fn new(clock: &'c ManualClock) -> Self {
        let (trace, meanwhile) = (Vec::new(), VecDeque::new());
        TraceIdle { clock, trace, meanwhile, tell_threads_apart: false }
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
        assert!(self.trace.len() < 10_000, "parks without end");
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
