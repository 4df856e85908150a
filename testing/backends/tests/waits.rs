//! Waits on streams of each vendor's interface, and what must not break them.
#![cfg(target_os = "linux")]

use backend_tests::{
    Bench, Call, Vendor, assert_fault, for_each_vendor, number_of, plan, seen, thread_port,
    wait_by, wait_for,
};
use gpu_async_reactor::host::{StdClock, StdIdle};
use gpu_async_reactor::{
    Clock, DeviceStream, DurNs, End, ErrorCode, Executor, Reactor, ReactorPort, WaitError,
    run_inline, wait, wait_until,
};

const SPIN: &str = "spin:backstop_us=1000";

for_each_vendor! {
    every_plan_ends_when_the_work_is_done;
    a_reactor_with_a_doorbell_is_rung_by_the_device;
    the_store_lands_and_caps_say_so;
    f1_after_a_fault_a_stored_word_is_no_success;
    f2_a_fault_with_a_silent_word_ends_the_wait_within_a_backstop;
    f13_a_deadline_ends_the_wait_for_work_that_hangs_and_the_stream_goes_on;
    f20_an_error_of_the_status_is_not_pending;
    f24_a_wait_ends_with_its_own_mark_whatever_is_queued_behind;
    a_lost_store_is_found_by_the_backstop_and_its_slot_retired;
    f24_what_is_done_stays_done_whatever_is_queued_behind;
    f12_an_error_arrives_in_each_task_that_awaits;
    marks_of_which_only_words_are_looked_at_keep_no_events;
    numbers_that_were_never_issued_are_refused;
    a_thousand_streams_share_pages_and_handles_are_used_again;
}

fn every_plan_ends_when_the_work_is_done<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    let mut port = thread_port(&stream);
    let work = DurNs::from_us(300);
    for (text, ends) in [
        ("block", &[End::Blocked][..]),
        ("poll", &[End::Polled]),
        (SPIN, &[End::Spun, End::Backstop]),
        ("flag:park_us=50,backstop_us=1000", &[End::Parked, End::Backstop]),
    ] {
        for _ in 0..5 {
            let started = StdClock::new().monotonic_ns();
            assert_eq!(bench.control.work(number_of(stream.handle()), work), 0);
            let waited = wait_by(text, &mut port).unwrap();
            let took = StdClock::new().monotonic_ns().since(started);
            // On a busy machine the work may be over before the wait begins.
            let expected = ends.contains(&waited.end) || waited.end == End::Immediate;
            assert!(expected, "{text}: {waited:?}");
            assert!(took >= work, "{text} ended after {took:?}");
            assert!(stream.query().unwrap());
        }
    }
    bench.assert_clean();
}

fn a_reactor_with_a_doorbell_is_rung_by_the_device<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let bell = device.doorbell().unwrap();
    let streams: Vec<_> = (0..20).map(|_| device.stream_on(&bell).unwrap()).collect();
    let clock = StdClock::new();
    let reactor = Reactor::with_doorbell(clock, &bell);
    let mut idle = StdIdle::probe(clock).0;
    let mut executor = Executor::new();
    let before = bell.snapshot();
    for stream in &streams {
        bench.hold(stream);
    }
    let ports: Vec<_> = streams.iter().map(|stream| ReactorPort::new(stream, &reactor)).collect();
    let tickets: Vec<_> = ports.iter().map(|port| port.mark().unwrap()).collect();
    let waits = ports.into_iter().zip(tickets).map(|(port, ticket)| {
        let reactor = &reactor;
        Box::pin(
            async move { wait(&plan(SPIN), None, &mut port.at(ticket), reactor).await.unwrap() },
        )
    });
    let handles: Vec<_> = waits.map(|wait| executor.spawn(wait)).collect();
    bench.control.release();
    executor.run(&reactor, &mut idle, DurNs::from_us(1000)).unwrap();
    for handle in handles {
        run_inline(handle).unwrap().unwrap();
    }
    let rung = bell.snapshot().iter().zip(before).filter(|(now, then)| **now != *then).count();
    assert_eq!(rung, 7, "twenty streams ring the seven words of devices");
    bench.assert_clean();
}

fn the_store_lands_and_caps_say_so<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    assert_eq!(device.caps().store, Ok(()));
    let stream = device.stream().unwrap();
    let numbers: Vec<u64> = (0..100).map(|_| stream.mark().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
    stream.synchronize_mark(numbers[99]).unwrap();
    assert!(seen(&stream, numbers[99]) && !seen(&stream, numbers[99] + 1));
    assert!(numbers.iter().all(|number| stream.query_mark(*number).unwrap()));
    assert!(device.stats().events <= 102, "{:?}", device.stats());
    bench.assert_clean();
}

