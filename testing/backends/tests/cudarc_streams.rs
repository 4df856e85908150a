//! Streams of the crate `cudarc`, whose own loader finds the test driver.
//!
//! That loader looks where the system's does, so each test runs again as a child whose library path has the
//! test driver under the vendor's names.
#![cfg(target_os = "linux")]

use backend_tests::{Watchdog, number_of, plan, thread_port, wait_by, wait_for};
use cudarc::driver::DevicePtr;
use driver_core::Control;
use gpu_async_reactor::backend::cuda::CudaDriver;
use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{Clock, DeviceStream, DurNs, ErrorCode, WaitError, run_inline, wait_until};
use std::os::unix::fs::symlink;
use std::process::Command;

const FOLDER: &str = "BACKEND_TESTS_LIBRARY_FOLDER";

/// Whether this is the child; the parent runs it.
fn is_child(test: &str) -> bool {
    if std::env::var_os(FOLDER).is_some() {
        return true;
    }
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libcuda.so.1");
    std::fs::copy(driver_core::library("cuda_driver"), &library).unwrap();
    symlink(&library, folder.path().join("libcuda.so")).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("LD_LIBRARY_PATH", folder.path())
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&child.stdout).into_owned()
        + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{told}");
    assert!(told.contains("1 passed"), "{told}");
    false
}

fn control() -> Control {
    let folder = std::path::PathBuf::from(std::env::var_os(FOLDER).unwrap());
    Control::open(folder.join("libcuda.so.1"))
}

#[test]
fn a_stream_of_cudarc_is_awaited_and_kept_by_its_owner() {
    if !is_child("a_stream_of_cudarc_is_awaited_and_kept_by_its_owner") {
        return;
    }
    let _watchdog = Watchdog::new();
    let control = control();
    let context = cudarc::driver::CudaContext::new(0).unwrap();
    let theirs = context.new_stream().unwrap();
    let device = CudaDriver::load().unwrap().device(0).unwrap();
    let stream = device.stream_of_cudarc(theirs.clone(), None).unwrap();
    let source: Vec<u32> = (0..1000).collect();
    for text in ["poll", "spin:backstop_us=1000", "block"] {
        let memory = theirs.clone_htod(&source).unwrap();
        let mut port = thread_port(&stream);
        let ticket = port.mark().unwrap();
        wait_by(text, &mut port.at(ticket)).unwrap();
        assert_eq!(theirs.clone_dtoh(&memory).unwrap(), source);
    }
    // The stream is theirs and ours: it goes with the last of both.
    let number = stream.mark().unwrap();
    drop(theirs);
    stream.synchronize_mark(number).unwrap();
    let number = stream.mark().unwrap();
    stream.synchronize_mark(number).unwrap();
    drop(stream);
    assert!(device.close().unwrap().released);
    assert_eq!(control.violations(), [""; 0]);
}

#[test]
fn a_buffer_of_a_dropped_stream_of_cudarc_comes_back_after_a_time_out() {
    if !is_child("a_buffer_of_a_dropped_stream_of_cudarc_comes_back_after_a_time_out") {
        return;
    }
    let _watchdog = Watchdog::new();
    let control = control();
    let context = cudarc::driver::CudaContext::new(0).unwrap();
    let theirs = context.new_stream().unwrap();
    let memory = theirs.clone_htod(&vec![7_u8; 4096]).unwrap();
    theirs.synchronize().unwrap();
    let device = CudaDriver::load().unwrap().device(0).unwrap();
    let stream = device.stream_of_cudarc(theirs.clone(), None).unwrap();
    assert_eq!(control.hold(number_of(stream.handle())), 0);
    let from = memory.device_ptr(&theirs).0;
    let buffer = device.pinned(4096).unwrap();
    // SAFETY: the memory is that long, outlives the copy, and nothing writes it.
    let copy = unsafe { stream.read_back::<u8, _>(from, 4096, buffer) }.unwrap();
    let (clock, plan) = (StdClock::new(), plan("spin:backstop_us=1000"));
    let mut port = thread_port(&stream);
    let mut port = port.at(copy.ticket());
    let deadline = clock.monotonic_ns().after(DurNs::from_ms(5));
    let waited = run_inline(wait_until(&plan, None, &mut port, &clock, deadline)).unwrap();
    assert!(matches!(waited, Err(WaitError::TimedOut(_))), "{waited:?}");
    drop(copy);
    drop(stream);
    assert_eq!(device.stats().leases.waiting, 1);
    control.release();
    wait_for(|| device.stats().leases.waiting == 0);
    assert_eq!(device.stats().leases.leaked, 0);
    assert!(device.close().unwrap().released);
    assert_eq!(control.violations(), [""; 0]);
}

#[test]
fn f9_a_default_stream_of_another_device_is_refused_though_its_handle_is_the_same() {
    if !is_child("f9_a_default_stream_of_another_device_is_refused_though_its_handle_is_the_same") {
        return;
    }
    let _watchdog = Watchdog::new();
    let control = control();
    control.devices(2);
    let [first, second] = [0, 1].map(|ordinal| cudarc::driver::CudaContext::new(ordinal).unwrap());
    let device = CudaDriver::load().unwrap().device(0).unwrap();
    for theirs in
        [second.default_stream(), second.per_thread_stream(), second.new_stream().unwrap()]
    {
        let refused = device.stream_of_cudarc(theirs, None).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::ForeignContext, "{refused}");
    }
    for theirs in [first.default_stream(), first.per_thread_stream(), first.new_stream().unwrap()] {
        let stream = device.stream_of_cudarc(theirs, None).unwrap();
        let number = stream.mark().unwrap();
        stream.synchronize_mark(number).unwrap();
    }
    assert!(device.close().unwrap().released);
    assert_eq!(control.violations(), [""; 0]);
}

#[test]
fn dropping_the_last_handle_leaves_the_thread_the_context_that_it_had() {
    if !is_child("dropping_the_last_handle_leaves_the_thread_the_context_that_it_had") {
        return;
    }
    let _watchdog = Watchdog::new();
    let control = control();
    control.devices(2);
    let [first, second] = [0, 1].map(|ordinal| cudarc::driver::CudaContext::new(ordinal).unwrap());
    let device = CudaDriver::load().unwrap().device(0).unwrap();
    let current = || cudarc::driver::result::ctx::get_current().unwrap();
    for other in [None, Some(second)] {
        let theirs = first.new_stream().unwrap();
        let kept = std::sync::Arc::downgrade(&theirs);
        let stream = device.stream_of_cudarc(theirs, None).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if let Some(other) = &other {
                    other.bind_to_thread().unwrap();
                }
                let before = current();
                assert_eq!(before, other.as_ref().map(|other| other.cu_ctx()));
                drop(stream);
                assert!(kept.upgrade().is_none(), "the last handle");
                assert_eq!(current(), before);
            });
        });
    }
    assert!(device.close().unwrap().released);
    assert_eq!(control.violations(), [""; 0]);
}

#[test]
fn the_driver_is_found_by_its_own_name() {
    if !is_child("the_driver_is_found_by_its_own_name") {
        return;
    }
    let control = control();
    control.version(13_000);
    let driver = CudaDriver::load().unwrap();
    assert_eq!((driver.library().unwrap(), driver.version().unwrap()), ("libcuda.so.1", (13, 0)));
    assert_eq!(driver.devices().unwrap(), 1);
    assert!(!driver.device_name(0).unwrap().is_empty());
}
