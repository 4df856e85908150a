//! The sleeps of this crate's hosts.

use super::peers::signed;
use super::{Kind, NotRun, Slack, Sleeper};
use crate::host;
use gpu_async_reactor::host::{ParkPolicy, PreciseTimer, StdClock, TokioClock, UringIdle};
use gpu_async_reactor::{Clock, DurNs, Idle, MonoNs, Timer, run_inline};
use std::pin::Pin;
use tokio::runtime::{Builder, Runtime};

pub fn all() -> Vec<Box<dyn Sleeper>> {
    let current = || Builder::new_current_thread().enable_time().build().expect("a runtime");
    let multi = Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let timer = || PreciseTimer::new().expect("a thread");
    let unhurried = PreciseTimer::with_longest_lead(DurNs::ZERO).expect("a thread");
    vec![
        Box::new(Blocking),
        Box::new(Idling { name: "StdIdle", idle: host::idle() }),
        Task::boxed("PreciseTimer, tokio current_thread", Kind::Host, current(), precise(timer())),
        Task::boxed("PreciseTimer, tokio multi_thread", Kind::Host, multi, precise(timer())),
        Task::boxed(
            "PreciseTimer without a lead, current_thread",
            Kind::Other,
            current(),
            precise(unhurried),
        ),
        Task::boxed("TokioClock, current_thread", Kind::Other, current(), |at| {
            Box::pin(async move { TokioClock::new().sleep_until(at).await })
        }),
    ]
}

/// `StdClock` as a timer, which blocks the thread.
struct Blocking;

impl Sleeper for Blocking {
    fn name(&self) -> &str {
        "StdClock"
    }

    fn kind(&self) -> Kind {
        Kind::Host
    }

    fn slack(&self) -> Slack {
        Slack::Least
    }

    fn lateness(&mut self, time: DurNs) -> f64 {
        let clock = StdClock::new();
        let at = clock.monotonic_ns().after(time);
        run_inline(clock.sleep_until(at)).expect("a timer that blocks");
        signed(clock.monotonic_ns(), at)
    }
}

/// The idle whose sleep is a timeout of the ring, or why there is no ring.
pub fn uring() -> Result<Box<dyn Sleeper>, NotRun> {
    const NAME: &str = "UringIdle";
    match UringIdle::new(StdClock::new(), ParkPolicy::SPIN) {
        Ok(idle) => Ok(Box::new(Idling { name: NAME, idle })),
        Err(refused) => Err((NAME, refused.to_string())),
    }
}

/// An idle, as a reactor uses it.
struct Idling<I> {
    name: &'static str,
    idle: I,
}

impl<I: Idle> Sleeper for Idling<I> {
    fn name(&self) -> &str {
        self.name
    }

    fn kind(&self) -> Kind {
        Kind::Host
    }

    fn slack(&self) -> Slack {
        Slack::Least
    }

    fn lateness(&mut self, time: DurNs) -> f64 {
        let clock = StdClock::new();
        let at = clock.monotonic_ns().after(time);
        self.idle.sleep_until(at);
        signed(clock.monotonic_ns(), at)
    }
}

type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

fn precise(timer: PreciseTimer) -> impl Fn(MonoNs) -> Sleep + Clone + Send + 'static {
    move |at| Box::pin(timer.sleep(at))
}

/// A sleep of a spawned task.
struct Task<S> {
    name: &'static str,
    is_coarse: bool,
    kind: Kind,
    runtime: Runtime,
    sleep: S,
}

impl<S: Fn(MonoNs) -> Sleep + Clone + Send + 'static> Task<S> {
    fn boxed(name: &'static str, kind: Kind, runtime: Runtime, sleep: S) -> Box<dyn Sleeper> {
        let is_coarse = name.starts_with("TokioClock");
        Box::new(Task { name, is_coarse, kind, runtime, sleep })
    }
}

impl<S: Fn(MonoNs) -> Sleep + Clone + Send + 'static> Sleeper for Task<S> {
    fn name(&self) -> &str {
        self.name
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn slack(&self) -> Slack {
        Slack::Usual
    }

    fn is_coarse(&self) -> bool {
        self.is_coarse
    }

    fn lateness(&mut self, time: DurNs) -> f64 {
        let sleep = self.sleep.clone();
        let task = self.runtime.spawn(async move {
            let clock = StdClock::new();
            let at = clock.monotonic_ns().after(time);
            sleep(at).await;
            signed(clock.monotonic_ns(), at)
        });
        self.runtime.block_on(task).expect("the task runs to its end")
    }
}
