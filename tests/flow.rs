//! Start reading here: one completion on its way from the device's store to the next wait's sleep.
//!
//! ```text
//! device store -> line -> reactor -> waker -> task -> outcome -> estimator -> next wait's sleep
//! ```
//!
//! Everything runs on a manual clock: the device is a script that stores its word while the thread
//! is parked, and the whole trace is asserted.

mod manual;

use gpu_async_reactor::{
    Clock, CompletionLine, DeviceStream, DurNs, Executor, ManualClock, PointTable, Reactor,
    ReactorPort, Result, SharedLine, Slot, SlotLease, SlotPool, WaitPlan, wait,
};
use manual::TraceIdle;
use std::cell::{Cell, RefCell};
use std::pin::Pin;

/// A stream whose work is done when the script says so.
struct ScriptedStream<'t> {
    clock: &'t ManualClock,
    lease: RefCell<SlotLease>,
    line: SharedLine,
    slot: Slot,
    done: Cell<u64>,
    trace: &'t Trace,
}

/// What happened, each with its time in microseconds.
struct Trace {
    events: RefCell<Vec<String>>,
}

impl Trace {
    fn add(&self, clock: &ManualClock, event: impl std::fmt::Display) {
        let us = clock.monotonic_ns().0 / 1_000;
        self.events.borrow_mut().push(format!("{us:>4} us  {event}"));
    }
}

impl ScriptedStream<'_> {
    /// The device has done everything queued so far, and stores the number of it.
    fn complete(&self) {
        let number = self.lease.borrow().last_issued();
        self.done.set(number);
        (*self.line).as_ref().store(self.slot, number);
        self.trace.add(self.clock, format_args!("device stores {number}"));
    }
}

impl DeviceStream for ScriptedStream<'_> {
    fn line(&self) -> &SharedLine {
        &self.line
    }

    fn slot(&self) -> Slot {
        self.slot
    }

    fn query(&self) -> Result<bool> {
        self.trace.add(self.clock, "query of everything");
        Ok(false)
    }

    fn synchronize(&self) -> Result<()> {
        unreachable!("no wait here blocks")
    }

    fn mark(&self) -> Result<u64> {
        let number = self.lease.borrow_mut().issue();
        self.trace.add(self.clock, format_args!("store of {number} queued"));
        Ok(number)
    }

    fn query_mark(&self, number: u64) -> Result<bool> {
        self.lease.borrow().check_issued(number)?;
        let done = self.done.get() >= number;
        self.trace.add(self.clock, format_args!("query of {number}: {done}"));
        Ok(done)
    }

    fn synchronize_mark(&self, _: u64) -> Result<()> {
        unreachable!("no wait here blocks")
    }
}

#[test]
fn one_completion_from_the_devices_store_to_the_next_waits_sleep() {
    let clock = ManualClock::new();
    let trace = Trace { events: RefCell::default() };
    let mut pool = SlotPool::new(|| Ok(CompletionLine::shared()));
    let lease = pool.acquire().unwrap();
    let stream = ScriptedStream {
        clock: &clock,
        line: lease.line().clone(),
        slot: lease.slot(),
        lease: RefCell::new(lease),
        done: Cell::new(0),
        trace: &trace,
    };
    let plan = WaitPlan::parse(
        "flag:park_us=200,backstop_us=1000+predict:margin_us=20,min_sleep_us=10,max_sleep_us=5000,window=4",
    )
    .unwrap();
    let deadline = plan.predict.unwrap();

    let reactor = Reactor::new(&clock);
    // The device completes in the middle of the first park of each wait; the sleep of the second
    // wait, which comes in between, lets it be.
    let mut idle = TraceIdle::new(&clock);
    idle.meanwhile.push_back(Box::new(|| stream.complete()));
    idle.meanwhile.push_back(Box::new(|| {}));
    idle.meanwhile.push_back(Box::new(|| stream.complete()));

    let filler_rounds = Cell::new(0);
    let points = RefCell::new(PointTable::new());
    let program = async {
        let mut port = ReactorPort::new(&stream, &reactor);
        for _ in 0..2 {
            let sleep = points.borrow().sleep_ns("step", &deadline);
            trace.add(&clock, format_args!("wait begins, to sleep {sleep:?}"));
            let waited = wait(&plan, sleep, &mut port, &reactor).await.unwrap();
            trace.add(&clock, format_args!("{:?}: {:?}", waited.end, waited.outcome.unwrap()));
            points.borrow_mut().observe("step", &deadline, waited.outcome.unwrap());
        }
    };
    let mut executor: Executor<Pin<Box<dyn Future<Output = ()> + '_>>> = Executor::new();
    executor.spawn(Box::pin(async {
        filler_rounds.set(filler_rounds.get() + 1);
    }));
    let (_, stats) = executor.run_until(&reactor, &mut idle, DurNs::from_us(200), program).unwrap();

    assert_eq!(
        *trace.events.borrow(),
        [
            "   0 us  wait begins, to sleep None",
            "   0 us  query of everything",
            "   0 us  store of 1 queued",
            // The thread parks for at most 200 us; half way the device is done.
            " 100 us  device stores 1",
            // The word was reached: the status, which is the authority, is asked and agrees.
            " 100 us  query of 1: true",
            " 100 us  Parked: Exact { residual_ns: 100000 }",
            // The estimator now predicts 100 us: the next wait sleeps 20 us less.
            " 100 us  wait begins, to sleep Some(DurNs(80000))",
            " 100 us  query of everything",
            " 100 us  store of 2 queued",
            " 180 us  query of 2: false",
            " 280 us  device stores 2",
            " 280 us  query of 2: true",
            " 280 us  Parked: Exact { residual_ns: 180000 }",
        ]
    );
    use manual::Trace::{Park, Sleep};
    assert_eq!(idle.trace, [Park(200_000, true), Sleep(180_000), Park(200_000, true)]);
    assert_eq!(filler_rounds.get(), 1, "the first wait was filled with the ready task");
    assert_eq!((stats.parked, stats.slept), (2, 1));
    let estimate = *points.borrow().iter().next().unwrap().1;
    assert_eq!(estimate.predicted_ns(), Some(DurNs(100_000)), "the minimum of 100 and 180 us");
}
