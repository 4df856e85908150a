//! Failures that users of GPU waits have reported, as waits on the software device. Each test names
//! its row of `docs/faults.md`.

mod common;

use common::{Mailbox, Watchdog, device, is_fault, seen, wait_for};
use gpu_async_reactor::backend::software::{
    Fault, Hang, QueryFault, SoftwareStream, StoreFault, Work,
};
use gpu_async_reactor::host::{ParkPolicy, StdClock, StdIdle, thread_cpu_time};
use gpu_async_reactor::{
    Clock, CompletionPort, DeviceStream, Doorbell, DurNs, End, Error, Executor, Outcome,
    PointEstimate, Reactor, ReactorPort, SharedLine, ThreadPort, WaitError, WaitPlan, Waited,
    run_inline, wait, wait_until, yield_now,
};
use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;

const BOUND: DurNs = DurNs::from_us(100);
const PARKS: [&str; 3] = ["poll", "spin:backstop_us=2000", "flag:park_us=100,backstop_us=2000"];
const BACKSTOP: DurNs = DurNs::from_us(2_000);

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

fn plan(text: &str) -> WaitPlan {
    WaitPlan::parse(text).unwrap()
}

fn idle() -> StdIdle {
    StdIdle::with(StdClock::new(), ParkPolicy::default())
}

/// One wait on the calling thread.
fn wait_on_thread(stream: &SoftwareStream, plan: &WaitPlan) -> Result<Waited, Error> {
    let mut port = ThreadPort::new(stream, idle());
    run_inline(wait(plan, None, &mut port, &StdClock::new())).unwrap()
}

/// One wait as a task on a reactor.
fn wait_on_reactor(stream: &SoftwareStream, plan: &WaitPlan) -> Result<Waited, Error> {
    let reactor = Reactor::new(StdClock::new());
    let mut executor: Executor<Task> = Executor::new();
    let main = async {
        let mut port = ReactorPort::new(stream, &reactor);
        wait(plan, None, &mut port, &reactor).await
    };
    executor.run_until(&reactor, &mut idle(), BOUND, main).unwrap().0
}

#[test]
fn f1_after_a_sticky_fault_every_wait_ends_with_it_whether_or_not_its_word_was_stored() {
    let _watchdog = Watchdog::new("f1");
    for storing in [false, true] {
        for text in PARKS.iter().chain(&["block"]) {
            let device = device();
            let stream = device.stream().unwrap();
            let fault = Fault::new(700, "ILLEGAL_ADDRESS");
            let fault = if storing { fault.storing_words() } else { fault };
            stream.queue(Work::new().delay(DurNs::from_us(500)).fault(fault)).unwrap();
            let plan = plan(text);
            for error in [wait_on_thread(&stream, &plan), wait_on_reactor(&stream, &plan)] {
                assert!(is_fault(&error.unwrap_err(), "700 ILLEGAL_ADDRESS"), "{text}, {storing}");
            }
        }
    }
}

#[test]
fn f2_a_silent_word_and_a_failing_query_end_the_wait_within_one_backstop() {
    let _watchdog = Watchdog::new("f2");
    for text in &PARKS[1..] {
        let best = (0..20)
            .map(|_| {
                let device = device();
                let stream = device.stream().unwrap();
                let clock = StdClock::new();
                let hang = Hang::new();
                stream.queue(Work::new().hang(&hang)).unwrap();
                let losing = device.clone();
                let lost_at = std::thread::spawn(move || {
                    wait_for(|| hang.holding() == 1);
                    losing.lose(Fault::new(4, "DEVICE_LOST"));
                    StdClock::new().monotonic_ns()
                });
                let error = wait_on_thread(&stream, &plan(text)).unwrap_err();
                let ended = clock.monotonic_ns();
                assert!(is_fault(&error, "4 DEVICE_LOST"), "{error}");
                ended.since(lost_at.join().unwrap())
            })
            .min()
            .unwrap();
        assert!(best <= DurNs(BACKSTOP.0 + 500_000), "{text}: {best:?} at best");
    }
}

