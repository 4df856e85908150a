//! Waits of this crate, by plan and by port, and a waker used from another thread.

use super::spin::{next_number, store_next};
use super::{Entry, Kind, NotRun, Subject};
use crate::trigger::{Action, Trigger};
use gpu_async_reactor::host::{ParkPolicy, StdClock, StdIdle};
use gpu_async_reactor::{
    DeviceStream, DurNs, End, Executor, Park, Reactor, ReactorPort, Result, SharedLine, Slot,
    ThreadPort, WaitPlan, reached, run_inline, wait, yield_now,
};
use std::pin::Pin;

const PARK_BOUND: DurNs = DurNs::from_ms(1);
const SPIN: &str = "spin:backstop_us=1000";
const FLAG: &str = "flag:park_us=1000,backstop_us=1000";

pub fn all(line: &SharedLine) -> Vec<Entry> {
    let mut entries: Vec<Entry> = vec![
        Ok(Box::new(OnThread::new("spin, ThreadPort", SPIN, Stream::new(line), idle()))),
        Ok(Box::new(OnReactor::new("spin, ReactorPort", SPIN, Stream::new(line), idle(), 0))),
        Ok(Box::new(OnReactor::new(
            "spin, ReactorPort beside 8 ready tasks",
            SPIN,
            Stream::new(line),
            idle(),
            8,
        ))),
    ];
    let (_, caps) = StdIdle::probe(StdClock::new());
    let resolved = WaitPlan::parse(FLAG).expect("a plan").resolve(&caps);
    let names = ["flag, ThreadPort", "flag, ReactorPort"];
    match (resolved.plan.park, caps.device_word_wait) {
        (Park::FlagWait { .. }, _) => {
            entries.push(Ok(Box::new(OnThread::new(names[0], FLAG, Stream::new(line), probed()))));
            entries.push(Ok(Box::new(OnReactor::new(
                names[1],
                FLAG,
                Stream::new(line),
                probed(),
                0,
            ))));
        }
        (_, Err(why)) => entries
            .extend(names.map(|name| Err(NotRun { name: name.to_string(), why: why.clone() }))),
        (_, Ok(())) => unreachable!("a host that can park runs the plan as it is"),
    }
    entries
}

fn idle() -> StdIdle {
    StdIdle::with(StdClock::new(), ParkPolicy::BALANCED)
}

fn probed() -> StdIdle {
    StdIdle::probe(StdClock::new()).0
}

/// A stream whose device is the trigger, and whose status is the word, as that of an event in
/// host memory is: what is measured is the wait, not a device.
struct Stream {
    line: SharedLine,
}

impl Stream {
    fn new(line: &SharedLine) -> Self {
        Stream { line: line.clone() }
    }
}

impl DeviceStream for Stream {
    fn line(&self) -> &SharedLine {
        &self.line
    }

    fn slot(&self) -> Slot {
        Slot::ALL[0]
    }

    fn query(&self) -> Result<bool> {
        // The trigger is armed: work is queued that no mark covers yet.
        Ok(false)
    }

    fn synchronize(&self) -> Result<()> {
        unreachable!("no plan here blocks")
    }

    fn mark(&self) -> Result<u64> {
        // Nobody else waits meanwhile: one mark for each store.
        Ok(next_number(&self.line))
    }

    fn query_mark(&self, number: u64) -> Result<bool> {
        Ok(reached((*self.line).as_ref(), self.slot(), number))
    }

    fn synchronize_mark(&self, _: u64) -> Result<()> {
        unreachable!("no plan here blocks")
    }
}

/// Waits that ended otherwise than by their plan are not what is measured.
fn assert_waited(end: End) {
    assert!(matches!(end, End::Spun | End::Parked), "ended by {end:?}");
}

struct OnThread {
    name: &'static str,
    plan: WaitPlan,
    port: ThreadPort<Stream, StdIdle>,
}

impl OnThread {
    fn new(name: &'static str, plan: &str, stream: Stream, idle: StdIdle) -> Self {
        let plan = WaitPlan::parse(plan).expect("a plan");
        OnThread { name, plan, port: ThreadPort::new(stream, idle) }
    }
}

impl Subject for OnThread {
    fn name(&self) -> &str {
        self.name
    }

    fn kind(&self) -> Kind {
        Kind::Spinning
    }

    fn action(&self) -> Action {
        store_next(self.port.stream().line())
    }

    fn wait(&mut self, trigger: &mut Trigger, waits: usize) -> Vec<f64> {
        let clock = StdClock::new();
        let mut one = || {
            trigger.fire();
            let waited = run_inline(wait(&self.plan, None, &mut self.port, &clock));
            let late = trigger.since();
            assert_waited(waited.expect("a thread's wait ends inline").expect("no fault").end);
            late
        };
        (0..waits).map(|_| one()).collect()
    }
}

struct OnReactor {
    name: &'static str,
    plan: WaitPlan,
    stream: Stream,
    /// Lives as long as the program.
    reactor: &'static Reactor<'static, StdClock>,
    executor: Executor<Pin<Box<dyn Future<Output = ()>>>>,
    idle: StdIdle,
    beside: usize,
}

impl OnReactor {
    fn new(name: &'static str, plan: &str, stream: Stream, idle: StdIdle, beside: usize) -> Self {
        let plan = WaitPlan::parse(plan).expect("a plan");
        let reactor = Box::leak(Box::new(Reactor::new(StdClock::new())));
        let mut executor = Executor::<Pin<Box<dyn Future<Output = ()>>>>::new();
        for _ in 0..beside {
            drop(executor.spawn(Box::pin(async {
                loop {
                    yield_now().await;
                }
            })));
        }
        OnReactor { name, plan, stream, reactor, executor, idle, beside }
    }
}

impl Subject for OnReactor {
    fn name(&self) -> &str {
        self.name
    }

    fn kind(&self) -> Kind {
        if self.beside == 0 { Kind::Spinning } else { Kind::Ours }
    }

    fn action(&self) -> Action {
        store_next(&self.stream.line)
    }

    fn wait(&mut self, trigger: &mut Trigger, waits: usize) -> Vec<f64> {
        let OnReactor { plan, stream, reactor, executor, idle, .. } = self;
        let main = async {
            let mut port = ReactorPort::new(&*stream, reactor);
            let mut all = Vec::with_capacity(waits);
            for _ in 0..waits {
                trigger.fire();
                let waited = wait(plan, None, &mut port, *reactor).await;
                all.push(trigger.since());
                assert_waited(waited.expect("no fault").end);
            }
            all
        };
        let ran = executor.run_until(reactor, idle, PARK_BOUND, main);
        ran.expect("the trigger does not stall").0
    }
}
