//! What threads do to each other while a driver call of one of them stands still: the end of a device, its
//! pools, and marks beside queries.
#![cfg(target_os = "linux")]

use backend_tests::{
    Bench, Call, Vendor, assert_fault, for_each_vendor, seen, thread_port, wait_by, wait_for,
};
use driver_core::Live;
use gpu_async_reactor::backend::lease::DeviceBuffer;
use gpu_async_reactor::{DeviceStream, DurNs, ErrorCode, Result, Slot};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

for_each_vendor! {
    a_device_that_was_released_is_not_touched_by_another_close;
    a_close_beside_a_thread_that_makes_something_does_not_release_the_context_under_it;
    of_two_closes_at_once_the_last_one_releases_the_context;
    threads_that_make_things_beside_a_close_get_them_or_are_refused;
    a_stream_is_dropped_while_the_driver_allocates_for_another_thread;
    a_query_beside_a_mark_that_is_being_queued_loses_no_slot;
    f24_a_blocking_wait_whose_event_was_used_again_waits_for_nobody_else;
    every_leak_of_a_close_is_counted_once;
    calls_that_fail_on_many_threads_lose_nothing_that_is_not_counted;
    a_page_is_freed_behind_the_last_look_of_another_thread;
}

fn a_device_that_was_released_is_not_touched_by_another_close<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let other = device.clone();
    drop(device.stream().unwrap());
    assert!(device.close().unwrap().released);
    let settles = bench.calls(Call::Settle);
    let report = other.close().unwrap();
    assert!(report.released && report.unsettled.is_none(), "{report:?}");
    assert_eq!((report.freed, report.held, report.leaked, report.streams), (0, 0, 0, 0));
    assert_eq!(bench.calls(Call::Settle), settles, "the context is not ours any more");
    assert_eq!(other.stream().unwrap_err().code(), ErrorCode::Closed);
    bench.assert_clean();
}

fn a_close_beside_a_thread_that_makes_something_does_not_release_the_context_under_it<V: Vendor>() {
    for made in [Call::CreateStream, Call::Allocate] {
        let bench = Bench::<V>::new();
        let device = bench.device();
        // The idle stream of the probe, so that a new one is created.
        let first = device.stream().unwrap();
        first.mark().unwrap();
        let make = || match made {
            Call::CreateStream => device.stream().map(|stream| Box::new(stream) as Box<dyn Send>),
            _ => device.pinned(10_000).map(|buffer| Box::new(buffer) as Box<dyn Send>),
        };
        let (made, report) = bench.while_hung(made, make, || {
            drop(first);
            device.close().unwrap()
        });
        assert!(!report.released && report.held > 0, "{report:?}");
        drop(made);
        assert!(device.close().unwrap().released);
        for live in [Live::HostAllocations, Live::Streams, Live::Events] {
            assert_eq!(bench.control.live(live), 0, "{live:?}");
        }
        bench.assert_clean();
    }
}

fn of_two_closes_at_once_the_last_one_releases_the_context<V: Vendor>() {
    let bench = Bench::<V>::new();
    for _ in 0..20 {
        let device = bench.device();
        drop((device.pinned(1).unwrap(), device.stream().unwrap()));
        let both = Barrier::new(2);
        let reports = std::thread::scope(|scope| {
            let close = || {
                both.wait();
                device.close().unwrap()
            };
            [scope.spawn(close), scope.spawn(close)].map(|thread| thread.join().unwrap())
        });
        assert!(reports.iter().any(|report| report.released), "{reports:?}");
        let freed: usize = reports.iter().map(|report| report.freed).sum();
        assert_eq!(freed, 2, "{reports:?}");
    }
    for live in [Live::HostAllocations, Live::Streams, Live::Events] {
        assert_eq!(bench.control.live(live), 0, "{live:?}");
    }
    bench.assert_clean();
}

