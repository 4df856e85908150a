//! What a port that is woken by a host function holds, and for how long.
#![cfg(target_os = "linux")]

use backend_tests::{Bench, Call, OfHip, Vendor, copy_of, for_each_vendor, wait_for};
use driver_core::without_symbol;
use gpu_async_reactor::backend::mapped::{HostFunctionPort, Stream};
use gpu_async_reactor::host::TokioClock;
use gpu_async_reactor::{CompletionPort, DeviceStream, DurNs, ErrorCode};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

for_each_vendor! {
    a_launch_that_never_came_to_the_driver_leaves_nothing_behind;
    a_port_that_is_dropped_lets_go_of_its_task;
    a_waker_is_dropped_with_no_lock_held;
    a_call_after_its_port_was_dropped_wakes_nobody;
}

/// A waker that counts, and knows when it is gone.
struct Counting<F: Fn() + Send + Sync + 'static> {
    woken: AtomicUsize,
    dropped: F,
}

impl<F: Fn() + Send + Sync> Wake for Counting<F> {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::Relaxed);
    }
}

impl<F: Fn() + Send + Sync> Drop for Counting<F> {
    fn drop(&mut self) {
        (self.dropped)();
    }
}

fn counting<F: Fn() + Send + Sync>(dropped: F) -> Arc<Counting<F>> {
    Arc::new(Counting { woken: AtomicUsize::new(0), dropped })
}

/// Polls a park of `port` once, which is pending.
fn poll_once<P: CompletionPort>(port: &mut P, waker: &Waker) {
    let park = pin!(port.park(DurNs::from_us(60_000_000)));
    assert!(matches!(park.poll(&mut Context::from_waker(waker)), Poll::Pending));
}

/// Runs `test` where tokio's timers work.
fn in_a_runtime(test: impl FnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { test() });
}

fn armed<V: Vendor>(
    stream: &Stream<V::Interface>,
) -> HostFunctionPort<'_, V::Interface, TokioClock> {
    let mut port = HostFunctionPort::new(stream, TokioClock::new());
    port.arm().unwrap();
    port
}

fn a_launch_that_never_came_to_the_driver_leaves_nothing_behind<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    let mut port = HostFunctionPort::new(&stream, TokioClock::new());
    // The context is entered for the mark, then for the launch.
    for _ in 0..3 {
        bench.control.fail(V::entry(Call::Enter), 2, 46);
        assert_eq!(port.arm().unwrap_err().status_number(), Some(46));
    }
    assert_eq!((device.stats().host_functions, bench.calls(Call::Launch)), (0, 0));
    // Where the driver itself says no, it may call all the same.
    bench.fail(Call::Launch, 46);
    port.arm().unwrap_err();
    assert_eq!(device.stats().host_functions, 1);
    bench.assert_clean();
}

#[test]
fn a_runtime_without_host_functions_says_so_and_nothing_piles_up() {
    let (folder, path) = copy_of::<OfHip>();
    let without = folder.path().join("without.so");
    without_symbol(&path, "hipLaunchHostFunc", &without).unwrap();
    let bench = Bench::<OfHip>::over(folder, &without);
    let device = bench.device();
    let stream = device.stream().unwrap();
    let mut port = HostFunctionPort::new(&stream, TokioClock::new());
    for _ in 0..3 {
        assert_eq!(port.arm().unwrap_err().code(), ErrorCode::SymbolMissing);
    }
    assert_eq!(device.stats().host_functions, 0);
}

fn a_port_that_is_dropped_lets_go_of_its_task<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    bench.hold(&stream);
    in_a_runtime(|| {
        let task = counting(|| {});
        let waker = Waker::from(task.clone());
        let mut port = armed::<V>(&stream);
        poll_once(&mut port, &waker);
        port.begin();
        drop(waker);
        assert_eq!(Arc::strong_count(&task), 1, "a new wait keeps nothing of the last one");
        let waker = Waker::from(task.clone());
        port.arm().unwrap();
        poll_once(&mut port, &waker);
        drop((port, waker));
        assert_eq!(Arc::strong_count(&task), 1, "the call may never come");
    });
    bench.control.release();
    stream.synchronize().unwrap();
    bench.assert_clean();
}

fn a_call_after_its_port_was_dropped_wakes_nobody<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    bench.hold(&stream);
    let task = counting(|| {});
    in_a_runtime(|| {
        let mut port = armed::<V>(&stream);
        poll_once(&mut port, &Waker::from(task.clone()));
    });
    bench.control.release();
    stream.synchronize().unwrap();
    wait_for(|| device.stats().host_functions == 0);
    assert_eq!(task.woken.load(Ordering::Relaxed), 0);
    drop(stream);
    assert!(device.close().unwrap().released);
    bench.assert_clean();
}

fn a_waker_is_dropped_with_no_lock_held<V: Vendor + 'static>() {
    let bench = Arc::new(Bench::<V>::new());
    let device = bench.device();
    let stream = Arc::new(device.stream().unwrap());
    bench.hold(&stream);
    in_a_runtime(|| {
        let mut port = armed::<V>(&stream);
        // Its end waits until the driver's call has returned, which work behind it waits for.
        let (with, of) = (bench.clone(), stream.clone());
        let first = counting(move || {
            let behind = of.mark().unwrap();
            with.control.release();
            of.synchronize_mark(behind).unwrap();
        });
        poll_once(&mut port, &Waker::from(first));
        poll_once_or_more(&mut port, &Waker::from(counting(|| {})));
        assert!(port.seen());
    });
    bench.assert_clean();
}

/// The same where the park may be over.
fn poll_once_or_more<P: CompletionPort>(port: &mut P, waker: &Waker) {
    let mut park = pin!(port.park(DurNs::from_us(60_000_000)));
    let _ = park.as_mut().poll(&mut Context::from_waker(waker));
}
