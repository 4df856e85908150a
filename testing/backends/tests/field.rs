//! Faults that users of such interfaces have met: after a device loss, at the limits of a driver, at its start.
#![cfg(target_os = "linux")]

use backend_tests::{
    Bench, Call, OfCuda, Vendor, assert_fault, copy_of, for_each_vendor, number_of, plan, seen,
    thread_port, wait_by, wait_for,
};
use driver_core::Control;
use gpu_async_reactor::backend::cuda::LIBRARY_NAMES;
use gpu_async_reactor::backend::lease::DeviceBuffer;
use gpu_async_reactor::host::{StdClock, StdIdle};
use gpu_async_reactor::{DeviceStream, DurNs, Executor, Reactor, ReactorPort, run_inline, wait};
use std::panic::{AssertUnwindSafe, catch_unwind};

const SPIN: &str = "spin:backstop_us=1000";
const OUT_OF_MEMORY: i32 = 2;

for_each_vendor! {
    f34_after_a_fault_each_wait_fails_without_a_driver_call;
    f37_a_hundred_pending_waits_end_with_a_status_that_stays;
    f38_a_limit_of_events_is_an_error_of_the_mark_and_nothing_is_lost;
    f39_page_locked_memory_that_is_refused_is_named_with_its_size_and_the_next_try_works;
    f40_waits_after_the_first_create_nothing;
    f41_drivers_that_fail_while_a_task_panics_do_not_abort;
}

fn f34_after_a_fault_each_wait_fails_without_a_driver_call<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let streams: Vec<_> = (0..10).map(|_| device.stream().unwrap()).collect();
    let numbers: Vec<u64> = streams.iter().map(|stream| stream.mark().unwrap()).collect();
    bench.fault();
    assert_fault::<V>(&streams[0].query().unwrap_err());
    let calls = bench.calls(Call::Enter);
    for (stream, number) in streams.iter().zip(numbers) {
        for _ in 0..100 {
            assert_fault::<V>(&stream.query_mark(number).unwrap_err());
            assert_fault::<V>(&stream.mark().unwrap_err());
            assert_fault::<V>(&wait_by(SPIN, &mut thread_port(stream)).unwrap_err());
        }
    }
    drop(streams);
    assert!(device.close().unwrap().unsettled.is_some());
    assert_eq!(bench.calls(Call::Enter), calls, "the device that is lost is left alone");
    bench.assert_clean();
}

fn f37_a_hundred_pending_waits_end_with_a_status_that_stays<V: Vendor>() {
    // hipErrorUnknown, CUDA_ERROR_UNKNOWN: what drivers answer once a machine was asleep.
    const UNKNOWN: i32 = 999;
    let bench = Bench::<V>::new();
    let device = bench.device();
    let clock = StdClock::new();
    let reactor = Reactor::new(clock);
    let mut idle = StdIdle::probe(clock).0;
    let streams: Vec<_> = (0..100).map(|_| device.stream().unwrap()).collect();
    streams.iter().for_each(|stream| bench.hold(stream));
    let mut executor = Executor::new();
    let tasks: Vec<_> = streams
        .iter()
        .map(|stream| {
            let reactor = &reactor;
            let waiting: std::pin::Pin<Box<dyn Future<Output = _>>> = Box::pin(async move {
                let mut port = ReactorPort::new(stream, reactor);
                wait(&plan(SPIN), None, &mut port, reactor).await.unwrap_err()
            });
            executor.spawn(waiting)
        })
        .collect();
    let queries = bench.calls(Call::QueryEvent);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for(|| bench.calls(Call::QueryEvent) > queries);
            bench.control.fault(UNKNOWN);
        });
        executor.run(&reactor, &mut idle, DurNs::from_us(1000)).unwrap();
    });
    for task in tasks {
        let error = run_inline(task).unwrap().unwrap();
        assert_eq!(error.status_number(), Some(i64::from(UNKNOWN)), "{error}");
    }
    bench.control.release();
}