fn f1_after_a_fault_a_stored_word_is_no_success<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    let mut port = thread_port(&stream);
    let ticket = port.mark().unwrap();
    wait_for(|| seen(&stream, ticket.number()));
    bench.fault();
    for text in ["poll", SPIN, "block", "flag:park_us=50,backstop_us=1000"] {
        assert_fault::<V>(&wait_by(text, &mut port.at(ticket)).unwrap_err());
        assert_fault::<V>(&wait_by(text, &mut port).unwrap_err());
    }
    assert_fault::<V>(&stream.mark().unwrap_err());
}

fn f2_a_fault_with_a_silent_word_ends_the_wait_within_a_backstop<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    bench.hold(&stream);
    let mut port = thread_port(&stream);
    let ticket = port.mark().unwrap();
    let control = &bench.control;
    let queries = bench.calls(Call::QueryEvent);
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            // Two queries are a wait that has begun and has come to a backstop.
            wait_for(|| bench.calls(Call::QueryEvent) >= queries + 2);
            control.fault(V::FAULT.0);
        });
        wait_by(SPIN, &mut port.at(ticket)).unwrap_err()
    });
    assert_fault::<V>(&error);
    assert!(!seen(&stream, ticket.number()));
    control.release();
}

fn f13_a_deadline_ends_the_wait_for_work_that_hangs_and_the_stream_goes_on<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    bench.hold(&stream);
    let mut port = thread_port(&stream);
    let ticket = port.mark().unwrap();
    let clock = StdClock::new();
    for text in ["poll", SPIN, "flag:park_us=50,backstop_us=1000"] {
        let deadline = clock.monotonic_ns().after(DurNs::from_us(2_000));
        let (plan, mut port) = (plan(text), port.at(ticket));
        match run_inline(wait_until(&plan, None, &mut port, &clock, deadline)).unwrap() {
            Err(WaitError::TimedOut(waited)) => assert_eq!(waited.end, End::TimedOut),
            other => panic!("{text}: {other:?}"),
        }
        assert!(clock.monotonic_ns() >= deadline);
    }
    bench.control.release();
    wait_by(SPIN, &mut port.at(ticket)).unwrap();
    wait_by(SPIN, &mut port).unwrap();
    bench.assert_clean();
}

fn f20_an_error_of_the_status_is_not_pending<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    bench.hold(&stream);
    let mut port = thread_port(&stream);
    let ticket = port.mark().unwrap();
    // A status that does not stay: the wait ends with it, the next one finds the work.
    bench.fail(Call::QueryEvent, 46);
    let error = wait_by("poll", &mut port.at(ticket)).unwrap_err();
    assert_eq!((error.code(), error.status_number()), (ErrorCode::Backend, Some(46)), "{error}");
    bench.fail(Call::QueryStream, 46);
    assert_eq!(stream.query().unwrap_err().status_number(), Some(46));
    bench.control.release();
    wait_by("poll", &mut port.at(ticket)).unwrap();
    bench.assert_clean();
}

fn f24_a_wait_ends_with_its_own_mark_whatever_is_queued_behind<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    let mut port = thread_port(&stream);
    for text in ["block", "poll", SPIN, "flag:park_us=50,backstop_us=1000"] {
        let ticket = port.mark().unwrap();
        bench.hold(&stream);
        let later = port.mark().unwrap();
        wait_by(text, &mut port.at(ticket)).unwrap();
        assert!(!stream.query().unwrap() && !stream.query_mark(later.number()).unwrap());
        bench.control.release();
        wait_by(text, &mut port.at(later)).unwrap();
    }
    bench.assert_clean();
}

fn a_lost_store_is_found_by_the_backstop_and_its_slot_retired<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    bench.hold(&stream);
    bench.control.lose_stores(1);
    let mut port = thread_port(&stream);
    let ticket = port.mark().unwrap();
    let queries = bench.calls(Call::QueryEvent);
    let waited = std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for(|| bench.calls(Call::QueryEvent) > queries);
            bench.control.release();
        });
        wait_by(SPIN, &mut port.at(ticket)).unwrap()
    });
    assert_eq!(waited.end, End::Backstop);
    assert!(!seen(&stream, ticket.number()));
    drop(port);
    drop(stream);
    assert_eq!(device.stats().slots.retired, 1);
    bench.assert_clean();
}

