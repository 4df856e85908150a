//! What is dropped while the device is at work, and what is freed.

use crate::common::wait_for;
use crate::setup::{Gate, Messages, busy, device, plan, seen};
use gpu_async_reactor::backend::vulkan::VulkanDevice;
use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{DeviceStream, ErrorCode, Reactor, ReactorPort, SharedLine, Slot, wait};
use std::pin::Pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Waker};
use std::time::Instant;

crate::cases![
    f4_a_stream_dropped_with_a_store_in_flight_leaves_its_memory_to_the_device,
    f4_dropping_a_stream_or_a_device_never_waits,
    f5_eight_threads_create_and_drop_streams_with_waits_in_flight,
    a_thousand_streams_share_three_pages_and_use_them_again,
    a_slot_is_used_again_and_its_numbers_go_on,
    closing_frees_everything_but_what_the_program_holds,
    two_threads_may_close_at_once,
    a_device_dropped_without_being_closed_is_leaked_and_counted,
    a_forked_child_is_told_so_by_every_call_and_drops_without_a_vulkan_call,
];

fn f4_a_stream_dropped_with_a_store_in_flight_leaves_its_memory_to_the_device() {
    let device = device();
    let gate = Gate::new(&device);
    let stream = device.stream().unwrap();
    gate.hold(&stream).unwrap();
    let reactor = Reactor::new(StdClock::new());
    {
        let plan = plan("flag:park_us=100,backstop_us=2000");
        let mut port = ReactorPort::new(&stream, &reactor);
        let mut waiting = Box::pin(wait(&plan, None, &mut port, &reactor));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let (line, slot): (SharedLine, Slot) = (stream.line().clone(), stream.slot());
    let place = (address(&line), slot);
    drop(stream);
    assert_eq!((device.stats().streams, device.stats().settling), (0, 1));
    // Nobody else gets the slot while the store is on its way.
    let others: Vec<_> = (0..40).map(|_| device.stream().unwrap()).collect();
    assert!(others.iter().all(|other| (address(other.line()), other.slot()) != place));
    gate.open();
    wait_for(|| (*line).as_ref().load(slot) == 2);
    wait_for(|| {
        // Making one looks at what was dropped.
        let _another = device.stream().unwrap();
        device.stats().settling == 0
    });
    drop((others, line));
    gate.end();
}

fn address(line: &SharedLine) -> usize {
    std::ptr::from_ref((**line).as_ref()).addr()
}

fn f4_dropping_a_stream_or_a_device_never_waits() {
    let messages = Messages::default();
    let device = messages.builder().open().unwrap();
    let before = VulkanDevice::leaked_devices();
    let gate = Gate::new(&device);
    let stream = device.stream().unwrap();
    gate.hold(&stream).unwrap();
    stream.mark().unwrap();
    let line = stream.line().clone();
    let raw = device.raw().clone();
    drop(stream);
    // The gate is shut: a drop that waited would never end, and the watchdog would say so.
    drop(device);
    assert_eq!(VulkanDevice::leaked_devices(), before + 1);
    // The line is still mapped: the device has yet to store into it.
    assert_eq!((*line).as_ref().load(Slot::ALL[0]), 0);
    drop((line, raw));
    messages.assert_none();
}

fn f5_eight_threads_create_and_drop_streams_with_waits_in_flight() {
    let device = device();
    let bell = device.doorbell().unwrap();
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (device, bell, barrier) = (&*device, &bell, &barrier);
            scope.spawn(move || {
                barrier.wait();
                let reactor = Reactor::with_doorbell(StdClock::new(), bell);
                for round in 0..60 {
                    let stream = device.stream_on(bell).unwrap();
                    let buffer = device.buffer(1 << 20).unwrap();
                    stream.fill(&buffer, thread, 3).unwrap();
                    let plan = plan("spin:backstop_us=2000");
                    let mut port = ReactorPort::new(&stream, &reactor);
                    let mut waiting: Pin<Box<_>> = Box::pin(wait(&plan, None, &mut port, &reactor));
                    let mut cx = Context::from_waker(Waker::noop());
                    let polled = waiting.as_mut().poll(&mut cx);
                    if round % 2 == 0 && polled.is_pending() {
                        while waiting.as_mut().poll(&mut cx).is_pending() {
                            std::thread::yield_now();
                        }
                    }
                    // Otherwise the wait, its port and its stream go with the store in flight.
                }
            });
        }
    });
    drop(bell);
    let stats = device.stats();
    assert_eq!((stats.streams, stats.leaked, stats.slots.retired), (0, 0, 0), "{stats:?}");
}

fn a_thousand_streams_share_three_pages_and_use_them_again() {
    let device = device();
    let began = Instant::now();
    for _ in 0..2 {
        let streams: Vec<_> = (0..1_000).map(|_| device.stream().unwrap()).collect();
        let numbers: Vec<_> = streams.iter().map(|stream| stream.mark().unwrap()).collect();
        for (stream, &number) in streams.iter().zip(&numbers) {
            stream.synchronize_mark(number).unwrap();
            assert!(seen(stream, number));
        }
        assert_eq!((device.stats().pages, device.stats().streams), (2, 1_000));
        drop(streams);
        wait_for(|| {
            let _another = device.stream().unwrap();
            device.stats().settling == 0
        });
    }
    println!("    2,000 streams in {:?}", began.elapsed());
    assert!(device.stats().pages <= 3);
}

