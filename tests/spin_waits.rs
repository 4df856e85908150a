//! Waits by a `spin` plan on a reactor: one loop of the thread for all of them, and one status query
//! for each stream and backstop.

mod common;
mod manual;

use common::{Watchdog, is_fault, wait_for};
use gpu_async_reactor::backend::software::{
    Hang, SoftwareDevice, SoftwareStream, StoreFault, Work,
};
use gpu_async_reactor::host::{Runtime, StdClock};
use gpu_async_reactor::{
    Clock, CompletionLine, CompletionPort, DeviceStream, DurNs, End, Error, Executor, ManualClock,
    MonoNs, OwnedDescriptor, Reactor, ReactorPort, Result, SharedLine, Slot, WaitError, WaitPlan,
    wait, wait_until, yield_now,
};
use manual::TraceIdle;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Waker};

const SLOT: Slot = Slot::ALL[3];
const BACKSTOP_US: u64 = 1_000;

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

fn plan() -> WaitPlan {
    WaitPlan::parse(&format!("spin:backstop_us={BACKSTOP_US}")).unwrap()
}

/// A stream whose status says what the test wants, and that counts how often each number is asked.
struct Scripted {
    line: SharedLine,
    issued: Cell<u64>,
    done: Cell<u64>,
    fails: Cell<bool>,
    asked: RefCell<Vec<u64>>,
}

impl Scripted {
    fn new() -> Rc<Self> {
        Rc::new(Scripted {
            line: CompletionLine::shared(),
            issued: Cell::new(0),
            done: Cell::new(0),
            fails: Cell::new(false),
            asked: RefCell::default(),
        })
    }

    /// How often the status of a mark was asked since the last call.
    fn asked(&self) -> usize {
        std::mem::take(&mut *self.asked.borrow_mut()).len()
    }

    fn store(&self, number: u64) {
        (*self.line).as_ref().store(SLOT, number);
    }
}

impl DeviceStream for Scripted {
    fn line(&self) -> &SharedLine {
        &self.line
    }

    fn slot(&self) -> Slot {
        SLOT
    }

    fn query(&self) -> Result<bool> {
        Ok(false)
    }

    fn synchronize(&self) -> Result<()> {
        unreachable!("nothing blocks")
    }

    fn mark(&self) -> Result<u64> {
        self.issued.set(self.issued.get() + 1);
        Ok(self.issued.get())
    }

    fn query_mark(&self, number: u64) -> Result<bool> {
        self.asked.borrow_mut().push(number);
        match self.fails.get() {
            true => Err(Error::backend("query", "700 ILLEGAL_ADDRESS")),
            false => Ok(number <= self.done.get()),
        }
    }

    fn synchronize_mark(&self, _: u64) -> Result<()> {
        unreachable!("nothing blocks")
    }
}

/// A world in virtual time, whose idle spins by moving the clock.
struct World {
    clock: ManualClock,
}