fn f24_what_is_done_stays_done_whatever_is_queued_behind<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    let number = stream.mark().unwrap();
    let (lease, ()) = stream.lease(device.pinned(1).unwrap(), |_| Ok(())).unwrap();
    bench.hold(&stream);
    let later = stream.mark().unwrap();
    let leased = lease.ticket().number();
    wait_for(|| stream.query_mark(leased).unwrap());
    let queries = bench.calls(Call::QueryEvent);
    for _ in 0..3 {
        assert!(stream.query_mark(number).unwrap() && stream.query_mark(leased).unwrap());
        stream.synchronize_mark(number).unwrap();
        wait_by("block", &mut thread_port(&stream).at(lease.ticket())).unwrap();
    }
    assert_eq!(bench.calls(Call::QueryEvent), queries, "what is known is not asked for");
    drop(lease.try_take().expect("the device is done with it"));
    assert!(!stream.query_mark(later).unwrap());
    bench.control.release();
    bench.assert_clean();
}

fn f12_an_error_arrives_in_each_task_that_awaits<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let clock = StdClock::new();
    let reactor = Reactor::new(clock);
    let mut idle = StdIdle::probe(clock).0;
    let streams: Vec<_> = (0..3).map(|_| device.stream().unwrap()).collect();
    let mut executor = Executor::new();
    streams.iter().for_each(|stream| bench.hold(stream));
    let waits = streams.iter().zip(["poll", SPIN, "flag:park_us=50,backstop_us=1000"]);
    let tasks: Vec<_> = waits
        .map(|(stream, text)| {
            let reactor = &reactor;
            let waiting: std::pin::Pin<Box<dyn Future<Output = _>>> = Box::pin(async move {
                let mut port = ReactorPort::new(stream, reactor);
                wait(&plan(text), None, &mut port, reactor).await.unwrap_err()
            });
            executor.spawn(waiting)
        })
        .collect();
    let queries = bench.calls(Call::QueryEvent);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Two waits are at their backstops.
            wait_for(|| bench.calls(Call::QueryEvent) >= queries + 4);
            bench.fault();
        });
        executor.run(&reactor, &mut idle, DurNs::from_us(1000)).unwrap();
    });
    for task in tasks {
        assert_fault::<V>(&run_inline(task).unwrap().unwrap());
    }
    bench.control.release();
}

fn marks_of_which_only_words_are_looked_at_keep_no_events<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    let mut numbers = Vec::new();
    for _ in 0..100 {
        numbers.extend((0..10).map(|_| stream.mark().unwrap()));
        wait_for(|| seen(&stream, numbers[numbers.len() - 1]));
    }
    let events = device.stats().events;
    assert!(events <= 25, "{events} events of 1000 marks");
    // Each is still answered for, the first ones by an event behind them.
    stream.synchronize_mark(numbers[500]).unwrap();
    let queries = bench.calls(Call::QueryEvent);
    assert!(numbers[..=500].iter().all(|number| stream.query_mark(*number).unwrap()));
    assert_eq!(bench.calls(Call::QueryEvent), queries);
    stream.synchronize_mark(numbers[999]).unwrap();
    assert!(stream.query_mark(numbers[999]).unwrap());
    bench.fault();
    assert_fault::<V>(&stream.query().unwrap_err());
    assert_fault::<V>(&stream.query_mark(numbers[0]).unwrap_err());
    bench.assert_clean();
}

fn numbers_that_were_never_issued_are_refused<V: Vendor>() {
    let bench = Bench::<V>::new();
    let stream = bench.device().stream().unwrap();
    let number = stream.mark().unwrap();
    let refused = stream.query_mark(number + 1).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::NeverIssued);
    assert_eq!(stream.synchronize_mark(u64::MAX).unwrap_err().code(), ErrorCode::NeverIssued);
}

fn a_thousand_streams_share_pages_and_handles_are_used_again<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let streams: Vec<_> = (0..1000).map(|_| device.stream().unwrap()).collect();
    let numbers: Vec<u64> = streams.iter().map(|stream| stream.mark().unwrap()).collect();
    for (stream, number) in streams.iter().zip(numbers) {
        stream.synchronize_mark(number).unwrap();
        assert!(seen(stream, number));
    }
    let (pages, created) = (device.stats().pages, bench.calls(Call::CreateStream));
    assert!(pages <= 3, "a page has 512 words: {pages}");
    drop(streams);
    let again: Vec<_> = (0..1000).map(|_| device.stream().unwrap()).collect();
    assert_eq!(bench.calls(Call::CreateStream), created, "handles are used again");
    assert_eq!(device.stats().pages, pages);
    drop(again);
    bench.assert_clean();
}