#[test]
fn f4_a_wait_dropped_in_flight_leaves_the_line_to_the_device_until_its_number_landed() {
    let _watchdog = Watchdog::new("f4");
    let device = device();
    let hang = Hang::new();
    let stream = device.stream().unwrap();
    stream.queue(Work::new().hang(&hang)).unwrap();
    let reactor = Reactor::new(StdClock::new());
    let plan = plan("flag:park_us=100,backstop_us=2000");
    {
        let mut port = ReactorPort::new(&stream, &reactor);
        let mut waiting = Box::pin(wait(&plan, None, &mut port, &reactor));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        assert_eq!(reactor.pending(), (1, 0));
    }
    assert_eq!(reactor.pending(), (0, 0), "dropping it unregisters it");
    let line: SharedLine = stream.line().clone();
    let (slot, line_of_device) = (stream.slot(), Arc::downgrade(&line));
    drop((stream, line));
    assert!(line_of_device.upgrade().is_some(), "the store is still to come");
    assert_eq!(device.slots().leased, 1, "and so its slot is not handed out");
    hang.release();
    let line = line_of_device.upgrade().expect("the pool keeps its lines");
    wait_for(|| (*line).as_ref().load(slot) == 1);
    // The next user of the slot goes on behind that number.
    wait_for(|| device.slots().leased == 0);
    let next = device.stream().unwrap();
    assert!(next.mark().unwrap() > 1 || next.slot() != slot);
}

#[test]
fn f11_a_status_that_flips_while_the_waiter_parks_is_seen_at_the_backstop() {
    let _watchdog = Watchdog::new("f11");
    for text in &PARKS[1..] {
        let device = device();
        let stream = device.stream().unwrap();
        for wait in [wait_on_thread, wait_on_reactor] {
            // Where other tests take the cores the work may be over before the wait begins: again.
            let waited = (0..100)
                .map(|_| {
                    stream.delay(DurNs::from_us(300)).unwrap();
                    stream.inject_store(StoreFault::Lost);
                    wait(&stream, &plan(text)).unwrap()
                })
                .find(|waited| waited.end != End::Immediate)
                .unwrap();
            assert_eq!((waited.end, waited.outcome), (End::Backstop, None), "{text}");
            assert!(waited.elapsed >= BACKSTOP, "{text}: only a backstop could see it");
        }
    }
}

#[test]
fn f13_work_that_never_finishes_times_out_and_the_program_goes_on() {
    let _watchdog = Watchdog::new("f13");
    for text in PARKS {
        let device = device();
        let stream = device.stream().unwrap();
        let (hang, clock, plan) = (Hang::new(), StdClock::new(), plan(text));
        stream.queue(Work::new().hang(&hang)).unwrap();
        let mut port = ThreadPort::new(&stream, idle());
        let deadline = clock.monotonic_ns().after(DurNs::from_ms(3));
        let ended = run_inline(wait_until(&plan, None, &mut port, &clock, deadline)).unwrap();
        let Err(WaitError::TimedOut(waited)) = ended else { panic!("{text}: {ended:?}") };
        assert!(clock.monotonic_ns() >= deadline && waited.outcome.is_none());
        assert!(!stream.query().unwrap(), "the device is not lost, only slow");
        hang.release();
        let waited = run_inline(wait(&plan, None, &mut port, &clock)).unwrap().unwrap();
        assert_ne!(waited.end, End::TimedOut, "{text}");
        assert!(stream.query().unwrap());
    }
}

