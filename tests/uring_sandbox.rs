//! Real sandboxes: children that put a seccomp filter on themselves (F45, F49).
//!
//! One test, alone in its process: the children start threads of their own.
#![cfg(all(feature = "io-uring", feature = "software", target_os = "linux", not(loom)))]

mod common;
mod ring;

use common::Watchdog;
use gpu_async_reactor::backend::software::SoftwareDevice;
use gpu_async_reactor::host::{Runtime, io_uring_caps, thread_cpu_time};
use gpu_async_reactor::{Clock, DurNs};
use ring::{in_child, pair, poll_once};
use std::io::ErrorKind;

/// From now on this thread and its children get `errno` from the system call `number`.
fn refuse(number: libc::c_long, errno: i32) {
    let filter = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    let mut program = [
        // The number is the first field of `struct seccomp_data`.
        filter(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        filter(equals, 0, 1, number as u32),
        filter(answer, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        filter(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
    // SAFETY: `prctl` reads the program, which outlives the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program),
            0
        );
    }
}

/// Docker's default profile: EPERM from the set-up. The text names both things that forbid a ring.
fn a_container() {
    refuse(libc::SYS_io_uring_setup, libc::EPERM);
    let why = io_uring_caps().unwrap_err();
    assert!(why.contains("seccomp") && why.contains("kernel.io_uring_disabled"), "{why}");
    let runtime = Runtime::new("poll", "io-uring").unwrap();
    assert!(runtime.executor().label().contains("gpu-reactor"));
    assert!(runtime.warnings().any(|warning| warning.to_string().contains(&why)));
    assert!(Runtime::builder("poll", "io-uring").strict().build().is_err());
}

/// A program that enters its sandbox after it has started.
fn a_sandbox_entered_late() {
    let runtime = Runtime::builder("spin:backstop_us=1000", "io-uring").strict().build().unwrap();
    let ring = runtime.uring().unwrap().clone();
    let device = SoftwareDevice::new().unwrap();
    let stream = device.stream_on(runtime.doorbell()).unwrap();
    let handle = runtime.handle();
    let (reader, _writer) = pair();
    let ended = runtime.block_on(async move {
        let mut receive = ring.recv(&reader, Vec::with_capacity(8));
        assert!(poll_once(&mut receive).is_pending());
        ring.nop().await.unwrap();
        refuse(libc::SYS_io_uring_enter, libc::EPERM);
        let mut port = handle.port(&stream);
        for _ in 0..5 {
            stream.delay(DurNs::from_ms(2)).unwrap();
            handle.wait("step", &mut port).await.unwrap();
        }
        let received = receive.await.0.unwrap_err();
        let started = ring.nop().await.unwrap_err();
        (received, started)
    });
    let (received, started) = ended.unwrap();
    for error in [received, started] {
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("seccomp"), "{error}");
    }
    let handle = runtime.handle();
    let share = (0..4)
        .map(|_| {
            let (handle, before) = (handle.clone(), thread_cpu_time().unwrap().0);
            let at = handle.clock().monotonic_ns().after(DurNs::from_ms(50));
            runtime.block_on(async move { handle.sleep_until(at).await }).unwrap().unwrap();
            assert!(runtime.clock().monotonic_ns() >= at);
            (thread_cpu_time().unwrap().0 - before) as f64 / 50e6
        })
        .fold(f64::MAX, f64::min);
    assert!(share < 0.5, "{share} of a core");
}

#[test]
fn f45_f49_a_sandbox_that_refuses_the_ring_is_named_and_the_program_goes_on() {
    let _watchdog = Watchdog::new("sandbox");
    if let Err(why) = io_uring_caps() {
        println!("skipped: no io_uring here: {why}");
        return;
    }
    assert!(in_child(a_container));
    assert!(in_child(a_sandbox_entered_late));
}
