//! Buffers that a vendor's device uses, copies that are read back, and host functions.
#![cfg(target_os = "linux")]

use backend_tests::{
    Bench, Call, Vendor, assert_fault, for_each_vendor, plan, thread_port, wait_by, wait_for,
};
use driver_core::Live;
use gpu_async_reactor::backend::lease::{DeviceBuffer, LeaseStats};
use gpu_async_reactor::backend::mapped::HostFunctionPort;
use gpu_async_reactor::host::{StdClock, TokioClock};
use gpu_async_reactor::{DeviceStream, DurNs, End, run_inline, wait};
use std::sync::atomic::{AtomicUsize, Ordering};

const SPIN: &str = "spin:backstop_us=1000";
const BYTES: usize = 10_000;

for_each_vendor! {
    a_copy_is_awaited_and_read_as_a_slice;
    f4_a_lease_dropped_in_flight_keeps_its_memory_until_the_device_is_done;
    f4_a_stream_dropped_with_leases_in_flight_is_asked_about_them_later;
    f4_behind_a_fault_a_buffer_is_leaked_and_counted;
    a_host_function_ends_a_park;
    after_a_fault_no_host_function_comes_and_the_backstop_has_the_error;
    f5_eight_threads_make_and_drop_streams_lines_and_leases_with_waits_in_flight;
}

fn a_copy_is_awaited_and_read_as_a_slice<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    let memory = V::device_memory(&bench.control, BYTES);
    let mut buffer = device.pinned(BYTES).unwrap();
    for value in [7u8, 9] {
        bench.hold(&stream);
        V::fill(&bench.control, stream.handle(), memory, value, BYTES);
        // SAFETY: the device memory is that long, is never freed, and written by this stream alone.
        let readback = unsafe { stream.read_back::<u8, _>(memory, BYTES, buffer) }.unwrap();
        let readback = readback.try_read().unwrap_err().into_lease();
        bench.control.release();
        let (plan, clock) = (plan(SPIN), StdClock::new());
        let mut port = thread_port(&stream);
        let mut port = port.at(readback.ticket());
        let waited = run_inline(readback.wait(&plan, None, &mut port, &clock));
        (buffer, _) = waited.unwrap().unwrap();
        assert!(buffer.as_slice::<u8>().iter().all(|byte| *byte == value));
    }
    // SAFETY: as above.
    let readback = unsafe { stream.read_back::<u32, _>(memory, BYTES / 4, buffer) }.unwrap();
    stream.synchronize().unwrap();
    let landed = readback.try_read().unwrap();
    assert_eq!((landed.len(), landed[BYTES / 4 - 1]), (BYTES / 4, 0x0909_0909));
    bench.assert_clean();
}

fn f4_a_lease_dropped_in_flight_keeps_its_memory_until_the_device_is_done<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    let memory = V::device_memory(&bench.control, BYTES);
    bench.hold(&stream);
    let buffer = device.pinned(BYTES).unwrap();
    let address = buffer.device_address();
    // SAFETY: the device memory is that long, is never freed, and written by nobody.
    drop(unsafe { stream.read_back::<u8, _>(memory, BYTES, buffer) }.unwrap());
    assert_eq!(stream.sweep(), 0);
    assert_eq!(device.stats().leases, LeaseStats { leased: 1, waiting: 1, ..Default::default() });
    // The memory is nobody else's meanwhile.
    assert_ne!(device.pinned(BYTES).unwrap().device_address(), address);
    bench.control.release();
    wait_by("block", &mut thread_port(&stream)).unwrap();
    assert_eq!(stream.sweep(), 1);
    assert_eq!(device.stats().leases, LeaseStats::default());
    drop(stream);
    assert!(device.close().unwrap().released);
    assert_eq!(bench.control.live(Live::HostAllocations), 0);
    bench.assert_clean();
}

fn f4_a_stream_dropped_with_leases_in_flight_is_asked_about_them_later<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let memory = V::device_memory(&bench.control, BYTES);
    for lease_goes_first in [true, false] {
        let stream = device.stream().unwrap();
        bench.hold(&stream);
        let buffer = device.pinned(BYTES).unwrap();
        // SAFETY: the device memory is that long, is never freed, and written by nobody.
        let readback = unsafe { stream.read_back::<u8, _>(memory, BYTES, buffer) }.unwrap();
        if lease_goes_first {
            drop(readback);
            drop(stream);
        } else {
            drop(stream);
            drop(readback);
        }
        assert_eq!(device.stats().leases.waiting, 1);
        bench.control.release();
        // Whoever makes streams asks.
        wait_for(|| {
            drop(device.stream().unwrap());
            device.stats().leases == LeaseStats::default()
        });
    }
    assert!(device.close().unwrap().released);
    bench.assert_clean();
}

