//! Failures that users have reported of what runs their waits: executors, runtimes, wait sets. Each
//! test names its row of `docs/faults.md`.
#![cfg(not(loom))]

mod common;
mod manual;

use common::{Watchdog, descriptor, device, is_fault, wait_for};
use gpu_async_reactor::backend::software::{Fault, Hang, Work};
use gpu_async_reactor::host::{ParkPolicy, Runtime, StdClock, StdIdle};
use gpu_async_reactor::{
    Clock, CompletionPort, DeviceStream, Doorbell, DurNs, End, Error, Executor, Idle, ManualClock,
    MonoNs, OwnedDescriptor, Reactor, ReactorPort, ThreadPort, WaitPlan, run_inline, wait,
    yield_now,
};
use manual::TraceIdle;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

const PLANS: [&str; 3] = ["poll", "spin:backstop_us=2000", "flag:park_us=100,backstop_us=2000"];
const BACKSTOP: DurNs = DurNs::from_us(2_000);

type Task<'a, T = ()> = Pin<Box<dyn Future<Output = T> + 'a>>;

fn idle() -> StdIdle {
    StdIdle::with(StdClock::new(), ParkPolicy::default())
}

/// Counts its drops.
struct Counted(Rc<Cell<u32>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn f25_a_waker_that_outlives_its_executor_does_nothing_and_each_future_is_dropped_once() {
    let _watchdog = Watchdog::new("f25");
    const TASKS: u32 = 20;
    let runtime = Runtime::new("poll", "gpu-reactor").unwrap();
    let (wakers, dropped, polls) = (RefCell::new(Vec::new()), Rc::default(), Rc::new(Cell::new(0)));
    let wakers = Rc::new(wakers);
    for task in 0..TASKS {
        let (wakers, polls) = (Rc::clone(&wakers), polls.clone());
        let counted = Counted(Rc::clone(&dropped));
        runtime.spawn(async move {
            let _counted = counted;
            poll_fn(|cx| {
                polls.set(polls.get() + 1);
                wakers.borrow_mut().push(cx.waker().clone());
                // Some finish, and their places are free; the others are dropped with the executor.
                if task % 4 == 0 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        });
    }
    runtime.block_on(yield_now()).unwrap();
    assert_eq!((polls.get(), dropped.get()), (TASKS, TASKS / 4));
    drop(runtime);
    assert_eq!(dropped.get(), TASKS, "the rest is dropped with the executor");
    let wakers = wakers.take();
    // Used on this thread, whose own wakes take another way, and on others.
    for waker in &wakers {
        waker.wake_by_ref();
        let another = waker.clone();
        another.wake();
    }
    let others: Vec<_> = wakers.into_iter().map(|waker| thread::spawn(|| waker.wake())).collect();
    others.into_iter().for_each(|other| other.join().unwrap());
    assert_eq!((polls.get(), dropped.get()), (TASKS, TASKS));
}

/// An idle that counts the parks and sleeps, which all last as long as they were asked to.
struct Counting(StdIdle, u64);

impl Idle for Counting {
    fn sleep_until(&mut self, at: MonoNs) {
        self.1 += 1;
        self.0.sleep_until(at);
    }
    fn park_line<R: Fn(&gpu_async_reactor::CompletionLine) -> bool>(
        &mut self,
        line: &gpu_async_reactor::CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        self.1 += 1;
        self.0.park_line(line, ready, bound)
    }
}

#[test]
fn f26_after_the_first_completion_the_others_are_waited_for_as_quietly_as_before() {
    let _watchdog = Watchdog::new("f26");
    const OTHERS: usize = 100;
    const BOUND: DurNs = DurNs::from_ms(2);
    let clock = StdClock::new();
    for with_doorbell in [false, true] {
        let (device, doorbell, hang) = (device(), Doorbell::new(), Hang::new());
        let reactor = match with_doorbell {
            true => Reactor::with_doorbell(clock, &doorbell),
            false => Reactor::new(clock),
        };
        let polls = Cell::new(0);
        let mut executor: Executor<Task> = Executor::new();
        let streams: Vec<_> = (0..=OTHERS).map(|_| device.stream_on(&doorbell).unwrap()).collect();
        let watch = |target: OwnedDescriptor| {
            let (reactor, polls) = (&reactor, &polls);
            async move {
                let mut ready = pin!(reactor.ready_owned(target, None));
                poll_fn(|cx| {
                    polls.set(polls.get() + 1);
                    ready.as_mut().poll(cx)
                })
                .await;
            }
        };
        for stream in &streams[..OTHERS] {
            stream.queue(Work::new().hang(&hang)).unwrap();
            let target = descriptor(stream, stream.mark().unwrap());
            executor.spawn(Box::pin(watch(target)));
        }
        let mut idle = Counting(idle(), 0);
        let main = async {
            let first = &streams[OTHERS];
            first.delay(DurNs::from_ms(3)).unwrap();
            watch(descriptor(first, first.mark().unwrap())).await;
            polls.set(0);
            let quiet = clock.monotonic_ns();
            reactor.alarm(quiet.after(DurNs::from_ms(60))).await;
            clock.monotonic_ns().since(quiet)
        };
        let (elapsed, stats) = executor.run_until(&reactor, &mut idle, BOUND, main).unwrap();
        assert_eq!(polls.get(), 0, "nobody else was woken by it");
        assert_eq!(reactor.pending(), (OTHERS, 0));
        assert!(!reactor.fire() && !reactor.fire(), "nothing is due");
        // Parks of the whole bound each; some more before the first completion and at the alarm.
        let most = elapsed.0 / BOUND.0 + 10;
        assert!(idle.1 <= most, "{} parks in {elapsed}, doorbell: {with_doorbell}", idle.1);
        assert!(stats.woke <= 4, "{stats:?}");
        hang.release();
    }
}

#[test]
fn f32_work_of_ten_times_every_inner_bound_still_ends_only_when_it_is_done() {
    let _watchdog = Watchdog::new("f32");
    // Ten times what a stall is looked for after (100 ms), which is ten times a park's bound of
    // 1 ms and more. The waits' own bounds are shorter.
    const LONG: DurNs = DurNs::from_ms(1_010);
    let done = AtomicBool::new(false);
    let hang = Hang::new();
    let device = device();
    let stream = || {
        let stream = device.stream().unwrap();
        stream.queue(Work::new().hang(&hang)).unwrap();
        stream
    };
    let short = DurNs::from_us(700);
    thread::scope(|scope| {
        let is_done = || done.load(Ordering::Acquire);
        for text in PLANS {
            // On a thread, with an inner sleep that is far too short, and with one driver call.
            let (sleeping, blocking) = (stream(), stream());
            scope.spawn(move || {
                let mut port = ThreadPort::new(&sleeping, idle());
                let plan = WaitPlan::parse(text).unwrap();
                let clock = StdClock::new();
                let waiting = wait(&plan, Some(short), &mut port, &clock);
                let waited = run_inline(waiting).unwrap().unwrap();
                assert!(is_done() && waited.elapsed >= LONG && waited.slept >= short, "{text}");
            });
            scope.spawn(move || {
                blocking.synchronize().unwrap();
                assert!(is_done(), "{text}");
            });
        }
        // On runtimes, with deadlines that no clock reaches.
        for executor in ["gpu-reactor", "io-uring"] {
            let streams: Vec<_> = PLANS.iter().map(|_| stream()).collect();
            scope.spawn(move || {
                let runtime = Runtime::new("spin:backstop_us=2000", executor).unwrap();
                let tasks: Vec<_> = PLANS
                    .iter()
                    .zip(streams)
                    .map(|(text, stream)| {
                        let handle = runtime.handle();
                        runtime.spawn(async move {
                            let mut port = handle.port(&stream);
                            let waited =
                                handle.wait_until(text, &mut port, MonoNs::MAX).await.unwrap();
                            assert_ne!(waited.end, End::TimedOut);
                            waited.elapsed
                        })
                    })
                    .collect();
                // A park of no bound at all, and a sleep that ends with its time and not before.
                let (handle, parked) = (runtime.handle(), stream());
                let parking = runtime.spawn(async move {
                    let port = handle.port(&parked);
                    let ticket = port.mark().unwrap();
                    port.at(ticket).park(DurNs::MAX).await.unwrap()
                });
                runtime
                    .block_on(async {
                        let at = runtime.clock().monotonic_ns().after(LONG);
                        runtime.sleep_until(at).await.unwrap();
                        assert!(runtime.clock().monotonic_ns() >= at);
                        assert!(parking.await.unwrap() && is_done());
                        for task in tasks {
                            assert!(task.await.unwrap() >= LONG && is_done());
                        }
                    })
                    .unwrap();
            });
        }
        // Alone on its runtime, so that the thread sleeps out every bound of its own.
        let alone = stream();
        scope.spawn(move || {
            let doorbell = Doorbell::new();
            let reactor = Reactor::with_doorbell(StdClock::new(), &doorbell);
            let mut executor: Executor<Task> = Executor::new();
            let target = descriptor(&alone, alone.mark().unwrap());
            let ready = reactor.ready_owned(target, None);
            let bound = DurNs::from_ms(1);
            let (reached, _) = executor.run_until(&reactor, &mut idle(), bound, ready).unwrap();
            assert!(reached && is_done());
        });
        // Counted from when everything stands at the hang and all waits have begun.
        wait_for(|| hang.holding() == 2 * PLANS.len() + 2 * (PLANS.len() + 1) + 1);
        let began = StdClock::new().monotonic_ns();
        run_inline(async {
            use gpu_async_reactor::Timer;
            StdClock::new().sleep_until(began.after(DurNs(LONG.0 + 200_000_000))).await;
        })
        .unwrap();
        done.store(true, Ordering::Release);
        hang.release();
    });
}

/// A manual clock that each look moves on by a little, so that waits which never idle get on too.
struct Ticking<'c>(&'c ManualClock);

impl Clock for Ticking<'_> {
    fn monotonic_ns(&self) -> MonoNs {
        self.0.advance(DurNs(50));
        self.0.monotonic_ns()
    }
}

#[test]
fn f37_a_hundred_pending_waits_all_end_with_the_sticky_error_within_one_backstop() {
    let _watchdog = Watchdog::new("f37");
    const WAITS: usize = 100;
    // In virtual time, so that no busy core lengthens anything; the device is lost at several times
    // between two backstops.
    for plan in PLANS {
        for quarters in 0..4 {
            let (device, hang, clock) = (device(), Hang::new(), ManualClock::new());
            let begun = Cell::new(0);
            // Ten waits a stream: some share one, as those of a program do.
            let streams: Vec<_> = (0..WAITS / 10).map(|_| device.stream().unwrap()).collect();
            streams.iter().for_each(|of| of.queue(Work::new().hang(&hang)).unwrap());
            let reactor = Reactor::new(Ticking(&clock));
            let plan = WaitPlan::parse(plan).unwrap();
            let mut executor: Executor<Task<'_, (Error, MonoNs)>> = Executor::new();
            let waits: Vec<_> = (0..WAITS)
                .map(|wait_number| {
                    let (stream, plan) = (&streams[wait_number / 10], &plan);
                    let (reactor, begun, clock) = (&reactor, &begun, &clock);
                    executor.spawn(Box::pin(async move {
                        begun.set(begun.get() + 1);
                        let mut port = ReactorPort::new(stream, reactor);
                        let error = wait(plan, None, &mut port, reactor).await.unwrap_err();
                        (error, clock.monotonic_ns())
                    }))
                })
                .collect();
            let main = async {
                yield_now().await;
                assert_eq!(begun.get(), WAITS);
                let later = clock.monotonic_ns().after(DurNs(BACKSTOP.0 / 4 * quarters));
                reactor.alarm(later).await;
                let lost = clock.monotonic_ns();
                device.lose(Fault::new(999, "UNKNOWN"));
                for wait in waits {
                    let (error, ended) = wait.await.unwrap();
                    assert!(is_fault(&error, "999 UNKNOWN"), "{plan}: {error}");
                    let took = ended.since(lost);
                    // And a tenth for the looks themselves, which move the clock.
                    assert!(took.0 <= BACKSTOP.0 * 11 / 10, "{plan}: {took} after {quarters}/4");
                }
            };
            let mut idle = TraceIdle::new(&clock);
            idle.forbid_endless = false;
            executor.run_until(&reactor, &mut idle, DurNs::from_us(100), main).unwrap();
            assert!(executor.is_empty(), "each wait ends once");
        }
    }
}

/// A waker of the program's own that panics.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        std::panic::resume_unwind(Box::new("a waker of the program's own"));
    }
}