fn threads_that_make_things_beside_a_close_get_them_or_are_refused<V: Vendor>() {
    let bench = Bench::<V>::new();
    for _ in 0..30 {
        let device = bench.device();
        let all = Barrier::new(4);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (all, device) = (&all, &device);
                scope.spawn(move || {
                    all.wait();
                    for _ in 0..5 {
                        let made = match thread {
                            0 => device.stream().and_then(|stream| {
                                let number = stream.mark()?;
                                stream.synchronize_mark(number)
                            }),
                            1 => device.pinned(5_000).map(drop),
                            _ => {
                                device.doorbell().and_then(|bell| device.stream_on(&bell)).map(drop)
                            }
                        };
                        if let Err(refused) = made {
                            assert_eq!(refused.code(), ErrorCode::Closed, "{refused}");
                        }
                    }
                });
            }
            all.wait();
            device.close().unwrap();
        });
        let report = device.close().unwrap();
        assert!(report.released, "{report:?}");
        assert_eq!(device.stats().teardown_failures, 0);
    }
    for live in [Live::HostAllocations, Live::Streams, Live::Events] {
        assert_eq!(bench.control.live(live), 0, "{live:?}");
    }
    bench.assert_clean();
}

fn a_stream_is_dropped_while_the_driver_allocates_for_another_thread<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    // All lines of the first page, but for the one whose slots the streams have.
    let stream = device.stream().unwrap();
    let kept = device.stream().unwrap();
    let number = kept.mark().unwrap();
    let mut streams = vec![kept];
    let lines: Vec<_> = (0..63).map(|_| device.line().unwrap()).collect();
    assert_eq!(device.stats().pages, 1);
    streams.extend((0..6).map(|_| device.stream().unwrap()));
    let (made, ()) = bench.while_hung(
        Call::Allocate,
        || device.stream().unwrap(),
        || {
            drop(stream);
            assert!(device.stats().slots.leased > 0);
            streams[0].synchronize_mark(number).unwrap();
            wait_by("poll", &mut thread_port(&streams[0])).unwrap();
        },
    );
    assert_eq!(device.stats().pages, 2);
    drop((made, streams, lines));
    bench.assert_clean();
}

fn a_query_beside_a_mark_that_is_being_queued_loses_no_slot<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    // Nothing is queued yet: the status says done, of what the mark is behind.
    let (number, ()) = bench.while_hung(
        Call::Store,
        || stream.mark().unwrap(),
        || {
            assert!(stream.query().unwrap());
        },
    );
    stream.synchronize_mark(number).unwrap();
    assert!(seen(&stream, number));
    let (_, ()) = bench.while_hung(
        Call::Store,
        || {
            bench.control.delay_stores(1, DurNs::MAX);
            stream.mark().unwrap()
        },
        || assert!(stream.query().unwrap()),
    );
    drop(stream);
    let slots = device.stats().slots;
    assert_eq!((slots.draining, slots.retired), (1, 0), "the store is on its way: {slots:?}");
    bench.control.release();
    bench.assert_clean();
}

fn f24_a_blocking_wait_whose_event_was_used_again_waits_for_nobody_else<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    let other = device.stream().unwrap();
    bench.hold(&stream);
    let number = stream.mark().unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        bench.hang(Call::SynchronizeEvent, true);
        let waiting = scope.spawn(|| {
            stream.synchronize_mark(number).unwrap();
            is_over.store(true, Ordering::Release);
        });
        wait_for(|| bench.control.hung() > 0);
        bench.control.release();
        // Another thread sees that the mark is done, and its event is free for another mark.
        wait_for(|| stream.query_mark(number).unwrap());
        bench.hold(&other);
        other.mark().unwrap();
        bench.hang(Call::SynchronizeEvent, false);
        // Nothing but the held work could keep it for so long.
        let started = std::time::Instant::now();
        while !is_over.load(Ordering::Acquire) && started.elapsed().as_secs() < 10 {
            std::thread::yield_now();
        }
        let is_over = is_over.load(Ordering::Acquire);
        bench.control.release();
        waiting.join().unwrap();
        assert!(is_over, "it waited for the work of another stream");
    });
    bench.assert_clean();
}