fn f4_behind_a_fault_a_buffer_is_leaked_and_counted<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    let memory = V::device_memory(&bench.control, BYTES);
    bench.hold(&stream);
    let [first, second] = [0, 1].map(|_| {
        let buffer = device.pinned(BYTES).unwrap();
        // SAFETY: the device memory is that long, is never freed, and written by nobody.
        unsafe { stream.read_back::<u8, _>(memory, BYTES, buffer) }.unwrap()
    });
    drop(first);
    bench.fault();
    let not_yet = second.try_read().unwrap_err();
    assert_fault::<V>(not_yet.error().unwrap());
    drop(not_yet);
    stream.sweep();
    let leases = device.stats().leases;
    assert_eq!((leases.leased, leases.waiting, leases.leaked), (0, 0, 2));
    drop(stream);
    let report = device.close().unwrap();
    assert!(report.unsettled.is_some() && bench.calls(Call::Free) == 0, "{report:?}");
    bench.control.release();
    bench.assert_clean();
}

/// A runtime for one task, whose timer is tokio's.
fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.unwrap().block_on(future)
}

fn a_host_function_ends_a_park<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    let clock = TokioClock::new();
    for text in ["flag:park_us=10000,backstop_us=1000000", "spin:backstop_us=1000000", "poll"] {
        bench.hold(&stream);
        let queries = bench.calls(Call::QueryStream);
        let waited = std::thread::scope(|scope| {
            scope.spawn(|| {
                wait_for(|| bench.calls(Call::QueryStream) > queries);
                bench.control.release();
            });
            block_on(async {
                let mut port = HostFunctionPort::new(&stream, clock);
                wait(&plan(text), None, &mut port, &clock).await.unwrap()
            })
        });
        let expected = [End::Parked, End::Spun, End::Polled];
        assert!(expected.contains(&waited.end), "{text}: {waited:?}");
    }
    // The call ends the park: where nothing woke the task, only the end of the bound would.
    let elapsed = (0..10).map(|_| {
        bench.hold(&stream);
        let launches = bench.calls(Call::Launch);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                wait_for(|| bench.calls(Call::Launch) > launches);
                bench.control.release();
            });
            block_on(async {
                let mut port = HostFunctionPort::new(&stream, clock);
                let plan = plan("flag:park_us=10000,backstop_us=1000000");
                wait(&plan, None, &mut port, &clock).await.unwrap().elapsed
            })
        })
    });
    assert!(elapsed.min().unwrap() < DurNs::from_ms(10));
    assert_eq!(device.stats().host_functions, 0);
    drop(stream);
    assert!(device.close().unwrap().released);
    bench.assert_clean();
}

fn after_a_fault_no_host_function_comes_and_the_backstop_has_the_error<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    bench.hold(&stream);
    let error = block_on(async {
        let clock = TokioClock::new();
        let mut port = HostFunctionPort::new(&stream, clock);
        let plan = plan("flag:park_us=10000,backstop_us=20000");
        let waiting = wait(&plan, None, &mut port, &clock);
        let breaking = async {
            // Behind the arming: this is polled once the wait is pending.
            tokio::task::yield_now().await;
            bench.fault();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            waited = waiting => waited.unwrap_err(),
            () = breaking => unreachable!(),
        }
    });
    assert_fault::<V>(&error);
    assert_eq!(device.stats().host_functions, 1, "nobody called it");
    bench.control.release();
    bench.assert_clean();
}

fn f5_eight_threads_make_and_drop_streams_lines_and_leases_with_waits_in_flight<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let memory = V::device_memory(&bench.control, BYTES);
    let waits = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8usize {
            let (bench, device, waits) = (&bench, &device, &waits);
            scope.spawn(move || {
                for round in 0..20 {
                    let bell = device.doorbell().unwrap();
                    let stream = device.stream_on(&bell).unwrap();
                    let work = DurNs::from_us(50);
                    let queued = backend_tests::number_of(stream.handle());
                    assert_eq!(bench.control.work(queued, work), 0);
                    let buffer = device.pinned(BYTES).unwrap();
                    // SAFETY: that long, never freed, and written by nobody.
                    let readback = unsafe { stream.read_back::<u8, _>(memory, BYTES, buffer) };
                    let readback = readback.unwrap();
                    match (thread + round) % 4 {
                        0 => drop((stream, readback)),
                        1 => drop((readback, stream)),
                        2 => {
                            let mut port = thread_port(&stream);
                            wait_by(SPIN, &mut port.at(readback.ticket())).unwrap();
                            drop(readback.try_read().unwrap());
                            waits.fetch_add(1, Ordering::Relaxed);
                        }
                        _ => {
                            let line = stream.line().clone();
                            drop(stream);
                            let lease = readback.into_lease();
                            let mut port = thread_port(lease.stream().clone());
                            wait_by("poll", &mut port.at(lease.ticket())).unwrap();
                            drop((line, lease.try_take().unwrap()));
                            waits.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    assert_eq!(waits.load(Ordering::Relaxed), 80);
    let report = device.close().unwrap();
    assert!(report.released, "{report:?} {:?}", device.stats());
    assert_eq!(device.stats().leases, LeaseStats::default());
    for live in [Live::HostAllocations, Live::Streams, Live::Events] {
        assert_eq!(bench.control.live(live), 0, "{live:?}");
    }
    bench.assert_clean();
}
