//! A process that ends while watchers ask a driver: no call reaches the driver once its library's
//! destructors have run. Each run is a process of its own.
#![cfg(target_os = "linux")]

use backend_tests::{OfCuda, OfHip, Vendor, copy_of, number_of, wait_for};
use driver_core::{Control, ended};
use gpu_async_reactor::host::{WatchOptions, WatchPolicy, Watcher};
use gpu_async_reactor::{DeviceStream, DurNs, ErrorCode};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

const LIBRARY: &str = "BACKEND_TESTS_EXIT_LIBRARY";
const WAY: &str = "BACKEND_TESTS_EXIT_WAY";
const RUNS: usize = 50;

/// Leaves a watcher at work: 100 watches of work that does not end, each asked about all the time.
fn leave_a_watcher_at_work<V: Vendor>(library: &Path) {
    let control = Control::open(library);
    let device = V::device(&V::load(library).unwrap(), 0).unwrap();
    let watcher = Watcher::new(WatchPolicy::SPIN).unwrap();
    let options = WatchOptions::new(DurNs::from_us(50));
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..10 {
        let stream = Arc::new(device.stream().unwrap());
        assert_eq!(control.hold(number_of(stream.handle())), 0);
        for _ in 0..10 {
            let number = stream.mark().unwrap();
            let mut watch = Box::pin(watcher.watch_stream(stream.clone(), number, options));
            assert!(Pin::new(&mut watch).poll(&mut cx).is_pending());
            std::mem::forget(watch);
        }
    }
    let asked = || control.calls(V::entry(backend_tests::Call::QueryEvent));
    let before = asked();
    wait_for(|| asked() > before + 200);
    std::mem::forget((watcher, device, control));
}

fn ends_clean<V: Vendor>(test: &str) {
    if let Some(library) = std::env::var_os(LIBRARY) {
        leave_a_watcher_at_work::<V>(&PathBuf::from(library));
        if std::env::var(WAY).unwrap() == "exit" {
            std::process::exit(0);
        }
        return;
    }
    let (_folder, library) = copy_of::<V>();
    for way in ["return", "exit"] {
        for run in 0..RUNS {
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", test])
                .env(LIBRARY, &library)
                .env(WAY, way)
                .env(ended::LINGER, "2")
                .output()
                .unwrap();
            let told = String::from_utf8_lossy(&child.stderr);
            assert!(child.status.success(), "{way}, run {run}: {}: {told}", child.status);
        }
    }
}

#[test]
fn no_call_reaches_cuda_after_its_end() {
    ends_clean::<OfCuda>("no_call_reaches_cuda_after_its_end");
}

#[test]
fn no_call_reaches_hip_after_its_end() {
    ends_clean::<OfHip>("no_call_reaches_hip_after_its_end");
}

/// What runs last, of the handlers that are registered before the driver is opened.
extern "C" fn asks_once_more() {
    let stream = LATE.get().expect("set before the exit");
    let refused = stream.query_mark(1).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Exiting, "{refused}");
    let refused = stream.mark().unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Exiting, "{refused}");
    eprintln!("refused");
}

static LATE: std::sync::OnceLock<Box<dyn DeviceStream + Send + Sync>> = std::sync::OnceLock::new();

#[test]
fn a_call_while_the_process_exits_is_refused_and_a_call_that_hangs_is_not_awaited_for_ever() {
    const TEST: &str =
        "a_call_while_the_process_exits_is_refused_and_a_call_that_hangs_is_not_awaited_for_ever";
    if let Some(library) = std::env::var_os(LIBRARY) {
        let library = PathBuf::from(library);
        // SAFETY: the handler is a function of this program.
        assert_eq!(unsafe { libc::atexit(asks_once_more) }, 0);
        let control = Control::open(&library);
        let device = OfCuda::device(&OfCuda::load(&library).unwrap(), 0).unwrap();
        let stuck = device.stream().unwrap();
        let late = device.stream().unwrap();
        stuck.mark().unwrap();
        late.mark().unwrap();
        assert!(LATE.set(Box::new(late)).is_ok());
        control.hang_queries(true);
        std::thread::spawn(move || stuck.query());
        wait_for(|| control.hung() == 1);
        std::process::exit(0);
    }
    let (_folder, library) = copy_of::<OfCuda>();
    let best = (0..5)
        .map(|_| {
            let begun = std::time::Instant::now();
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", TEST, "--nocapture"])
                .env(LIBRARY, &library)
                .output()
                .unwrap();
            let told = String::from_utf8_lossy(&child.stderr);
            assert!(child.status.success() && told.contains("refused"), "{}: {told}", child.status);
            begun.elapsed()
        })
        .min()
        .unwrap();
    assert!(best >= Duration::from_millis(20), "the exit waited for the call: {best:?}");
    assert!(best < Duration::from_secs(5), "and not for ever: {best:?}");
}