fn f38_a_limit_of_events_is_an_error_of_the_mark_and_nothing_is_lost<V: Vendor>() {
    const STREAMS: usize = 50;
    const LIMIT: u64 = 64;
    let bench = Bench::<V>::new();
    let device = bench.device();
    let streams: Vec<_> = (0..STREAMS).map(|_| device.stream().unwrap()).collect();
    streams.iter().for_each(|stream| bench.hold(stream));
    for nth in LIMIT..LIMIT + 400 {
        bench.control.fail(V::entry(Call::CreateEvent), nth, OUT_OF_MEMORY);
    }
    let mut marked = Vec::new();
    let mut refused = 0;
    for _ in 0..4 {
        for stream in &streams {
            match stream.mark() {
                Ok(number) => marked.push((stream, number)),
                Err(error) => {
                    assert_eq!(error.status_number(), Some(i64::from(OUT_OF_MEMORY)), "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 0 && marked.len() >= LIMIT as usize - 2, "{refused}, {}", marked.len());
    bench.control.release();
    wait_for(|| marked.iter().all(|(stream, number)| seen(stream, *number)));
    wait_for(|| marked.iter().all(|(stream, number)| stream.query_mark(*number).unwrap()));
    // Their events serve again.
    for stream in &streams {
        let number = stream.mark().unwrap();
        wait_for(|| stream.query_mark(number).unwrap());
    }
    drop(marked);
    drop(streams);
    assert_eq!(device.stats().slots.retired, 0);
    bench.assert_clean();
}

fn f39_page_locked_memory_that_is_refused_is_named_with_its_size_and_the_next_try_works<
    V: Vendor,
>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    bench.fail(Call::Allocate, OUT_OF_MEMORY);
    let error = device.pinned(100_000).unwrap_err();
    assert_eq!(error.status_number(), Some(i64::from(OUT_OF_MEMORY)));
    let text = error.to_string();
    for part in ["102400 bytes of page-locked host memory", "ulimit -l", V::entry(Call::Allocate)] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(device.pinned(100_000).unwrap().as_slice::<u8>().len(), 100_000);
    bench.assert_clean();
}

fn f40_waits_after_the_first_create_nothing<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    let mut port = thread_port(&stream);
    let plans = ["poll", SPIN, "block"];
    let mut once = |text: &str| {
        // Work that is not over when the wait begins.
        assert_eq!(bench.control.work(number_of(stream.handle()), DurNs::from_us(50)), 0);
        let ticket = port.mark().unwrap();
        wait_by(text, &mut port.at(ticket)).unwrap();
    };
    (0..30).for_each(|round| once(plans[round % 3]));
    let made =
        || [Call::CreateEvent, Call::CreateStream, Call::Allocate].map(|call| bench.calls(call));
    let before = made();
    (0..3_000).for_each(|round| once(plans[round % 3]));
    assert_eq!(made(), before);
    let mut port = thread_port(&stream);
    for _ in 0..100_000 {
        let ticket = port.mark().unwrap();
        wait_by(SPIN, &mut port.at(ticket)).unwrap();
    }
    assert_eq!(made(), before);
    bench.assert_clean();
}

fn f41_drivers_that_fail_while_a_task_panics_do_not_abort<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let memory = V::device_memory(&bench.control, 4096);
    let handle = V::blocking_stream(&bench.control);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let own = device.stream_on(&device.doorbell().unwrap()).unwrap();
        // SAFETY: the stream is never destroyed.
        let lent = unsafe { device.stream_from_raw(handle, None) }.unwrap();
        let mut leases = Vec::new();
        for stream in [&own, &lent] {
            bench.hold(stream);
            let buffer = device.pinned(4096).unwrap();
            // SAFETY: the device memory is that long, is never freed, and written by nobody.
            leases.push(unsafe { stream.read_back::<u8, _>(memory, 4096, buffer) }.unwrap());
        }
        let _of_device = device.memory(1).unwrap();
        // Every call fails from now on.
        bench.control.fault(V::FAULT.0);
        std::panic::panic_any("the task panics");
    }));
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"the task panics"));
    let leases = device.stats().leases;
    assert_eq!(leases.leased, leases.waiting, "{leases:?}");
    assert!(device.close().unwrap().unsettled.is_some());
    bench.assert_clean();
}

#[test]
fn f53_every_place_of_the_driver_is_tried() {
    assert!(LIBRARY_NAMES.starts_with(&["libcuda.so.1", "libcuda.so"]));
    assert!(LIBRARY_NAMES.contains(&"/usr/lib/wsl/lib/libcuda.so.1"));
}

#[test]
fn f54_f55_a_start_that_fails_says_which_library_it_is_and_what_to_do() {
    for (status, name, advice) in [
        (34, "CUDA_ERROR_STUB_LIBRARY", "toolkit's stub library"),
        (802, "CUDA_ERROR_SYSTEM_NOT_READY", "fabric manager"),
        (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "different versions"),
        (804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "compatibility package"),
    ] {
        let (_folder, path) = copy_of::<OfCuda>();
        let control = Control::open(&path);
        control.fail("cuInit", 1, status);
        let error = OfCuda::load(&path).unwrap_err();
        assert_eq!(error.status_number(), Some(i64::from(status)));
        let text = error.to_string();
        for part in [&status.to_string(), name, advice, path.to_str().unwrap()] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
        OfCuda::load(&path).expect("the next try finds a driver that works");
    }
}