fn every_leak_of_a_close_is_counted_once<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let memory = device.memory(1).unwrap();
    let buffer = device.pinned(1).unwrap();
    drop(device.pinned(100_000).unwrap());
    let stream = device.stream().unwrap();
    // The driver does not free one of them.
    bench.fail(Call::Free, 1);
    let report = device.close().unwrap();
    assert_eq!(report.leaked, 1, "{report:?}");
    bench.fault();
    for _ in 0..2 {
        let report = device.close().unwrap();
        assert_fault::<V>(report.unsettled.as_ref().unwrap());
        // A page, a buffer and device memory stay, and the one of before.
        assert_eq!((report.leaked, device.stats().leaked), (4, 4), "{report:?}");
    }
    drop((memory, buffer, stream));
    bench.assert_clean();
}

/// For the thread sanitizer: the driver's freeing of the page is behind the other thread's reads.
fn a_page_is_freed_behind_the_last_look_of_another_thread<V: Vendor>() {
    let bench = Bench::<V>::new();
    for _ in 0..10 {
        let device = bench.device();
        let line = device.line().unwrap();
        std::thread::scope(|scope| {
            let _looking = scope.spawn(move || {
                let looked = (0..1000).filter(|_| (*line).as_ref().load(Slot::ALL[0]) == 0).count();
                assert_eq!(looked, 1000);
                drop(line);
            });
            wait_for(|| device.close().unwrap().released);
        });
    }
    bench.assert_clean();
}

/// What a thread does with a device whose driver fails now and then.
fn use_it<V: Vendor>(device: &backend_tests::OpenDevice<V>, round: u64) -> Result<()> {
    let stream = device.stream_on(&device.doorbell()?)?;
    let memory = device.memory(5_000)?;
    let mut source = device.pinned(5_000)?;
    source.as_mut_slice::<u8>().fill(round as u8);
    let number = stream.fill(&memory, 1, 2)?;
    let uploaded = stream.upload(source, &memory, 0)?;
    let copied = stream.copy_back::<u8, _>(&memory, 0..5_000, device.pinned(5_000)?)?;
    if round % 3 == 0 {
        drop((stream, copied, memory, uploaded));
        return Ok(());
    }
    stream.query_mark(number)?;
    wait_by("spin:backstop_us=1000", &mut thread_port(&stream).at(copied.ticket()))?;
    if let Ok(landed) = copied.try_read() {
        assert!(landed.iter().all(|byte| *byte == round as u8), "what was uploaded came back");
    }
    drop(stream);
    Ok(())
}

fn calls_that_fail_on_many_threads_lose_nothing_that_is_not_counted<V: Vendor>() {
    const CODE: i32 = 46;
    let calls = [
        Call::Settle,
        Call::Free,
        Call::QueryStream,
        Call::QueryEvent,
        Call::Store,
        Call::CreateStream,
        Call::Allocate,
        Call::Record,
        Call::Enter,
    ];
    for (seed, call) in calls.into_iter().enumerate() {
        let bench = Bench::<V>::new();
        let device = bench.device();
        // Some fail while the threads are at it, some in the close.
        for nth in 0..6 {
            bench.control.fail(V::entry(call), 1 + nth * (7 + seed as u64), CODE);
        }
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let device = &device;
                scope.spawn(move || {
                    for round in 0..6 {
                        match use_it::<V>(device, thread * 6 + round) {
                            Ok(()) => {}
                            Err(error) if error.code() == ErrorCode::Closed => {}
                            Err(error) => {
                                assert_eq!(error.status_number(), Some(CODE.into()), "{error}");
                            }
                        }
                    }
                });
            }
            if seed % 2 == 0 {
                scope.spawn(|| device.close().unwrap());
            }
        });
        // What is left of the failures is used up by closes.
        (0..80).for_each(|_| drop(device.close().unwrap()));
        let (report, stats) = (device.close().unwrap(), device.stats());
        let there = bench.control.live(Live::HostAllocations);
        let told = format!("{call:?}: {there} allocations, {report:?}, {stats:?}");
        assert!(there <= (report.held + report.leaked) as u64, "{told}");
        assert_eq!(
            (report.streams, stats.leases.leased, stats.leases.waiting),
            (0, 0, 0),
            "{told}"
        );
        if stats.leaked + stats.leases.leaked + stats.slots.retired == 0 {
            assert!(report.released, "{told}");
        }
        bench.assert_clean();
    }
}
