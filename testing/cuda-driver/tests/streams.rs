//! Streams, events and stores of the test driver, as a backend meets them.
#![cfg(target_os = "linux")]

mod common;

use common::{Cuda, Handle, wait_for};
use driver_core::{DurNs, Live};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

const NOT_READY: i32 = 600;
const INVALID_VALUE: i32 = 1;

#[test]
fn a_store_lands_behind_the_work_before_it_and_in_order() {
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    let (words, at) = cuda.words();
    assert_eq!(cuda.control.hold(stream), 0);
    assert_eq!(cuda.write(stream, at, 7), 0);
    assert_eq!(cuda.write(stream, at + 8, 8), 0);
    assert_eq!(cuda.query(stream), NOT_READY);
    assert_eq!(words[0].load(Ordering::Acquire), 0);
    cuda.control.release();
    wait_for(|| words[1].load(Ordering::Acquire) == 8);
    assert_eq!(words[0].load(Ordering::Relaxed), 7, "stored before the second word");
    assert_eq!(cuda.synchronize(stream), 0);
    assert_eq!(cuda.query(stream), 0);
    cuda.expect_violations(&[]);
}

#[test]
fn work_takes_its_time() {
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    let begin = Instant::now();
    assert_eq!(cuda.control.work(stream, DurNs::from_us(3000)), 0);
    assert_eq!(cuda.synchronize(stream), 0);
    assert!(begin.elapsed() >= Duration::from_millis(3));
}

#[test]
fn an_event_ends_with_its_own_point_whatever_is_queued_after_it() {
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    let event = cuda.event();
    assert_eq!(cuda.query_event(event), 0, "never recorded");
    assert_eq!(cuda.record(event, stream), 0);
    assert_eq!(cuda.control.hold(stream), 0);
    assert_eq!(cu!(cuda, cuEventSynchronize(event => Handle)), 0);
    assert_eq!(cuda.query_event(event), 0);
    assert_eq!(cuda.query(stream), NOT_READY, "work was queued later");
    assert_eq!(cuda.record(event, stream), 0);
    assert_eq!(cuda.query_event(event), NOT_READY, "its newest point counts");
    cuda.control.release();
    assert_eq!(cu!(cuda, cuEventSynchronize(event => Handle)), 0);
    assert_eq!(cu!(cuda, cuEventDestroy_v2(event => Handle)), 0);
    assert_eq!(cuda.query_event(event), 400);
    cuda.expect_violations(&["an event was used after it was destroyed"]);
}

#[test]
fn a_stream_waits_for_an_event_of_another() {
    let cuda = Cuda::ready();
    let (first, second) = (cuda.stream(), cuda.stream());
    let event = cuda.event();
    let (words, at) = cuda.words();
    assert_eq!(cuda.control.hold(first), 0);
    assert_eq!(cuda.write(first, at, 1), 0);
    assert_eq!(cuda.record(event, first), 0);
    assert_eq!(cu!(cuda, cuStreamWaitEvent(second => Handle, event => Handle, 0 => u32)), 0);
    assert_eq!(cuda.write(second, at + 8, 2), 0);
    assert_eq!(cuda.query(second), NOT_READY);
    cuda.control.release();
    assert_eq!(cuda.synchronize(second), 0);
    assert_eq!(words[0].load(Ordering::Relaxed), 1);
    assert_eq!(words[1].load(Ordering::Relaxed), 2);
}

#[test]
fn a_destroyed_stream_still_runs_its_work() {
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    let (words, at) = cuda.words();
    assert_eq!(cuda.control.work(stream, DurNs::from_us(500)), 0);
    assert_eq!(cuda.write(stream, at, 5), 0);
    assert_eq!(cu!(cuda, cuStreamDestroy_v2(stream => Handle)), 0);
    assert_eq!(cuda.control.live(Live::Streams), 0);
    wait_for(|| words[0].load(Ordering::Acquire) == 5);
    assert_eq!(cuda.write(stream, at, 6), 400);
    cuda.expect_violations(&["a stream was used after it was destroyed"]);
}

#[test]
fn null_and_legacy_are_one_stream_and_each_threads_default_another() {
    let cuda = Cuda::ready();
    let (null, legacy, per_thread) = (0, 1, 2);
    assert_eq!(cuda.control.hold(null), 0);
    assert_eq!(cuda.query(legacy), NOT_READY);
    assert_eq!(cuda.query(per_thread), 0);
    let context = cuda.current();
    cuda.control.release();
    assert_eq!(cuda.synchronize(null), 0);
    assert_eq!(cuda.control.hold(per_thread), 0);
    let cuda_here = &cuda;
    thread::scope(|scope| {
        scope.spawn(move || {
            cuda_here.bind(context);
            assert_eq!(cuda_here.query(per_thread), 0, "this thread's own");
        });
    });
    assert_eq!(cuda.query(per_thread), NOT_READY);
    cuda.control.release();
}

#[test]
fn the_legacy_stream_and_blocking_streams_wait_for_each_other() {
    let cuda = Cuda::ready();
    let (blocking, free) = (cuda.stream_with(0), cuda.stream());
    let (words, at) = cuda.words();
    assert_eq!(cuda.control.hold(blocking), 0);
    assert_eq!(cuda.write(0, at, 1), 0);
    assert_eq!(cuda.write(free, at + 8, 2), 0);
    assert_eq!(cuda.synchronize(free), 0, "it waits for nobody");
    assert_eq!(cuda.query(0), NOT_READY);
    assert_eq!(words[0].load(Ordering::Relaxed), 0);
    cuda.control.release();
    assert_eq!(cuda.synchronize(0), 0);
    assert_eq!(cuda.control.hold(0), 0);
    assert_eq!(cuda.write(blocking, at, 3), 0);
    assert_eq!(cuda.query(blocking), NOT_READY);
    cuda.control.release();
    assert_eq!(cuda.synchronize(blocking), 0);
    assert_eq!(words[0].load(Ordering::Relaxed), 3);
}

#[test]
fn an_address_that_the_device_does_not_know_is_refused_before_anything_is_queued() {
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    let host = cuda.host(4096);
    let at = cuda.device_address(host);
    assert_ne!(at, host.addr() as u64, "device addresses are not host addresses");
    assert_eq!(cuda.write(stream, host.addr() as u64, 1), INVALID_VALUE);
    assert_eq!(cuda.write(stream, at + 4, 1), INVALID_VALUE, "not aligned");
    assert_eq!(cuda.write(stream, at + 4096, 1), INVALID_VALUE, "behind the end");
    assert_eq!(cuda.query(stream), 0);
}