impl World {
    fn run<T>(
        &self,
        waits: usize,
        stream: &Rc<Scripted>,
        main: impl AsyncFnOnce(&Reactor<'static, &ManualClock>, &RefCell<Vec<Ended>>) -> T,
    ) -> T {
        let reactor = Reactor::new(&self.clock);
        let ended: RefCell<Vec<Ended>> = RefCell::default();
        let mut idle = TraceIdle::new(&self.clock);
        idle.forbid_endless = false;
        let mut executor: Executor<Task> = Executor::new();
        for at in 0..waits {
            let (stream, reactor, ended) = (stream.clone(), &reactor, &ended);
            executor.spawn(Box::pin(async move {
                let mut port = ReactorPort::new(&*stream, reactor);
                let waited = wait(&plan(), None, &mut port, reactor).await;
                ended.borrow_mut().push((at, waited.map(|waited| waited.end)));
            }));
        }
        let main = async {
            // The first queries and the marks are over.
            yield_now().await;
            yield_now().await;
            stream.asked();
            main(&reactor, &ended).await
        };
        executor.run_until(&reactor, &mut idle, DurNs::from_us(50), main).unwrap().0
    }
}

type Ended = (usize, Result<End>);

fn world() -> World {
    World { clock: ManualClock::new() }
}

#[test]
fn f61_a_thousand_waits_of_one_stream_make_one_status_query_each_backstop() {
    let (world, stream) = (world(), Scripted::new());
    world.run(1_000, &stream, async |reactor, ended| {
        for _ in 0..20 {
            let now = world.clock.monotonic_ns();
            reactor.alarm(now.after(DurNs::from_us(BACKSTOP_US))).await;
            assert!(stream.asked.borrow().iter().all(|&number| number == 1), "the earliest asks");
            assert!(stream.asked() <= 1);
        }
        stream.done.set(500);
        stream.store(500);
        reactor.alarm(world.clock.monotonic_ns().after(DurNs::from_us(60))).await;
        assert_eq!(ended.borrow().len(), 500);
        assert!(ended.borrow().iter().all(|(_, end)| *end == Ok(End::Spun)));
        stream.asked();
        reactor.alarm(world.clock.monotonic_ns().after(DurNs::from_us(2 * BACKSTOP_US))).await;
        assert!(stream.asked.borrow().iter().all(|&number| number == 501));
        assert!(stream.asked() <= 3);
    });
}

#[test]
fn waits_whose_stores_are_lost_all_end_once_one_query_says_done() {
    let (world, stream) = (world(), Scripted::new());
    world.run(100, &stream, async |reactor, ended| {
        stream.done.set(60);
        reactor.alarm(world.clock.monotonic_ns().after(DurNs::from_us(2 * BACKSTOP_US))).await;
        assert_eq!(ended.borrow().len(), 60, "without a backstop for each of them");
        assert!(ended.borrow().iter().all(|(_, end)| *end == Ok(End::Backstop)));
    });
}

#[test]
fn f37_waits_of_a_stream_that_fails_all_end_with_the_error_within_one_backstop() {
    let (world, stream) = (world(), Scripted::new());
    world.run(100, &stream, async |reactor, ended| {
        stream.fails.set(true);
        reactor.alarm(world.clock.monotonic_ns().after(DurNs::from_us(BACKSTOP_US + 60))).await;
        assert_eq!(ended.borrow().len(), 100);
        let failed = |end: &Result<End>| {
            end.as_ref().is_err_and(|error| is_fault(error, "700 ILLEGAL_ADDRESS"))
        };
        assert!(ended.borrow().iter().all(|(_, end)| failed(end)));
        assert!(stream.asked() <= 100, "each wait fails once");
    });
}

#[test]
fn a_wait_that_is_not_polled_any_more_keeps_no_other_from_its_status() {
    let (world, stream) = (world(), Scripted::new());
    world.run(3, &stream, async |reactor, ended| {
        // Registered with the least number that is left, and then forgotten by its task.
        stream.store(3);
        stream.done.set(3);
        reactor.alarm(world.clock.monotonic_ns().after(DurNs::from_us(60))).await;
        assert_eq!(ended.borrow().len(), 3);
        let plan = plan();
        let mut first = ReactorPort::new(&*stream, reactor);
        let mut stuck = Box::pin(wait(&plan, None, &mut first, reactor));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(stuck.as_mut().poll(&mut cx).is_pending());
        let mut second = ReactorPort::new(&*stream, reactor);
        let mut healthy = pin!(wait(&plan, None, &mut second, reactor));
        assert!(healthy.as_mut().poll(&mut cx).is_pending());
        // It spins with others now, and has the least number of them.
        assert!(stuck.as_mut().poll(&mut cx).is_pending());
        let late = world.clock.monotonic_ns().after(DurNs::from_us(4 * BACKSTOP_US));
        let mut alarm = pin!(reactor.alarm(late));
        let ended = poll_fn(|cx| {
            let ended = healthy.as_mut().poll(cx).map(Some);
            // After its own first query: the next one is a backstop's.
            stream.fails.set(true);
            if ended.is_ready() { ended } else { alarm.as_mut().poll(cx).map(|()| None) }
        });
        let ended = ended.await.expect("within a few backstops");
        assert!(is_fault(&ended.unwrap_err(), "700 ILLEGAL_ADDRESS"));
        drop(stuck);
    });
}

#[test]
fn a_deadline_ends_one_wait_of_many_and_a_dropped_one_leaves_nothing_behind() {
    let (world, stream) = (world(), Scripted::new());
    world.run(5, &stream, async |reactor, ended| {
        let before = reactor.pending();
        let mut port = ReactorPort::new(&*stream, reactor);
        let deadline = world.clock.monotonic_ns().after(DurNs::from_us(300));
        let waited = wait_until(&plan(), None, &mut port, reactor, deadline).await;
        assert!(matches!(waited, Err(WaitError::TimedOut(waited)) if waited.end == End::TimedOut));
        let now = world.clock.monotonic_ns();
        assert!(now >= deadline && now.since(deadline) < DurNs::from_us(50));
        {
            let mut port = ReactorPort::new(&*stream, reactor);
            let plan = plan();
            let mut dropped = Box::pin(wait(&plan, None, &mut port, reactor));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(dropped.as_mut().poll(&mut cx).is_pending());
            assert_eq!(reactor.pending().0, before.0 + 1);
        }
        assert_eq!(reactor.pending(), before);
        assert!(ended.borrow().is_empty());
    });
}

#[test]
fn f27_a_status_that_stays_pending_after_its_word_is_asked_less_and_less_often() {
    let (world, stream) = (world(), Scripted::new());
    world.run(2, &stream, async |reactor, ended| {
        stream.store(2);
        // As long as nobody sleeps, each poll takes a microsecond.
        let began = world.clock.monotonic_ns();
        while world.clock.monotonic_ns().since(began) < DurNs::from_ms(60) {
            world.clock.advance(DurNs::from_us(1));
            yield_now().await;
        }
        let asked = stream.asked();
        assert!((20..=2 * 160).contains(&asked), "{asked} queries by two waits in 60 ms");
        assert!(ended.borrow().is_empty());
        stream.done.set(2);
        reactor.alarm(world.clock.monotonic_ns().after(DurNs::from_ms(2))).await;
        assert!(ended.borrow().iter().all(|(_, end)| *end == Ok(End::Spun)));
        assert_eq!(ended.borrow().len(), 2);
    });
}

#[test]
fn the_largest_number_is_a_target_like_any_other_to_a_park() {
    let clock = ManualClock::new();
    let reactor = Reactor::new(&clock);
    let line = CompletionLine::shared();
    let mut idle = TraceIdle::new(&clock);
    let stored = line.clone();
    idle.meanwhile.push_back(Box::new(move || (*stored).as_ref().store(SLOT, u64::MAX)));
    let descriptor = OwnedDescriptor { line: line.clone(), slot: SLOT, target: u64::MAX };
    let mut executor: Executor<Task> = Executor::new();
    let main = reactor.ready_owned(descriptor, None);
    executor.run_until(&reactor, &mut idle, DurNs::from_ms(1), main).unwrap();
    assert_eq!(idle.trace, [manual::Trace::Park(1_000_000, true)], "seen by the park itself");

    // And it is no completion of a slot of the same line that nobody waits on.
    (*line).as_ref().store(Slot::ALL[0], u64::MAX);
    let descriptor = OwnedDescriptor { line, slot: Slot::ALL[1], target: 1 };
    let until = Some(MonoNs(2_000_000));
    let main = reactor.ready_owned(descriptor, until);
    idle.trace.clear();
    let (complete, _) = executor.run_until(&reactor, &mut idle, DurNs::from_ms(5), main).unwrap();
    assert!(
        !complete && idle.trace.iter().all(|trace| matches!(trace, manual::Trace::Park(_, false)))
    );
}

fn stream_on(runtime: &Runtime, device: &SoftwareDevice) -> Rc<SoftwareStream> {
    Rc::new(device.stream_on(runtime.doorbell()).unwrap())
}

#[test]
fn f61_ten_thousand_hanging_waits_cost_the_device_one_query_a_stream_and_backstop() {
    const STREAMS: usize = 100;
    let _watchdog = Watchdog::new("f61");
    let runtime = Runtime::new("spin:backstop_us=5000", "gpu-reactor").unwrap();
    let device = SoftwareDevice::new().unwrap();
    let hang = Hang::new();
    let streams: Vec<_> = (0..STREAMS).map(|_| stream_on(&runtime, &device)).collect();
    for stream in &streams {
        stream.queue(Work::new().hang(&hang)).unwrap();
    }
    for at in 0..10_000 {
        let (stream, handle) = (streams[at % STREAMS].clone(), runtime.handle());
        drop(runtime.spawn(async move {
            let mut port = handle.port(&*stream);
            assert_eq!(handle.wait("hung", &mut port).await.unwrap().end, End::Spun);
        }));
    }
    let handle = runtime.handle();
    let clock = StdClock::new();
    let (queries, elapsed) = runtime
        .block_on(async {
            // All of them have made their first query.
            handle.sleep_until(clock.monotonic_ns().after(DurNs::from_ms(100))).await.unwrap();
            let (began, before) = (clock.monotonic_ns(), device.calls().queries);
            handle.sleep_until(began.after(DurNs::from_ms(200))).await.unwrap();
            (device.calls().queries - before, clock.monotonic_ns().since(began))
        })
        .unwrap();
    let backstops = elapsed.0 / 5_000_000 + 2;
    assert!(queries <= backstops * STREAMS as u64, "{queries} queries in {elapsed}");
    hang.release();
    runtime.run().unwrap();
}

#[test]
fn a_store_that_is_not_rung_for_is_seen_by_a_spin_all_the_same() {
    let _watchdog = Watchdog::new("not rung for");
    let runtime = Runtime::new("spin:backstop_us=1000000", "gpu-reactor").unwrap();
    let device = SoftwareDevice::new().unwrap();
    // Bound to no doorbell of the runtime's.
    let stream = device.stream().unwrap();
    let handle = runtime.handle();
    let best = (0..20)
        .map(|_| {
            runtime
                .block_on(async {
                    stream.delay(DurNs::from_us(300)).unwrap();
                    let port = handle.port(&stream);
                    let ticket = port.mark().unwrap();
                    let mut port = port.at(ticket);
                    handle.wait("silent", &mut port).await.unwrap();
                    let stamp = stream.stamp_of(ticket.number()).unwrap();
                    handle.clock().monotonic_ns().since(stamp)
                })
                .unwrap()
        })
        .min()
        .unwrap();
    assert!(best < DurNs::from_us(200), "{best} late at best, a park bound being 1 ms");
}

#[test]
fn a_lost_store_ends_a_spin_at_its_backstop_on_a_real_thread() {
    let _watchdog = Watchdog::new("lost store");
    let runtime = Runtime::new("spin:backstop_us=2000", "gpu-reactor").unwrap();
    let device = SoftwareDevice::new().unwrap();
    let stream = stream_on(&runtime, &device);
    stream.inject_store(StoreFault::Lost);
    let handle = runtime.handle();
    let ends = (0..20).map(|_| {
        let waited: Result<_> = runtime
            .block_on(async {
                stream.delay(DurNs::from_ms(1)).unwrap();
                let mut port = handle.port(&*stream);
                handle.wait("lost", &mut port).await
            })
            .unwrap();
        let end = waited.unwrap().end;
        // On a busy machine the work may be done before the wait begins.
        assert!(matches!(end, End::Backstop | End::Immediate), "{end:?}");
        end
    });
    assert!(ends.into_iter().any(|end| end == End::Backstop));
    wait_for(|| stream.query().unwrap());
}

#[test]
fn the_default_spin_of_a_port_checks_and_queries_by_itself() {
    let clock = ManualClock::new();
    let mut port = manual::ScriptPort::new(&clock, 5_000);
    port.arm().unwrap();
    port.word_at = u64::MAX;
    let spun = manual::inline(port.spin(&clock, DurNs::from_us(2), None)).unwrap();
    assert_eq!(spun.end, gpu_async_reactor::SpinEnd::Done);
    assert_eq!(spun.queries, 3);
}
