//! What stands in the kernel and in the queues when a ring goes, is lost, or is full.

use super::*;
use crate::core::idle::Idle;
use crate::core::line::CompletionLine;
use crate::core::time::{Clock, DurNs};
use crate::host::uring::ring::Ring;
use crate::host::uring::setup::{BeforeEnter, RingNeed, SetupCalls};
use crate::host::std_idle::hardware::counted;
use crate::host::{ParkPolicy, StdClock, StdIdle, UringIdle};
use alloc::{boxed::Box, rc::Rc, vec::Vec};
use core::cell::Cell;
use core::pin::Pin;
use core::task::{Context, Waker};
use rustix::io::Errno;
use rustix::thread::futex;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::println;

/// The kernel, without futex waits or not, which answers `refusal` from the entry `refused_from` on.
struct Calls {
    futex: bool,
    refused_from: u64,
    refusal: Rc<Cell<Option<Errno>>>,
}

impl Calls {
    fn all(futex: bool) -> Self {
        Calls { futex, refused_from: 0, refusal: Rc::default() }
    }
}

impl SetupCalls for Calls {
    fn has(&self, need: RingNeed, found: bool) -> bool {
        found && (self.futex || need != RingNeed::FutexWaits)
    }

    fn later_enters(&self) -> Option<BeforeEnter> {
        let (from, refusal) = (self.refused_from, self.refusal.clone());
        Some(Box::new(move |number| match refusal.get() {
            Some(errno) if number >= from => Err(errno.into()),
            _ => Ok(()),
        }))
    }
}

fn idle(calls: &Calls) -> Option<UringIdle> {
    match UringIdle::with_calls(StdClock::new(), ParkPolicy::default(), 8, calls) {
        Ok(idle) => Some(idle),
        Err(why) => {
            println!("skipped: no io_uring here: {why}");
            None
        }
    }
}

fn soon() -> MonoNs {
    StdClock::new().monotonic_ns().after(DurNs::from_us(60))
}

