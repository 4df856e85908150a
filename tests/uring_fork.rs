//! A child that was forked while a ring was in use: it touches nothing of the ring, and the parent's
//! operations and sleeps go on (F43, F44).
//!
//! One test, alone in its process: a fork copies what every other thread is in the middle of.
#![cfg(all(feature = "io-uring", feature = "software", target_os = "linux", not(loom)))]

mod common;
mod ring;

use common::{Watchdog, wait_for};
use gpu_async_reactor::host::uring::{Op, Recv, RingMode, Timeout};
use gpu_async_reactor::host::{Runtime, UringHandle, UringIdle};
use gpu_async_reactor::{Clock, CompletionLine, DurNs, Error, ErrorCode, Idle, MonoNs};
use ring::{Refusing, in_child, now, pair, poll_once, ring_with};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread;

const FORKS: usize = 150;
const SLEEPS: usize = 10_000;
const TIMERS: usize = 5;
/// After a child has ended, most of the time.
const SOON: DurNs = DurNs::from_ms(3);

/// What the parent has, and a child has a copy of.
struct Parent {
    idle: UringIdle,
    handle: UringHandle,
    /// The kernel has it.
    receive: Op<Recv<Vec<u8>>>,
    /// The same. The child only drops them: enough for a submission, if one came of it.
    timers: Vec<Op<Timeout>>,
    /// Queued, not submitted.
    queued: Op<Timeout>,
    unpolled: Op<Timeout>,
    reader: Arc<OwnedFd>,
    writer: Arc<OwnedFd>,
}

impl Parent {
    fn new(kernel: &Refusing) -> Option<Self> {
        let mut idle = ring_with(8, kernel)?;
        let handle = idle.handle();
        let (reader, writer) = pair();
        let mut receive = handle.recv(&reader, Vec::with_capacity(64));
        assert!(poll_once(&mut receive).is_pending());
        let mut timers = Vec::from_iter((0..TIMERS).map(|_| handle.timeout(now().after(SOON))));
        timers.iter_mut().for_each(|timer| assert!(poll_once(timer).is_pending()));
        // A sleep whose time is up before it enters the kernel submits nothing.
        while handle.stats().submitted < 1 + TIMERS as u64 {
            idle.sleep_until(now().after(DurNs::from_us(50)));
        }
        let mut queued = handle.timeout(now());
        assert!(poll_once(&mut queued).is_pending());
        let unpolled = handle.timeout(now());
        Some(Parent { idle, handle, receive, timers, queued, unpolled, reader, writer })
    }

    /// Every use of these in a child.
    fn use_in_child(self, with_thread: bool) {
        let Parent { mut idle, handle, mut receive, timers, queued, mut unpolled, reader, writer } =
            self;
        let before = handle.stats();
        // Polled: an error that names the fork, with the buffer. Started: the same.
        match poll_once(&mut receive) {
            Poll::Ready((Err(error), buffer)) => {
                is_forked(&error);
                assert_eq!(buffer.capacity(), 64);
            }
            other => panic!("{other:?}"),
        }
        match poll_once(&mut unpolled) {
            Poll::Ready(Err(error)) => is_forked(&error),
            other => panic!("{other:?}"),
        }
        match poll_once(&mut handle.send(&writer, "from the child")) {
            Poll::Ready((Err(error), _)) => is_forked(&error),
            other => panic!("{other:?}"),
        }
        // Sleeps and parks as on any thread, ended by the unparker.
        assert!(!idle.has_io() && !idle.poll_io(now()));
        let at = now().after(DurNs::from_us(200));
        idle.sleep_until(at);
        assert!(now() >= at);
        let line = CompletionLine::default();
        assert!(!idle.park_line(&line, |_| false, DurNs::from_us(100)));
        idle.unparker().unwrap().wake();
        idle.sleep_until(MonoNs::MAX);
        if with_thread {
            wake_while_asleep(&mut idle);
        }
        assert_eq!(handle.stats(), before, "the ring was not entered");
        // Dropped: nothing waits, in particular not for completions that are the parent's.
        let began = now();
        drop((timers, queued, receive, unpolled));
        drop((idle, handle, reader, writer));
        assert!(now().since(began) < DurNs::from_ms(10_000));
    }