#[test]
fn f16_predicted_sleeps_end_within_their_margin_or_are_censored_at_both_slack_settings() {
    let _watchdog = Watchdog::new("f16");
    let plan = plan(
        "spin:backstop_us=5000+predict:margin_us=80,min_sleep_us=10,max_sleep_us=5000,window=1",
    );
    let deadline = plan.predict.unwrap();
    for clock in [StdClock::new(), StdClock::keeping_timer_slack()] {
        // On threads of their own: the slack of one must not show in the other.
        std::thread::spawn(move || {
            let device = device();
            let stream = device.stream().unwrap();
            let mut port = ThreadPort::new(&stream, StdIdle::with(clock, ParkPolicy::SPIN));
            let mut estimate = PointEstimate::new();
            let mut lateness = Vec::new();
            let mut slept = 0;
            // As many as it takes where other tests take the cores.
            for _ in 0..5_000 {
                if slept >= 10 && lateness.len() >= 10 {
                    break;
                }
                stream.delay(DurNs::from_us(100)).unwrap();
                let end = stream.mark().unwrap();
                let sleep = estimate.sleep_ns(&deadline);
                let waited = run_inline(wait(&plan, sleep, &mut port, &clock)).unwrap().unwrap();
                let resumed = clock.monotonic_ns();
                let stamp = stream.stamp_of(end).unwrap();
                slept += u32::from(waited.slept > DurNs::ZERO);
                let late = waited.end == End::Late;
                assert_eq!(
                    late,
                    matches!(waited.outcome, Some(Outcome::Late { .. })),
                    "a late wake is censored"
                );
                if let Some(outcome) = waited.outcome {
                    if !late {
                        lateness.push(resumed.since(stamp));
                    }
                    estimate.observe(&deadline, outcome);
                }
            }
            lateness.sort_unstable();
            assert!(slept >= 10, "slept {slept} times");
            let best = lateness[0];
            assert!(best < DurNs(deadline.margin_ns), "{best} late at best");
        })
        .join()
        .unwrap();
    }
}

#[test]
fn f19_nothing_to_wait_for_costs_next_to_no_cpu_and_a_long_wait_a_bounded_share() {
    let _watchdog = Watchdog::new("f19");
    std::thread::spawn(|| {
        let clock = StdClock::new();
        let Some(before) = thread_cpu_time() else {
            println!("skipped: this system does not tell the CPU time of a thread");
            return;
        };
        // A task that only another thread can wake, which does so after a second.
        let reactor = Reactor::new(clock);
        let mut executor: Executor<Task> = Executor::new();
        let mailbox = Mailbox::new();
        let sender = mailbox.clone();
        let other = std::thread::spawn(move || {
            run_inline(clock_sleep(DurNs::from_ms(1_000))).unwrap();
            sender.send(1);
        });
        executor.run_until(&reactor, &mut idle(), BOUND, mailbox.receive()).unwrap();
        let used = cpu_since(before);
        other.join().unwrap();
        println!("1 s with nothing to wait for: {used:?} of CPU time");
        assert!(used < DurNs::from_ms(10), "{used:?} of CPU time in a second of nothing");

        // A wait of 50 ms that parks without a hardware monitor.
        let device = device();
        let stream = device.stream().unwrap();
        stream.delay(DurNs::from_ms(50)).unwrap();
        let before = thread_cpu_time().unwrap();
        wait_on_reactor(&stream, &plan("flag:park_us=1000,backstop_us=10000")).unwrap();
        let used = cpu_since(before);
        println!("a wait of 50 ms: {used:?} of CPU time");
        assert!(used < DurNs::from_ms(15), "{used:?} of CPU time in a wait of 50 ms");
    })
    .join()
    .unwrap();
}

fn cpu_since(before: DurNs) -> DurNs {
    DurNs(thread_cpu_time().unwrap().0 - before.0)
}

async fn clock_sleep(time: DurNs) {
    use gpu_async_reactor::Timer;
    let clock = StdClock::new();
    clock.sleep_until(clock.monotonic_ns().after(time)).await;
}

#[test]
fn f20_an_error_is_never_read_as_not_complete() {
    let _watchdog = Watchdog::new("f20");
    let device = device();
    let stream = device.stream().unwrap();
    let hang = Hang::new();
    stream.queue(Work::new().hang(&hang)).unwrap();
    stream.inject_query(QueryFault::Fail(Fault::new(999, "UNKNOWN")));
    let mut port = ThreadPort::new(&stream, idle());
    assert!(is_fault(&port.query().unwrap_err(), "999 UNKNOWN"));
    assert!(!port.query().unwrap(), "that error was not sticky");
    for text in PARKS {
        stream.inject_query(QueryFault::Fail(Fault::new(999, "UNKNOWN")));
        let error = wait_on_thread(&stream, &plan(text)).unwrap_err();
        assert!(is_fault(&error, "999 UNKNOWN"), "{text}");
    }
    hang.release();
}

