//! A ring that the kernel refuses after it was made (F45): operations end with the error, the thread
//! idles without the ring, and no buffer is given back that the kernel might still write to.
#![cfg(all(feature = "io-uring", feature = "software", target_os = "linux", not(loom)))]

mod common;
mod ring;

use common::Watchdog;
use gpu_async_reactor::host::uring::{RingMode, SetupCalls, uring_leaked};
use gpu_async_reactor::host::{StdClock, UringIdle, thread_cpu_time};
use gpu_async_reactor::{CompletionLine, DurNs, Executor, Idle, Reactor};
use ring::{
    BOUND, Grave, Refusing, Task, Watched, idle_until, now, pair, poll_once, ring_with, run,
};
use rustix::io::Errno;
use std::io::ErrorKind;
use std::sync::Arc;
use std::task::Poll;
use std::thread;

/// A ring on such a kernel, if this one has its mode.
fn ring_on(kernel: &Refusing) -> Option<UringIdle> {
    ring_with(8, kernel as &dyn SetupCalls)
}

fn refuse(kernel: &Refusing, errno: Errno) {
    kernel.errno.set(Some(errno.raw_os_error()));
}

#[test]
fn f45_operations_of_a_ring_that_is_refused_later_end_with_the_error() {
    let _watchdog = Watchdog::new("f45 operations");
    for kernel in Refusing::on_every_kernel() {
        let Some(mut idle) = ring_on(&kernel) else { continue };
        let handle = idle.handle();
        let (reader, writer) = pair();
        let grave = Arc::new(Grave::default());
        let buffer = || Watched::of(&grave, Vec::with_capacity(16));
        // The kernel has these two, one of which is dropped; it never gets the third.
        let mut held = handle.recv(&reader, buffer());
        let mut dropped = handle.recv(&reader, buffer());
        assert!(poll_once(&mut held).is_pending() && poll_once(&mut dropped).is_pending());
        idle.sleep_until(now().after(DurNs::from_us(100)));
        assert_eq!(handle.stats().submitted, 2);
        refuse(&kernel, Errno::PERM);
        let mut queued = handle.send(&writer, b"never sent".to_vec());
        assert!(poll_once(&mut queued).is_pending());
        idle.sleep_until(now().after(DurNs::from_us(100)));
        drop(dropped);
        let why = handle.lost().expect("it was refused");

        let Poll::Ready((refused, returned)) = poll_once(&mut queued) else {
            panic!("{:?}: the kernel never had it, so it ends at once", kernel.mode)
        };
        assert_eq!(
            (refused.unwrap_err().kind(), returned),
            (ErrorKind::PermissionDenied, b"never sent".to_vec())
        );
        let mut ended = None;
        while ended.is_none() {
            idle.sleep_until(now().after(DurNs::from_ms(1)));
            if let Poll::Ready(end) = poll_once(&mut held) {
                ended = Some(end);
            }
        }
        let (refused, returned) = ended.unwrap();
        let refused = refused.unwrap_err();
        assert_eq!(
            (refused.kind(), refused.to_string()),
            (ErrorKind::PermissionDenied, why.to_string())
        );
        assert!(refused.to_string().contains("EPERM from io_uring_enter"), "{refused}");
        drop(returned);
        idle_until(&mut idle, || grave.drops() == 2);
        // The kernel has let go of both buffers: what comes now stays in the socket.
        rustix::io::write(&*writer, b"later").unwrap();
        idle.sleep_until(now().after(DurNs::from_us(500)));
        assert_eq!(grave.drops(), 2);
        let mut bytes = [0; 16];
        assert_eq!((rustix::io::read(&*reader, &mut bytes), &bytes[..5]), (Ok(5), &b"later"[..]));

        // What is started now is refused with the same error, by its first poll.
        let enters = handle.stats().enters;
        let Poll::Ready(Err(refused)) = poll_once(&mut handle.nop()) else {
            panic!("it is refused")
        };
        assert_eq!(refused.to_string(), why.to_string());
        let (sent, _) = run(&mut idle, handle.send_all(&writer, "more"));
        assert_eq!(sent.unwrap_err().kind(), ErrorKind::PermissionDenied);
        // Even if it would be let in again: what was queued then is over.
        kernel.errno.set(None);
        idle.sleep_until(now().after(DurNs::from_us(100)));
        assert_eq!((handle.stats().enters, handle.stats().in_flight), (enters, 0));
    }
}