/// How many waiters stand on the word of a ring. They are woken.
fn waiters(unparker: &Unparker) -> usize {
    futex::wake(unparker.word(), futex::Flags::PRIVATE, i32::MAX as u32).unwrap()
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> bool {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// The descriptor of a ring, once more: the kernel keeps the ring as long as it is open, as if a forked
/// child had it.
fn keep_open(ring: &Ring) -> OwnedFd {
    ring.with(|inner| inner.queues.as_ref().unwrap().duplicate())
}

#[test]
fn a_ring_that_is_gone_leaves_no_waiter_on_the_word_of_its_unparker() {
    let (one, _other) = UnixStream::pair().unwrap();
    let socket = Arc::new(OwnedFd::from(one));
    for round in 0..120 {
        let Some(mut idle) = idle(&Calls::all(round % 4 != 3)) else { return };
        let (handle, unparker) = (idle.handle(), idle.unparker_for_tests());
        idle.sleep_until(soon());
        if round % 2 == 1 {
            // The bell rings, and is armed again.
            idle.unparker().unwrap().wake();
            idle.sleep_until(soon());
            idle.sleep_until(soon());
        }
        let mut receive = handle.recv(&socket, Vec::with_capacity(8));
        if round % 3 == 0 {
            assert!(!poll_once(&mut receive));
            idle.sleep_until(soon());
        }
        let open = keep_open(&handle.ring);
        drop((receive, handle, idle));
        assert_eq!(waiters(&unparker), 0, "round {round}");
        drop(open);
    }
}

#[test]
fn a_ring_that_is_lost_leaves_no_waiter_on_the_word_that_its_thread_sleeps_on_then() {
    for futex in [true, false] {
        let calls = Calls { refused_from: 2, ..Calls::all(futex) };
        calls.refusal.set(Some(Errno::PERM));
        let Some(mut idle) = idle(&calls) else { return };
        let (handle, unparker) = (idle.handle(), idle.unparker_for_tests());
        idle.sleep_until(soon());
        let open = keep_open(&handle.ring);
        assert_eq!(handle.lost(), None);
        idle.sleep_until(soon());
        assert!(handle.lost().is_some());
        assert_eq!(waiters(&unparker), 0);
        drop(open);
    }
}

#[test]
fn an_operation_of_a_lost_ring_does_not_end_before_the_kernel_has_let_go_of_it() {
    let (one, mut other) = UnixStream::pair().unwrap();
    let socket = Arc::new(OwnedFd::from(one));
    let calls = Calls { refused_from: 2, ..Calls::all(true) };
    calls.refusal.set(Some(Errno::PERM));
    let Some(mut idle) = idle(&calls) else { return };
    let handle = idle.handle();
    let mut receive = handle.recv(&socket, Vec::with_capacity(8));
    assert!(!poll_once(&mut receive));
    idle.sleep_until(soon());
    // The kernel keeps the ring, and with it the operation, although it is lost.
    let open = keep_open(&handle.ring);
    for _ in 0..20 {
        idle.sleep_until(soon().after(DurNs::from_ms(1)));
    }
    assert!(handle.lost().is_some());
    assert!(!poll_once(&mut receive), "the kernel may still write to its buffer");
    drop(open);
    while !poll_once(&mut receive) {
        idle.sleep_until(soon());
    }
    // Now it does not: what is sent stays in the socket.
    other.write_all(b"later").unwrap();
    assert_eq!(rustix::io::read(&*socket, &mut [0; 8]), Ok(5));
}

#[test]
fn a_completion_ends_a_park_in_hardware_of_any_length() {
    counted::offer(true);
    let (like, _) = StdIdle::probe(StdClock::new());
    let Some(idle) = idle(&Calls::all(true)) else { return };
    let mut idle = idle.parking_like(&like);
    let (handle, line) = (idle.handle(), CompletionLine::default());
    for round in 0..20 {
        let began = soon();
        let mut timer = handle.timeout(began.after(DurNs::from_ms(1)));
        assert!(!poll_once(&mut timer));
        assert!(!idle.park_line(&line, |_| false, DurNs::from_ms(10_000)));
        assert!(poll_once(&mut timer), "round {round}: the park was not ended by it");
        let woke = StdClock::new().monotonic_ns();
        assert!(woke.since(began) < DurNs::from_ms(5_000), "only the bound ended it");
        // So does a notification, and nothing else does.
        idle.unparker().unwrap().wake();
        assert!(!idle.park_line(&line, |_| false, DurNs::MAX));
        let end = StdClock::new().monotonic_ns().after(DurNs::from_us(60));
        assert!(!idle.park_line(&line, |_| false, DurNs::from_us(60)));
        assert!(StdClock::new().monotonic_ns() >= end);
    }
    assert!(counted::take_parks() >= 20);
}

#[test]
fn a_bell_that_found_no_room_is_not_taken_for_armed() {
    let calls = Calls { refused_from: 1, ..Calls::all(true) };
    let Some(mut idle) = idle(&calls) else { return };
    let handle = idle.handle();
    // The kernel takes nothing for a while, and the queue is full.
    calls.refusal.set(Some(Errno::AGAIN));
    let mut operations: Vec<_> = (0..20).map(|_| handle.nop()).collect();
    operations.iter_mut().for_each(|operation| assert!(!poll_once(operation)));
    idle.sleep_until(soon());
    handle.ring.with(|inner| {
        let queues = inner.queues.as_mut().unwrap();
        assert!(queues.is_full() && !inner.armed);
        let (queued, entry) = (queues.queued(), bell(&inner.unparker));
        assert!(!queues.push(&entry), "there is no room");
        assert_eq!(queues.queued(), queued);
    });
    calls.refusal.set(None);
    // All of them, and a bell that ends a sleep of any length.
    while !operations.is_empty() {
        idle.sleep_until(soon());
        operations.retain_mut(|operation| !poll_once(operation));
    }
    let waker = idle.unparker().unwrap();
    let asleep = std::thread::spawn(move || {
        std::thread::sleep(core::time::Duration::from_millis(5));
        waker.wake();
    });
    idle.sleep_until(MonoNs::MAX);
    asleep.join().unwrap();
}