fn a_slot_is_used_again_and_its_numbers_go_on() {
    let device = device();
    let first = device.stream().unwrap();
    let place = (address(first.line()), first.slot());
    for _ in 0..5 {
        first.mark().unwrap();
    }
    // The last number has no store: the word stays behind it.
    // SAFETY: nothing is submitted but the signal of the stream's own semaphore.
    let last = unsafe { first.submit(&Default::default()) }.unwrap();
    first.synchronize().unwrap();
    drop(first);
    let streams: Vec<_> = (0..8).map(|_| device.stream().unwrap()).collect();
    let again = streams.iter().find(|stream| (address(stream.line()), stream.slot()) == place);
    let again = again.expect("the slot of a settled stream is used again");
    assert_eq!(again.mark().unwrap(), last + 1);
    again.synchronize().unwrap();
    assert!(seen(again, last + 1));
}

fn closing_frees_everything_but_what_the_program_holds() {
    let mut device = device();
    device.leaks();
    let stream = device.stream().unwrap();
    let buffer = busy(&device, &stream, 5);
    let pinned = device.pinned(10).unwrap();
    let number = stream.mark().unwrap();
    let line = stream.line().clone();
    assert_eq!(device.close(), Ok(3), "a stream, a buffer, and a pinned one");
    // It has waited.
    assert!(seen(&stream, number) && stream.query().unwrap());
    for error in [
        stream.mark().unwrap_err(),
        device.stream().map(drop).unwrap_err(),
        device.buffer(1).map(drop).unwrap_err(),
        device.pinned(1).map(drop).unwrap_err(),
        device.doorbell().map(drop).unwrap_err(),
    ] {
        assert_eq!(error.code(), ErrorCode::Closed, "{error}");
    }
    drop((stream, buffer, pinned));
    assert_eq!(device.close(), Ok(1), "the page of the line");
    assert_eq!((*line).as_ref().load(Slot::ALL[0]), number);
    drop(line);
    let before = VulkanDevice::leaked_devices();
    assert_eq!((device.close(), device.close()), (Ok(0), Ok(0)));
    drop(device);
    assert_eq!(VulkanDevice::leaked_devices(), before);
}

fn a_device_dropped_without_being_closed_is_leaked_and_counted() {
    let before = VulkanDevice::leaked_devices();
    let device = VulkanDevice::open().unwrap();
    let stream = Arc::new(device.stream().unwrap());
    let number = stream.mark().unwrap();
    drop(device);
    assert_eq!(VulkanDevice::leaked_devices(), before, "the stream holds it");
    stream.synchronize_mark(number).unwrap();
    drop(stream);
    assert_eq!(VulkanDevice::leaked_devices(), before + 1);
}

/// Elsewhere nothing forks.
#[cfg(not(unix))]
fn a_forked_child_is_told_so_by_every_call_and_drops_without_a_vulkan_call() {}

#[cfg(unix)]
fn a_forked_child_is_told_so_by_every_call_and_drops_without_a_vulkan_call() {
    let device = device();
    let gate = Gate::new(&device);
    let bell = device.doorbell().unwrap();
    let stream = device.stream_on(&bell).unwrap();
    let pinned = device.pinned(64).unwrap();
    gate.hold(&stream).unwrap();
    // SAFETY: the child calls what is under test and ends by `_exit`. What it allocates is safe with the
    // system's allocator, whose locks are whole in a child.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        let forked = |error: gpu_async_reactor::Error| error.code() == ErrorCode::Forked;
        let mut told = forked(stream.query().unwrap_err())
            && forked(stream.synchronize().unwrap_err())
            && forked(stream.mark().unwrap_err())
            && forked(stream.query_mark(1).unwrap_err())
            && forked(stream.synchronize_mark(1).unwrap_err())
            && forked(stream.completed_at(1).unwrap_err())
            && forked(device.stream().map(drop).unwrap_err())
            && forked(device.stream_on(&bell).map(drop).unwrap_err())
            && forked(device.doorbell().map(drop).unwrap_err())
            && forked(device.pinned(1).map(drop).unwrap_err())
            && forked(device.buffer(1).map(drop).unwrap_err())
            && forked(device.close().unwrap_err())
            && device.caps().store.is_err();
        // A wait for the device's lock or a driver call could hang here: the parent's watchdog would end
        // it, so the child ends itself too.
        // SAFETY: a plain system call.
        unsafe { libc::alarm(20) };
        drop((stream, pinned, bell));
        told &= device.stats() == Default::default();
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(if told { 7 } else { 1 }) }
    }
    let mut status = 0;
    // SAFETY: `status` outlives the call, and the child is this process's own.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 7), "{status:#x}");
    gate.open();
    stream.synchronize().unwrap();
    drop((stream, pinned, bell));
    gate.end();
}

fn two_threads_may_close_at_once() {
    for _ in 0..5 {
        let device = device();
        device.stream().unwrap().mark().unwrap();
        std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(|| device.close()));
            let closed = threads.map(|thread| thread.join().unwrap());
            assert!(closed.iter().all(|closed| *closed == Ok(0)), "{closed:?}");
        });
    }
}
