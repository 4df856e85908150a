//! What is AMD's own, and in what the versions of its runtime differ.
#![cfg(target_os = "linux")]

use driver_core::{Control, Live, MARKER, foreign_call, library};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

type Handle = u64;

const NOT_READY: i32 = 600;
const CONTEXT_DESTROYED: i32 = 709;
const UNSUPPORTED: i32 = 900;
const CAPTURED_EVENT: i32 = 907;
const RELAXED: i32 = 2;
const ROCM_5_7: i32 = 50_700_000;
const ROCM_6_2: i32 = 60_200_000;
const ROCM_7_0: i32 = 70_000_000;
const ROCM_7_2: i32 = 70_200_000;
const BROKEN: &str = "a capture was invalidated";

macro_rules! hip {
    ($hip:expr, $name:ident($($argument:expr => $type:ty),* $(,)?)) => {
        foreign_call!($hip.control.entry_points(), $name($($argument => $type),*) -> i32)
    };
}

/// The library, reset, as this version, with one test at a time.
struct Hip {
    control: Control,
    _alone: MutexGuard<'static, ()>,
}

impl Hip {
    fn of(version: i32) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let control = Control::open(library("hip_driver"));
        control.version(version);
        Hip { control, _alone: alone }
    }

    fn stream(&self, flags: u32) -> Handle {
        let mut stream = 0;
        let to = &raw mut stream;
        assert_eq!(hip!(self, hipStreamCreateWithFlags(to => *mut Handle, flags => u32)), 0);
        stream
    }

    fn event(&self, flags: u32) -> Handle {
        let mut event = 0;
        let to = &raw mut event;
        assert_eq!(hip!(self, hipEventCreateWithFlags(to => *mut Handle, flags => u32)), 0);
        event
    }

    /// A stream, and an event that was recorded on it.
    fn recorded(&self) -> (Handle, Handle) {
        let (stream, event) = (self.stream(1), self.event(2));
        assert_eq!(hip!(self, hipEventRecord(event => Handle, stream => Handle)), 0);
        assert_eq!(hip!(self, hipStreamSynchronize(stream => Handle)), 0);
        (stream, event)
    }

    fn relaxed<T>(&self, call: impl FnOnce() -> T) -> T {
        let exchange = |mut mode: i32| {
            let to = &raw mut mode;
            assert_eq!(hip!(self, hipThreadExchangeStreamCaptureMode(to => *mut i32)), 0);
            mode
        };
        let before = exchange(RELAXED);
        let answer = call();
        exchange(before);
        answer
    }

    /// What `call` answers while `stream` is captured, and whether the capture stays whole.
    fn beside_capture(&self, stream: Handle, call: impl FnOnce() -> i32) -> (i32, bool) {
        assert_eq!(hip!(self, hipStreamBeginCapture(stream => Handle, 0 => i32)), 0);
        let status = self.relaxed(call);
        let mut graph: Handle = 0;
        let to = &raw mut graph;
        let ended = hip!(self, hipStreamEndCapture(stream => Handle, to => *mut Handle));
        (status, ended == 0)
    }

    fn query(&self, event: Handle) -> i32 {
        hip!(self, hipEventQuery(event => Handle))
    }

    fn wait(&self, event: Handle) -> i32 {
        hip!(self, hipEventSynchronize(event => Handle))
    }

    #[track_caller]
    fn expect_violations(&self, expected: &[&str]) {
        let found = self.control.reset();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found} does not say {expected}");
        }
    }
}

#[test]
fn a_status_call_of_an_event_breaks_a_capture_of_its_stream() {
    for (version, query, wait) in [
        (ROCM_5_7, (0, true), (UNSUPPORTED, false)),
        (ROCM_6_2, (CAPTURED_EVENT, false), (UNSUPPORTED, false)),
        (ROCM_7_0, (CAPTURED_EVENT, false), (UNSUPPORTED, false)),
        (ROCM_7_2, (0, true), (0, true)),
    ] {
        let hip = Hip::of(version);
        let (stream, event) = hip.recorded();
        assert_eq!(hip.beside_capture(stream, || hip.query(event)), query, "{version}");
        assert_eq!(hip.beside_capture(stream, || hip.wait(event)), wait, "{version}");
        let broken = [query, wait].iter().filter(|(_, whole)| !whole).count();
        hip.expect_violations(&vec![BROKEN; broken]);
    }
}

#[test]
fn an_event_whose_stream_was_destroyed_reads_freed_memory() {
    let hip = Hip::of(ROCM_6_2);
    let (stream, event) = hip.recorded();
    assert_eq!(hip!(hip, hipStreamDestroy(stream => Handle)), 0);
    assert_eq!((hip.query(event), hip.wait(event)), (0, 0));
    let other = hip.stream(1);
    let wait = hip!(hip, hipStreamWaitEvent(other => Handle, event => Handle, 0 => u32));
    assert_eq!(wait, 0, "this one checks before it reads");
    assert_eq!(hip!(hip, hipEventDestroy(event => Handle)), 0);
    hip.expect_violations(&["freed memory was read"; 2]);
}