    /// What the parent does afterwards: all goes on.
    fn go_on(mut self) {
        rustix::io::write(&*self.writer, b"to the parent").unwrap();
        let mut received = None;
        let mut timers = self.timers;
        timers.push(self.queued);
        while received.is_none() || !timers.is_empty() {
            self.idle.sleep_until(now().after(DurNs::from_ms(1)));
            if received.is_none() {
                if let Poll::Ready((result, bytes)) = poll_once(&mut self.receive) {
                    assert_eq!(result.expect("it was not cancelled"), 13);
                    received = Some(bytes);
                }
            }
            timers.retain_mut(|timer| match poll_once(timer) {
                Poll::Pending => true,
                Poll::Ready(ended) => {
                    ended.expect("it was not cancelled");
                    false
                }
            });
        }
        assert_eq!(received.unwrap(), b"to the parent");
        let stats = self.handle.stats();
        let all = 2 + TIMERS as u64;
        assert_eq!((stats.submitted, stats.completed, stats.in_flight), (all, all, 0));
    }
}

/// Another thread wakes this one out of a sleep without end.
fn wake_while_asleep(idle: &mut UringIdle) {
    let waker = idle.unparker().unwrap();
    let from = now().after(DurNs::from_ms(2));
    let waking = thread::spawn(move || {
        while now() < from {
            thread::yield_now();
        }
        waker.wake();
    });
    idle.sleep_until(MonoNs::MAX);
    waking.join().unwrap();
}

fn is_forked(error: &io::Error) {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    assert_eq!(inner.map(Error::code), Some(ErrorCode::Forked), "{error}");
    assert!(error.to_string().contains("fork"), "{error}");
}

/// A runtime whose thread idles in a ring, run in a child that was forked since.
fn a_runtime_goes_on_in_a_child(runtime: &Runtime) {
    let handle = runtime.handle();
    let ring = runtime.uring().unwrap().clone();
    let woke = runtime.block_on(async move {
        let at = handle.clock().monotonic_ns().after(DurNs::from_ms(2));
        is_forked(&ring.nop().await.unwrap_err());
        handle.sleep_until(at).await.unwrap();
        handle.clock().monotonic_ns() >= at
    });
    assert!(woke.unwrap());
}

#[test]
fn f44_a_forked_child_touches_nothing_of_the_ring_and_the_parents_operations_go_on() {
    let _watchdog = Watchdog::new("uring fork");
    let Ok(runtime) = Runtime::builder("poll", "io-uring").strict().build() else { return };
    let (begun, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        // Allocates and frees, so that forks find another thread in the middle of things.
        scope.spawn(|| {
            begun.store(true, Ordering::Relaxed);
            while !stop.load(Ordering::Relaxed) {
                drop(Vec::<u8>::with_capacity(std::hint::black_box(1 << 16)));
            }
        });
        // The standard library's threads take a lock of its own when they start and end, which a child
        // would wait for in vain when it starts its own.
        wait_for(|| begun.load(Ordering::Relaxed));
        let ended = std::panic::catch_unwind(|| {
            for newest in [true, false] {
                let kernel = Refusing::later(RingMode::Deferred, newest);
                for fork in 0..FORKS {
                    let Some(parent) = Parent::new(&kernel) else { return };
                    // SAFETY: the child, whose memory is its own, uses and drops this copy; the
                    // parent forgets it and goes on with the original.
                    let copy = ManuallyDrop::new(unsafe { std::ptr::read(&raw const parent) });
                    assert!(in_child(
                        || ManuallyDrop::into_inner(copy).use_in_child(fork % 30 == 0)
                    ));
                    parent.go_on();
                }
                sleeps_are_right(&kernel);
            }
        });
        stop.store(true, Ordering::Relaxed);
        ended.unwrap();
    });
    assert!(in_child(|| a_runtime_goes_on_in_a_child(&runtime)));
    let ring = runtime.uring().unwrap().clone();
    runtime.block_on(async move { ring.nop().await }).unwrap().expect("the parent's own ring");
}

/// Sleeps of a parent, some of them beside children that sleep in copies of the same idle.
fn sleeps_are_right(kernel: &Refusing) {
    let Some(mut idle) = ring_with(8, kernel) else { return };
    for round in 0..SLEEPS / 2 {
        if round % 500 == 0 {
            // SAFETY: as above.
            let copy = ManuallyDrop::new(unsafe { std::ptr::read(&raw const idle) });
            assert!(in_child(|| {
                let mut idle = ManuallyDrop::into_inner(copy);
                for _ in 0..20 {
                    idle.sleep_until(now().after(DurNs::from_us(50)));
                }
            }));
        }
        let at = now().after(DurNs::from_us(10));
        idle.sleep_until(at);
        assert!(now() >= at, "round {round}: ended early");
    }
    wake_while_asleep(&mut idle);
}
