//! This crate's executor, in the ways in which a program may use it.

use super::workload::{Countdown, Kind, Subject, yielding};
use crate::host;
use crate::measure::cpu_time;
use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{
    CompletionLine, DurNs, Executor, Idle, OwnedDescriptor, Reactor, Ready, Slot,
};
use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use std::time::Duration;

const PARK_BOUND: DurNs = DurNs::from_ms(1);

/// Tasks of one type, with the host's idle.
pub fn typed(name: &'static str) -> Box<dyn Subject> {
    Box::new(Ours::new(name, host::idle(), yielding))
}

/// Tasks as `Pin<Box<dyn Future>>`: of any type.
pub fn dynamic(name: &'static str) -> Box<dyn Subject> {
    Box::new(Ours::new(name, host::idle(), |yields, done| {
        Box::pin(yielding(yields, done)) as Pin<Box<dyn Future<Output = ()>>>
    }))
}

/// Tasks of one type beside a wait that never ends, at which the executor looks between polls.
pub fn waiting(name: &'static str) -> Box<dyn Subject> {
    let mut ours = Ours::new(name, host::idle(), yielding);
    let never = OwnedDescriptor { line: CompletionLine::shared(), slot: Slot::ALL[0], target: 1 };
    let mut wait = ours.reactor.ready_owned(never, None);
    assert!(pin!(&mut wait).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    ours.pending = Some(wait);
    Box::new(ours)
}

/// Tasks of one type, with an idle that does not tell threads apart.
pub fn untold(name: &'static str) -> Box<dyn Subject> {
    Box::new(Ours::new(name, host::Untold(host::idle()), yielding))
}

struct Ours<F: Future<Output = ()>, M, I> {
    name: &'static str,
    idle: I,
    make: M,
    executor: Executor<F>,
    /// Lives as long as the program: a registered wait borrows it.
    reactor: &'static Reactor<'static, StdClock>,
    pending: Option<Ready<'static, 'static, StdClock>>,
}

impl<F, M, I> Ours<F, M, I>
where
    F: Future<Output = ()>,
    M: Fn(usize, Countdown) -> F,
{
    fn new(name: &'static str, idle: I, make: M) -> Self {
        let reactor = Box::leak(Box::new(Reactor::new(StdClock::new())));
        Ours { name, idle, make, executor: Executor::new(), reactor, pending: None }
    }
}

impl<F, M, I> Subject for Ours<F, M, I>
where
    I: Idle,
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
        let elapsed = cpu_time(|| {
            let ran = self.executor.run(self.reactor, &mut self.idle, PARK_BOUND);
            ran.expect("tasks that yield do not stall");
        });
        assert!(done.is_done());
        elapsed
    }
}
