//! What the vendors' blocking waits cost, and drivers whose waits or submissions are not what they should be.
#![cfg(target_os = "linux")]

use backend_tests::{
    Bench, Call, OfHip, Vendor, for_each_vendor, number_of, seen, thread_port, wait_by,
};
use gpu_async_reactor::{DeviceStream, DurNs, End};
use std::time::{Duration, Instant};

const WORK: Duration = Duration::from_millis(50);

for_each_vendor! {
    f57_a_blocking_wait_sleeps;
    f57_a_blocking_wait_ends_with_its_own_mark_whatever_is_queued_behind;
    a_blocking_wait_that_returns_at_once_with_not_yet_is_no_hot_loop;
    a_driver_that_batches_is_noticed_and_flushed;
    a_driver_that_does_not_batch_is_not_asked_after_each_mark;
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call, which fills it.
    let asked = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(asked, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The time and the processor time of a call.
fn cost(call: impl FnOnce()) -> (Duration, Duration) {
    let (began, before) = (Instant::now(), processor_time());
    call();
    (began.elapsed(), processor_time() - before)
}

fn f57_a_blocking_wait_sleeps<V: Vendor>() {
    let bench = Bench::<V>::new();
    let stream = bench.device().stream().unwrap();
    let mut port = thread_port(&stream);
    let work = || {
        let time = DurNs(WORK.as_nanos() as u64);
        assert_eq!(bench.control.work(number_of(stream.handle()), time), 0);
    };
    let marked = |wait: &dyn Fn(u64)| {
        work();
        let number = stream.mark().unwrap();
        cost(|| wait(number))
    };
    let costs = [
        marked(&|number| stream.synchronize_mark(number).unwrap()),
        marked(&|_| stream.synchronize().unwrap()),
        {
            work();
            cost(|| assert_eq!(wait_by("block", &mut port).unwrap().end, End::Blocked))
        },
    ];
    for (took, spent) in costs {
        assert!(took >= WORK / 2, "{took:?}");
        assert!(spent < WORK / 10, "{spent:?} of {took:?} on the processor");
    }
    bench.assert_clean();
}

fn f57_a_blocking_wait_ends_with_its_own_mark_whatever_is_queued_behind<V: Vendor>() {
    let bench = Bench::<V>::new();
    let stream = bench.device().stream().unwrap();
    for _ in 0..5 {
        assert_eq!(bench.control.work(number_of(stream.handle()), DurNs::from_ms(2)), 0);
        let number = stream.mark().unwrap();
        bench.hold(&stream);
        let later = stream.mark().unwrap();
        stream.synchronize_mark(number).unwrap();
        assert!(stream.query_mark(number).unwrap() && !stream.query_mark(later).unwrap());
        bench.control.release();
        stream.synchronize_mark(later).unwrap();
    }
    bench.assert_clean();
}

fn a_blocking_wait_that_returns_at_once_with_not_yet_is_no_hot_loop<V: Vendor>() {
    let bench = Bench::<V>::new();
    let stream = bench.device().stream().unwrap();
    let waits = bench.calls(Call::SynchronizeEvent);
    for nth in 1..=2_000 {
        bench.control.fail(V::entry(Call::SynchronizeEvent), nth, 600);
    }
    let time = DurNs(WORK.as_nanos() as u64);
    assert_eq!(bench.control.work(number_of(stream.handle()), time), 0);
    let number = stream.mark().unwrap();
    let (took, spent) = cost(|| stream.synchronize_mark(number).unwrap());
    assert!(took >= WORK / 2, "{took:?}");
    assert!(spent < WORK / 4, "{spent:?} of {took:?} on the processor");
    let waits = bench.calls(Call::SynchronizeEvent) - waits;
    assert!(waits < 1_000, "{waits} calls in {took:?}");
    assert!(stream.query_mark(number).unwrap());
    bench.assert_clean();
}

fn a_driver_that_batches_is_noticed_and_flushed<V: Vendor>() {
    let bench = Bench::<V>::new();
    bench.control.batching(true);
    let device = bench.device();
    assert_eq!(device.caps().store, Ok(()));
    let stream = device.stream().unwrap();
    for _ in 0..3 {
        let number = stream.mark().unwrap();
        // Nobody asks, and the word comes all the same.
        let began = Instant::now();
        while !seen(&stream, number) {
            assert!(began.elapsed() < Duration::from_secs(20), "the mark was not submitted");
            std::thread::yield_now();
        }
    }
    bench.assert_clean();
}

fn a_driver_that_does_not_batch_is_not_asked_after_each_mark<V: Vendor>() {
    let bench = Bench::<V>::new();
    let stream = bench.device().stream().unwrap();
    let queries = bench.calls(Call::QueryEvent);
    for _ in 0..10 {
        stream.mark().unwrap();
    }
    assert_eq!(bench.calls(Call::QueryEvent), queries);
}

#[test]
fn f57_hip_a_blocking_wait_sleeps_in_each_version() {
    for version in [50_700_000, 60_200_000, 70_000_000] {
        let bench = Bench::<OfHip>::new();
        bench.control.version(version);
        let stream = bench.device().stream().unwrap();
        let time = DurNs(WORK.as_nanos() as u64);
        assert_eq!(bench.control.work(number_of(stream.handle()), time), 0);
        let number = stream.mark().unwrap();
        let (took, spent) = cost(|| stream.synchronize_mark(number).unwrap());
        assert!(took >= WORK / 2 && spent < WORK / 10, "{version}: {spent:?} of {took:?}");
    }
}