#[test]
fn f45_a_ring_that_goes_while_it_is_lost_frees_what_the_kernel_has_let_go_of() {
    let _watchdog = Watchdog::new("f45 drop");
    let leaked = uring_leaked();
    for kernel in Refusing::on_every_kernel() {
        let Some(mut idle) = ring_on(&kernel) else { continue };
        let handle = idle.handle();
        let (reader, _writer) = pair();
        let (buffer, grave) = Watched::new(16);
        let mut receive = handle.recv(&reader, buffer);
        assert!(poll_once(&mut receive).is_pending());
        idle.sleep_until(now().after(DurNs::from_us(100)));
        refuse(&kernel, Errno::PERM);
        idle.sleep_until(now().after(DurNs::from_us(100)));
        drop((receive, idle));
        assert!(handle.lost().is_some());
        drop(handle);
        // Either the kernel was in time, or it is leaked and counted.
        assert_eq!(grave.drops() as u64 + uring_leaked() - leaked, 1, "{:?}", kernel.mode);
    }
}

#[test]
fn f45_a_thread_idles_without_its_ring_as_with_it_and_burns_no_core() {
    let _watchdog = Watchdog::new("f45 idles");
    for kernel in Refusing::on_every_kernel() {
        let Some(mut idle) = ring_on(&kernel) else { continue };
        let handle = idle.handle();
        refuse(&kernel, Errno::NOSYS);
        // It is lost in the middle of a sleep, which goes on.
        let share = (0..4)
            .map(|_| {
                let (at, before) = (now().after(DurNs::from_ms(50)), thread_cpu_time().unwrap().0);
                idle.sleep_until(at);
                assert!(now() >= at, "nothing else ended it");
                (thread_cpu_time().unwrap().0 - before) as f64 / 50e6
            })
            .fold(f64::MAX, f64::min);
        println!("{:?}: {:.2} % of a core", kernel.mode, share * 100.0);
        assert!(share < 0.5, "{share} of a core");
        assert!(handle.lost().unwrap().to_string().contains("ENOSYS from io_uring_enter"));
        // Its unparker ends sleeps and parks, whenever the wake comes.
        let line = CompletionLine::default();
        for round in 0..200 {
            let waker = idle.unparker().unwrap();
            let waking = thread::spawn(move || {
                let from = now().after(DurNs::from_us(round % 16));
                while now() < from {
                    std::hint::spin_loop();
                }
                waker.wake();
            });
            match round % 2 {
                0 => idle.sleep_until(gpu_async_reactor::MonoNs::MAX),
                _ => assert!(!idle.park_line(&line, |_| false, DurNs::MAX)),
            }
            waking.join().unwrap();
        }
        // And an executor runs on it.
        let reactor = Reactor::new(StdClock::new());
        let mut executor: Executor<Task> = Executor::new();
        let at = now().after(DurNs::from_ms(2));
        executor.run_until(&reactor, &mut idle, BOUND, reactor.alarm(at)).unwrap();
        assert!(now() >= at);
    }
}

#[test]
fn dropped_completions_end_what_is_in_flight_with_an_error() {
    let _watchdog = Watchdog::new("dropped completions");
    for kernel in Refusing::on_every_kernel() {
        let Some(mut idle) = ring_on(&kernel) else { continue };
        let handle = idle.handle();
        let (reader, _writer) = pair();
        let mut receive = handle.recv(&reader, Vec::with_capacity(16));
        assert!(poll_once(&mut receive).is_pending());
        idle.sleep_until(now().after(DurNs::from_us(100)));
        refuse(&kernel, Errno::BADR);
        let (ended, buffer) = run(&mut idle, &mut receive);
        assert!(ended.unwrap_err().to_string().contains("io_uring_enter"));
        assert_eq!(buffer.capacity(), 16);
    }
}

#[test]
fn a_kernel_that_is_short_of_memory_for_a_while_costs_little_and_loses_nothing() {
    let _watchdog = Watchdog::new("short of memory");
    let kernel = Refusing::later(RingMode::Deferred, true);
    let Some(mut idle) = ring_on(&kernel) else { return };
    let handle = idle.handle();
    let mut nop = handle.nop();
    assert!(poll_once(&mut nop).is_pending());
    for errno in [Errno::AGAIN, Errno::NOMEM, Errno::BUSY] {
        refuse(&kernel, errno);
        let share = (0..4)
            .map(|_| {
                let (at, before) = (now().after(DurNs::from_ms(20)), thread_cpu_time().unwrap().0);
                idle.sleep_until(at);
                assert!(now() >= at);
                (thread_cpu_time().unwrap().0 - before) as f64 / 20e6
            })
            .fold(f64::MAX, f64::min);
        println!("{errno:?}: {:.2} % of a core", share * 100.0);
        assert!(share < 0.5, "{share} of a core");
        assert!(handle.lost().is_none() && poll_once(&mut nop).is_pending());
    }
    kernel.errno.set(None);
    run(&mut idle, nop).unwrap();
}