#[test]
fn f21_busy_tasks_do_not_starve_a_completion_with_or_without_a_doorbell() {
    let _watchdog = Watchdog::new("f21");
    for with_doorbell in [false, true] {
        let (device, doorbell) = (device(), Doorbell::new());
        let stream = device.stream_on(&doorbell).unwrap();
        let clock = StdClock::new();
        let reactor = match with_doorbell {
            true => Reactor::with_doorbell(clock, &doorbell),
            false => Reactor::new(clock),
        };
        let filled = Cell::new(0);
        let lateness = (0..20).map(|_| {
            let polls = Cell::new(0u64);
            let mut executor: Executor<Task> = Executor::new();
            for _ in 0..10 {
                executor.spawn(Box::pin(async {
                    loop {
                        polls.set(polls.get() + 1);
                        yield_now().await;
                    }
                }));
            }
            stream.delay(DurNs::from_us(500)).unwrap();
            let end = stream.mark().unwrap();
            let main = async {
                let mut port = ReactorPort::new(&stream, &reactor);
                let plan = plan("flag:park_us=1000,backstop_us=100000");
                wait(&plan, None, &mut port, &reactor).await.unwrap();
                clock.monotonic_ns()
            };
            let (resumed, _) = executor.run_until(&reactor, &mut idle(), BOUND, main).unwrap();
            filled.set(filled.get().max(polls.get()));
            resumed.since(stream.stamp_of(end).unwrap())
        });
        let best = lateness.min().unwrap();
        assert!(best < DurNs::from_us(50), "{best} late at best, doorbell: {with_doorbell}");
        assert!(filled.get() > 100, "the waits were filled");
    }
}

#[test]
fn f24_a_wait_ends_with_its_own_point_whatever_was_queued_after_it() {
    let _watchdog = Watchdog::new("f24");
    for text in PARKS.iter().chain(&["block"]) {
        let device = device();
        let stream = device.stream().unwrap();
        let (hang, plan) = (Hang::new(), plan(text));
        let reactor = Reactor::new(StdClock::new());
        let mut executor: Executor<Task> = Executor::new();
        let main = async {
            let port = ReactorPort::new(&stream, &reactor);
            stream.delay(DurNs::from_us(300)).unwrap();
            let step = port.mark().unwrap();
            // Step N + 1 is queued before step N is waited for, and never finishes.
            stream.queue(Work::new().hang(&hang)).unwrap();
            wait(&plan, None, &mut port.at(step), &reactor).await.unwrap();
            assert!(!stream.query().unwrap(), "{text}: the stream itself is still busy");
            assert!(seen(&stream, step.number()));
        };
        executor.run_until(&reactor, &mut idle(), BOUND, main).unwrap();
        hang.release();
    }
}

#[test]
fn f24_an_armed_wait_ends_although_more_is_queued_while_it_waits() {
    let _watchdog = Watchdog::new("f24");
    for text in &PARKS[1..] {
        let device = device();
        let stream = device.stream().unwrap();
        let (hang, plan) = (Hang::new(), plan(text));
        let reactor = Reactor::new(StdClock::new());
        let mut executor: Executor<Task> = Executor::new();
        executor.spawn(Box::pin(async {
            stream.queue(Work::new().hang(&hang)).unwrap();
        }));
        let main = async {
            let mut port = ReactorPort::new(&stream, &reactor);
            stream.delay(DurNs::from_us(2_000)).unwrap();
            wait(&plan, None, &mut port, &reactor).await.unwrap().end
        };
        let (end, _) = executor.run_until(&reactor, &mut idle(), BOUND, main).unwrap();
        assert!(matches!(end, End::Parked | End::Spun | End::Immediate), "{text}: {end:?}");
        hang.release();
    }
}
