//! Other libraries of the process: a reset of the device, another runtime, the thread's last error.
#![cfg(target_os = "linux")]

use backend_tests::{Bench, Call, OfCuda, OfHip, Vendor, for_each_vendor, thread_port, wait_by};
use driver_core::{Control, foreign_call};
use gpu_async_reactor::backend::hip::HipDriver;
use gpu_async_reactor::backend::mapped::StreamHandle;
use gpu_async_reactor::{DeviceStream, End};
use std::process::Command;

const SPIN: &str = "spin:backstop_us=1000";
const DESTROYED: i64 = 709;

/// A reference to the primary context of device 0, as another library takes it.
fn retain(bench: &Bench<OfCuda>) -> u64 {
    let mut context = 0u64;
    let retained = foreign_call!(bench.control.entry_points(), cuDevicePrimaryCtxRetain(
        &raw mut context => *mut u64, 0 => i32) -> i32);
    assert_eq!(retained, 0);
    context
}

#[test]
fn a_reset_ends_old_waits_with_its_error_and_a_new_device_works_without_a_close() {
    let bench = Bench::<OfCuda>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    bench.hold(&stream);
    let mut port = thread_port(&stream);
    let ticket = port.mark().unwrap();
    bench.control.reset_device(0);
    for text in ["poll", SPIN, "block"] {
        let error = wait_by(text, &mut port.at(ticket)).unwrap_err();
        assert_eq!(error.status_number(), Some(DESTROYED), "{text}: {error}");
    }
    works_again(&bench);
}

#[test]
fn a_reset_is_noticed_also_where_another_library_has_revived_the_handle_before() {
    let bench = Bench::<OfCuda>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    let done = stream.mark().unwrap();
    stream.synchronize_mark(done).unwrap();
    bench.hold(&stream);
    let number = stream.mark().unwrap();
    let before = retain(&bench);
    bench.control.reset_device(0);
    assert_eq!(retain(&bench), before, "the same handle");
    let stores = bench.calls(Call::Store);
    for refused in [
        stream.query_mark(number).unwrap_err(),
        stream.synchronize_mark(number).unwrap_err(),
        stream.query().unwrap_err(),
        stream.mark().unwrap_err(),
        device.stream().unwrap_err(),
        device.pinned(1).unwrap_err(),
    ] {
        assert_eq!(refused.status_number(), Some(DESTROYED), "{refused}");
    }
    assert_eq!(bench.calls(Call::Store), stores, "nothing is stored into memory that is gone");
    works_again(&bench);
    // What is left of the old one is given up, not freed in the new one's name.
    let frees = bench.calls(Call::Free);
    drop(stream);
    assert!(device.close().unwrap().unsettled.is_some());
    assert_eq!(bench.calls(Call::Free), frees);
    works_again(&bench);
}

/// A device that is opened now works, and nothing stale was used.
fn works_again(bench: &Bench<OfCuda>) {
    let device = bench.device();
    assert_eq!(device.caps().store, Ok(()));
    let stream = device.stream().unwrap();
    let mut port = thread_port(&stream);
    let ticket = port.mark().unwrap();
    let waited = wait_by(SPIN, &mut port.at(ticket)).unwrap();
    assert!([End::Immediate, End::Spun, End::Backstop].contains(&waited.end), "{waited:?}");
    bench.assert_clean();
}

for_each_vendor! {
    a_device_that_has_faulted_is_opened_anew;
}

fn a_device_that_has_faulted_is_opened_anew<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let stream = device.stream().unwrap();
    bench.fail(Call::QueryStream, V::FAULT.0);
    assert_eq!(stream.query().unwrap_err().status_number(), Some(i64::from(V::FAULT.0)));
    // The driver works again: the next device is not the one that remembers.
    let again = bench.device();
    let number = {
        let stream = again.stream().unwrap();
        let number = stream.mark().unwrap();
        stream.synchronize_mark(number).unwrap();
        number
    };
    assert!(number > 0 && stream.mark().is_err());
    bench.assert_clean();
}

#[test]
fn hip_the_programs_last_error_is_its_own() {
    for (version, expected) in [(60_300_000, 0), (70_000_000, 0)] {
        let bench = Bench::<OfHip>::new();
        bench.control.version(version);
        let device = bench.device();
        let blocking = OfHip::blocking_stream(&bench.control);
        // SAFETY: the legacy stream is there as long as the device.
        let legacy = unsafe { device.stream_from_raw(StreamHandle::Legacy, None) }.unwrap();
        OfHip::begin_capture(&bench.control, blocking);
        assert!(!legacy.query().unwrap(), "the runtime refuses, which is expected");
        assert!(OfHip::end_capture(&bench.control, blocking));
        let last = foreign_call!(bench.control.entry_points(), hipPeekAtLastError() -> i32);
        assert_eq!(last, expected, "{version}");
        // From 7 on a failure of the program's is still there behind any call.
        let failed = foreign_call!(bench.control.entry_points(), hipSetDevice(99 => i32) -> i32);
        assert_eq!(failed, 101);
        legacy.query().unwrap();
        let last = foreign_call!(bench.control.entry_points(), hipGetLastError() -> i32);
        assert_eq!(last, if version >= 70_000_000 { 101 } else { 0 }, "{version}");
        bench.assert_clean();
    }
}

#[test]
fn hip_a_runtime_that_is_in_the_process_is_the_one_that_is_used() {
    const FOLDER: &str = "BACKEND_TESTS_RUNTIMES";
    let test = "hip_a_runtime_that_is_in_the_process_is_the_one_that_is_used";
    let Some(folder) = std::env::var_os(FOLDER).map(std::path::PathBuf::from) else {
        let folder = tempfile::tempdir().unwrap();
        let source = driver_core::library("hip_driver");
        for soname in ["libamdhip64.so.6", "libamdhip64.so.7"] {
            driver_core::with_soname(&source, soname, folder.path().join(soname)).unwrap();
        }
        for opened in ["libamdhip64.so.6", "libamdhip64.so.7", ""] {
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", test, "--nocapture"])
                .env("LD_LIBRARY_PATH", folder.path())
                .env(FOLDER, folder.path())
                .env("BACKEND_TESTS_OPENED", opened)
                .output()
                .unwrap();
            let told = String::from_utf8_lossy(&child.stdout).into_owned()
                + &String::from_utf8_lossy(&child.stderr);
            assert!(child.status.success() && told.contains("1 passed"), "{opened}: {told}");
        }
        return;
    };
    let opened = std::env::var("BACKEND_TESTS_OPENED").unwrap();
    // As a program's framework has it.
    let control = (!opened.is_empty()).then(|| Control::open(folder.join(&opened)));
    let driver = HipDriver::load().unwrap();
    let newest = "libamdhip64.so.7";
    let expected = if opened.is_empty() { newest } else { &opened };
    assert_eq!(driver.library().unwrap(), expected);
    if let Some(control) = control {
        assert!(control.calls("hipInit") > 0, "one state for both");
    }
}
