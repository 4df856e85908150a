//! This crate's executor, in the ways in which a program may use it.

use super::workload::{Countdown, Kind, Subject, yielding};
use crate::host::{SpinIdle, SystemClock};
use crate::measure::time;
use gpu_async_reactor::{CompletionLine, DurNs, Executor, OwnedDescriptor, Reactor, Ready, Slot};
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

const PARK_BOUND: DurNs = DurNs::from_ms(1);

/// How the executor is used.
#[derive(Clone, Copy, Default)]
pub struct Usage {
    /// The idle tells wakes of this thread from foreign ones.
    pub thread_token: bool,
    /// A wait that never ends is registered, so that the executor looks at it between polls.
    pub waiting: bool,
}

/// Tasks of one type.
pub fn typed(name: &'static str, usage: Usage) -> Box<dyn Subject> {
    Ours::boxed(name, usage, yielding)
}

/// Tasks as `Pin<Box<dyn Future>>`: of any type.
pub fn dynamic(name: &'static str, usage: Usage) -> Box<dyn Subject> {
    Ours::boxed(name, usage, |yields, done| {
        Box::pin(yielding(yields, done)) as Pin<Box<dyn Future<Output = ()>>>
    })
}

struct Ours<F: Future<Output = ()>, M> {
    name: &'static str,
    usage: Usage,
    make: M,
    executor: Executor<F>,
    /// Lives as long as the program: a registered wait borrows it.
    reactor: &'static Reactor<'static, SystemClock>,
    idle: SpinIdle,
    pending: Option<Ready<'static, 'static, SystemClock>>,
}

impl<F, M> Ours<F, M>
where
    F: Future<Output = ()> + 'static,
    M: Fn(usize, Countdown) -> F + 'static,
{
    fn boxed(name: &'static str, usage: Usage, make: M) -> Box<dyn Subject> {
        let clock = SystemClock::new();
        let reactor = Box::leak(Box::new(Reactor::new(clock)));
        let idle = SpinIdle::new(clock, usage.thread_token);
        let mut ours =
            Ours { name, usage, make, executor: Executor::new(), reactor, idle, pending: None };
        if ours.usage.waiting {
            let never =
                OwnedDescriptor { line: CompletionLine::shared(), slot: Slot::ALL[0], target: 1 };
            let mut wait = ours.reactor.ready_owned(never, None);
            let polled =
                Pin::new(&mut wait).poll(&mut Context::from_waker(std::task::Waker::noop()));
            assert!(polled.is_pending());
            ours.pending = Some(wait);
        }
        Box::new(ours)
    }
}

impl<F, M> Subject for Ours<F, M>
where
    F: Future<Output = ()>,
    M: Fn(usize, Countdown) -> F,
{
    fn name(&self) -> &str {
        self.name
    }

    fn kind(&self) -> Kind {
        Kind::Ours
    }

    fn run(&mut self, tasks: usize, yields: usize) -> Duration {
        let done = Countdown::new(tasks);
        for _ in 0..tasks {
            drop(self.executor.spawn((self.make)(yields, done.clone())));
        }
        let elapsed = time(|| {
            let ran = self.executor.run(self.reactor, &mut self.idle, PARK_BOUND);
            ran.expect("tasks that yield do not stall");
        });
        assert!(done.is_done());
        elapsed
    }
}