#[test]
fn a_wait_for_the_device_breaks_every_capture_from_6_2_on() {
    for (version, expected) in
        [(ROCM_5_7, (0, true)), (ROCM_6_2, (UNSUPPORTED, false)), (ROCM_7_0, (UNSUPPORTED, false))]
    {
        let hip = Hip::of(version);
        hip.control.devices(2);
        assert_eq!(hip!(hip, hipSetDevice(1 => i32)), 0);
        let stream = hip.stream(1);
        assert_eq!(hip!(hip, hipSetDevice(0 => i32)), 0);
        let broken = hip.beside_capture(stream, || hip!(hip, hipDeviceSynchronize()));
        assert_eq!(broken, expected, "{version}, a stream of another device");
    }
}

#[test]
fn a_stream_that_is_not_there_is_709_until_6_and_followed_in_7() {
    for (version, violations) in [(ROCM_5_7, 0), (ROCM_6_2, 0), (ROCM_7_0, 1)] {
        let hip = Hip::of(version);
        let nothing: Handle = 0x5_1234_5678;
        assert_eq!(hip!(hip, hipStreamQuery(nothing => Handle)), CONTEXT_DESTROYED);
        hip.expect_violations(&vec!["was followed"; violations]);
    }
}

#[test]
fn the_last_error_is_each_status_until_6_and_a_failure_in_7() {
    for (version, after_a_success) in [(ROCM_6_2, 0), (ROCM_7_0, 1)] {
        let hip = Hip::of(version);
        let peek = || hip!(hip, hipPeekAtLastError());
        let event = hip.event(2);
        assert_eq!(peek(), 0);
        assert_eq!(
            hip!(hip, hipThreadExchangeStreamCaptureMode(std::ptr::null_mut() => *mut i32)),
            1
        );
        assert_eq!((peek(), peek()), (1, 1));
        assert_eq!(hip.query(event), 0);
        assert_eq!(peek(), after_a_success, "{version}");
        assert_eq!(hip!(hip, hipGetLastError()), after_a_success, "{version}");
        assert_eq!(peek(), 0);
    }
}

#[test]
fn a_query_of_the_null_stream_queues_a_marker_behind_the_others_work() {
    let hip = Hip::of(ROCM_6_2);
    let blocking = hip.stream(0);
    let query = || hip!(hip, hipStreamQuery(0 => Handle));
    assert_eq!((query(), hip.control.calls(MARKER)), (0, 0), "nobody is at work");
    assert_eq!(hip.control.hold(blocking), 0);
    for markers in 1..=3 {
        assert_eq!((query(), hip.control.calls(MARKER)), (NOT_READY, markers));
    }
    hip.control.release();
    assert_eq!(hip!(hip, hipStreamSynchronize(0 => Handle)), 0);
    assert_eq!((query(), hip.control.calls(MARKER)), (0, 3));
    hip.expect_violations(&[]);
}

#[test]
fn a_reset_ends_the_devices_streams_and_memory_and_leaves_it_usable() {
    let hip = Hip::of(ROCM_6_2);
    let (stream, event) = hip.recorded();
    assert_eq!(hip!(hip, hipDeviceReset()), 0);
    assert_eq!((hip.control.live(Live::Streams), hip.control.live(Live::Events)), (0, 0));
    assert_ne!(hip.query(event), 0);
    assert_ne!(hip!(hip, hipStreamQuery(stream => Handle)), 0);
    let (again, _) = hip.recorded();
    assert_eq!(hip!(hip, hipStreamQuery(again => Handle)), 0);
    hip.expect_violations(&["an event was used", "a stream was used"]);
}

/// Runs this test again as a child that does `what`: whether it was aborted, and what it wrote.
fn aborted_child(test: &str, what: &str) -> (bool, String) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("HIP_DRIVER_TEST_CHILD", what)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&child.stderr).into_owned();
    (child.status.signal() == Some(libc::SIGABRT), told)
}

fn child() -> Option<String> {
    std::env::var("HIP_DRIVER_TEST_CHILD").ok()
}

#[test]
fn f1_a_fault_aborts_the_process_where_the_runtime_is_one_that_does() {
    let test = "f1_a_fault_aborts_the_process_where_the_runtime_is_one_that_does";
    if child().is_none() {
        let (aborted, told) = aborted_child(test, "fault");
        assert!(aborted && told.contains("Memory access fault"), "{told}");
        return;
    }
    let hip = Hip::of(ROCM_6_2);
    hip.control.fault_aborts(true);
    let _ = hip.stream(1);
    hip.control.fault(700);
    println!("the process goes on");
}