#[test]
fn f59_after_a_foreign_wakers_panic_the_runtime_can_be_run_again_and_every_task_finishes() {
    let _watchdog = Watchdog::new("f59");
    const TASKS: u64 = 9;
    for executor in ["gpu-reactor", "io-uring"] {
        let runtime = Runtime::new("spin:backstop_us=1000", executor).unwrap();
        let device = device();
        let stream = device.stream_on(runtime.doorbell()).unwrap();
        let (finished, hang) = (Rc::new(AtomicU64::new(0)), Hang::new());
        stream.queue(Work::new().hang(&hang)).unwrap();
        let step = descriptor(&stream, stream.mark().unwrap());
        for task in 0..=TASKS {
            let (handle, step) = (runtime.handle(), step.clone());
            let finished = finished.clone();
            runtime.spawn(async move {
                let mut ready = Box::pin(handle.reactor().ready_owned(step, None));
                if task == 0 {
                    // First in the order of the wakes; registered with a waker that is not its own.
                    let foreign = Waker::from(Arc::new(Panics));
                    assert!(ready.as_mut().poll(&mut Context::from_waker(&foreign)).is_pending());
                    let later = handle.clock().monotonic_ns().after(DurNs::from_ms(20));
                    handle.sleep_until(later).await.unwrap();
                } else {
                    ready.await;
                    finished.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let health = thread::spawn(move || {
            wait_for(|| hang.holding() == 1);
            hang.release();
        });
        // A panic of the waker may come out of a run; no more than one does.
        let mut ran = catch_unwind(AssertUnwindSafe(|| runtime.run()));
        if ran.is_err() {
            ran = catch_unwind(AssertUnwindSafe(|| runtime.run()));
        }
        ran.expect("it panics once").expect("what is left can be woken");
        health.join().unwrap();
        assert_eq!(finished.load(Ordering::Relaxed), TASKS, "{executor}");
    }
}
