//! What a loader and a C caller see of the library, and what is AMD's own.
#![cfg(target_os = "linux")]

use driver_core::{Control, DurNs, Live, foreign_call, library, soname, symbols};
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_void};
use std::io::Write;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

type Handle = u64;

const NOT_READY: i32 = 600;
const COHERENT: u32 = 0x4000_0000;
const NON_COHERENT: u32 = 0x8000_0000;

/// `hip!(driver, hipInit(0 => u32))`: an entry point's status code.
macro_rules! hip {
    ($hip:expr, $name:ident($($argument:expr => $type:ty),* $(,)?)) => {
        foreign_call!($hip.control.entry_points(), $name($($argument => $type),*) -> i32)
    };
}

/// The library, reset, with one test at a time, each of which ends by itself.
struct Hip {
    control: Control,
    _alone: MutexGuard<'static, ()>,
    _alive: mpsc::Sender<()>,
}

impl Hip {
    fn fresh() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let test = thread::current().name().unwrap_or("a test").to_string();
        let (alive, dropped) = mpsc::channel::<()>();
        thread::spawn(move || {
            let waited = dropped.recv_timeout(Duration::from_secs(60));
            if waited == Err(mpsc::RecvTimeoutError::Timeout) {
                // Not by `eprintln`, which the test harness captures and loses with the process.
                let _ = writeln!(std::io::stderr(), "{test} hangs: not over after 60 s");
                std::process::exit(101);
            }
        });
        Hip { control: Control::open(library("hip_driver")), _alone: alone, _alive: alive }
    }

    fn stream(&self) -> Handle {
        let mut stream = 0;
        let to = &raw mut stream;
        assert_eq!(hip!(self, hipStreamCreateWithFlags(to => *mut Handle, 1 => u32)), 0);
        stream
    }

    fn event(&self) -> Handle {
        let mut event = 0;
        let to = &raw mut event;
        assert_eq!(hip!(self, hipEventCreateWithFlags(to => *mut Handle, 2 => u32)), 0);
        event
    }

    /// A page of words, zeroed: as the host sees it, and the device's address of the first.
    fn words(&self, flags: u32) -> (&'static [AtomicU64], usize) {
        let mut host: *mut c_void = ptr::null_mut();
        let to = &raw mut host;
        let status = hip!(self, hipHostMalloc(
            to => *mut *mut c_void, 4096 => usize, flags => u32));
        assert_eq!(status, 0);
        // SAFETY: the page is aligned, 512 words long, and freed and reset by no test before its last
        // use of the words.
        let words = unsafe { std::slice::from_raw_parts(host.cast::<AtomicU64>(), 512) };
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let mut at = 0;
        let to = &raw mut at;
        assert_eq!(
            hip!(self, hipHostGetDevicePointer(
                to => *mut usize, host => *mut c_void, 0 => u32)),
            0
        );
        (words, at)
    }

    fn write(&self, stream: Handle, at: usize, value: u64) -> i32 {
        hip!(self, hipStreamWriteValue64(
            stream => Handle, at => usize, value => u64, 0 => u32))
    }

    fn query(&self, stream: Handle) -> i32 {
        hip!(self, hipStreamQuery(stream => Handle))
    }

    fn synchronize(&self, stream: Handle) -> i32 {
        hip!(self, hipStreamSynchronize(stream => Handle))
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
fn the_soname_is_the_vendors() {
    assert_eq!(soname(library("hip_driver")).unwrap().as_deref(), Some("libamdhip64.so.6"));
}

#[test]
fn every_entry_point_is_one_of_the_vendors() {
    let own = symbols(library("hip_driver")).unwrap();
    let entries: Vec<_> = own.iter().filter(|name| name.starts_with("hip")).collect();
    assert_eq!(entries.len(), 39);
    let fakes = own.iter().filter(|name| name.starts_with("fake_")).count();
    assert_eq!(fakes, 24, "the control interface");
    match std::env::var("GPU_REAL_LIBAMDHIP") {
        Err(_) => {
            println!("skipped: GPU_REAL_LIBAMDHIP does not say where the vendor's library is");
        }
        Ok(path) => {
            let real: BTreeSet<_> = symbols(&path).expect(&path).into_iter().collect();
            for entry in &entries {
                assert!(real.contains(*entry), "the vendor has no {entry}");
            }
            println!("{} entry points compared with the vendor's library", entries.len());
        }
    }
}

#[test]
fn the_first_call_initialises_and_a_machine_without_a_device_says_so() {
    let hip = Hip::fresh();
    let mut number = -1;
    let to = &raw mut number;
    assert_eq!(hip!(hip, hipGetDeviceCount(to => *mut i32)), 0);
    assert_eq!(number, 1);
    assert_eq!(hip!(hip, hipRuntimeGetVersion(to => *mut i32)), 0);
    assert_eq!(number, 60_300_000);
    hip.control.devices(0);
    assert_eq!(hip!(hip, hipGetDeviceCount(to => *mut i32)), 100);
    assert_eq!(hip!(hip, hipInit(0 => u32)), 101);
    assert_eq!(hip!(hip, hipDeviceSynchronize()), 101);
}

#[test]
fn status_codes_have_the_vendors_names() {
    let hip = Hip::fresh();
    let name = |code: i32| {
        let name = foreign_call!(
            hip.control.entry_points(), hipGetErrorName(code => i32) -> *const c_char);
        // SAFETY: a text of the library's that it never frees.
        unsafe { CStr::from_ptr(name) }.to_str().unwrap()
    };
    assert_eq!(name(0), "hipSuccess");
    assert_eq!(name(2), "hipErrorOutOfMemory");
    assert_eq!(name(600), "hipErrorNotReady");
    assert_eq!(name(719), "hipErrorLaunchFailure");
    assert_eq!(name(12345), "hipErrorUnknown");
}

#[test]
fn a_store_lands_behind_the_work_before_it() {
    let hip = Hip::fresh();
    let stream = hip.stream();
    let (words, at) = hip.words(COHERENT);
    assert_eq!(hip.control.hold(stream), 0);
    assert_eq!(hip.write(stream, at, 7), 0);
    assert_eq!(
        hip!(hip, hipStreamWriteValue32(
            stream => Handle, at + 12 => usize, 8 => u32, 0 => u32)),
        0
    );
    assert_eq!(hip.query(stream), NOT_READY);
    hip.control.release();
    while words[1].load(Ordering::Acquire) == 0 {
        thread::yield_now();
    }
    assert_eq!(words[0].load(Ordering::Relaxed), 7);
    assert_eq!(words[1].load(Ordering::Relaxed), 8 << 32);
    hip.expect_violations(&[]);
}

#[test]
fn an_event_that_was_never_recorded_is_over() {
    let hip = Hip::fresh();
    let (stream, event) = (hip.stream(), hip.event());
    let query = || hip!(hip, hipEventQuery(event => Handle));
    assert_eq!(query(), 0);
    assert_eq!(hip.control.hold(stream), 0);
    assert_eq!(hip!(hip, hipEventRecord(event => Handle, stream => Handle)), 0);
    assert_eq!(query(), NOT_READY);
    hip.control.release();
    assert_eq!(hip!(hip, hipEventSynchronize(event => Handle)), 0);
    assert_eq!(query(), 0);
    assert_eq!(hip!(hip, hipEventDestroy(event => Handle)), 0);
    hip.expect_violations(&[]);
}

#[test]
fn the_host_sees_stores_in_memory_that_is_not_coherent_once_it_has_synchronised() {
    let hip = Hip::fresh();
    let stream = hip.stream();
    let event = hip.event();
    let (coherent, coherent_at) = hip.words(COHERENT);
    let (plain, plain_at) = hip.words(NON_COHERENT);
    assert_eq!(hip.write(stream, plain_at, 1), 0);
    assert_eq!(hip.write(stream, coherent_at, 1), 0);
    assert_eq!(hip!(hip, hipEventRecord(event => Handle, stream => Handle)), 0);
    while hip!(hip, hipEventQuery(event => Handle)) == NOT_READY {
        thread::yield_now();
    }
    assert_eq!(coherent[0].load(Ordering::Acquire), 1);
    assert_eq!(plain[0].load(Ordering::Acquire), 0, "the status says done, the word is silent");
    assert_eq!(hip.synchronize(stream), 0);
    assert_eq!(plain[0].load(Ordering::Acquire), 1);
}

#[test]
fn the_environment_decides_about_memory_that_does_not_say() {
    let hip = Hip::fresh();
    if std::env::var("HIP_HOST_COHERENT").is_err() {
        // Both values, in processes of their own.
        for value in ["0", "1"] {
            let test = std::env::current_exe().unwrap();
            let child = Command::new(test)
                .args(["--exact", "the_environment_decides_about_memory_that_does_not_say"])
                .env("HIP_HOST_COHERENT", value)
                .status()
                .unwrap();
            assert!(child.success(), "HIP_HOST_COHERENT={value}");
        }
        return;
    }
    let by_default = u64::from(std::env::var("HIP_HOST_COHERENT").as_deref() == Ok("1"));
    let stream = hip.stream();
    let after_the_status = [(0, by_default), (COHERENT, 1), (NON_COHERENT, 0)];
    for (flags, expected) in after_the_status {
        let (words, at) = hip.words(flags);
        assert_eq!(hip.write(stream, at, 1), 0);
        while hip.query(stream) == NOT_READY {
            thread::yield_now();
        }
        assert_eq!(words[0].load(Ordering::Acquire), expected, "{flags:#x}");
    }
}

#[test]
fn streams_belong_to_the_device_that_was_current_and_work_from_any() {
    let hip = Hip::fresh();
    hip.control.devices(2);
    let first = hip.stream();
    let mut device = -1;
    let to = &raw mut device;
    assert_eq!(hip!(hip, hipSetDevice(1 => i32)), 0);
    let second = hip.stream();
    let event = hip.event();
    for (stream, expected) in [(first, 0), (second, 1), (0, 1), (2, 1)] {
        assert_eq!(hip!(hip, hipStreamGetDevice(stream => Handle, to => *mut i32)), 0);
        assert_eq!(device, expected);
    }
    assert_eq!(hip.query(first), 0);
    assert_eq!(hip!(hip, hipEventRecord(event => Handle, first => Handle)), 400);
    hip.control.fault(719);
    assert_eq!(hip.query(first), 719);
    assert_eq!(hip.query(second), 0, "the other device is well");
    assert_eq!(hip!(hip, hipSetDevice(2 => i32)), 101);
    assert_eq!(hip!(hip, hipSetDevice(0 => i32)), 0);
    assert_eq!(hip!(hip, hipDeviceSynchronize()), 719);
}

#[test]
fn a_query_breaks_a_global_capture_unless_its_thread_is_relaxed() {
    let hip = Hip::fresh();
    let (captured, other) = (hip.stream(), hip.stream());
    let exchange = |mut mode: i32| {
        let to = &raw mut mode;
        assert_eq!(hip!(hip, hipThreadExchangeStreamCaptureMode(to => *mut i32)), 0);
        mode
    };
    let mut status = -1;
    let to = &raw mut status;
    let begin = || hip!(hip, hipStreamBeginCapture(captured => Handle, 0 => i32));
    assert_eq!(begin(), 0);
    assert_eq!(exchange(2), 0);
    assert_eq!(hip.query(other), 0);
    assert_eq!(exchange(0), 2);
    assert_eq!(hip!(hip, hipStreamIsCapturing(captured => Handle, to => *mut i32)), 0);
    assert_eq!(status, 1);
    let mut graph = 0;
    let graph_to = &raw mut graph;
    assert_eq!(hip!(hip, hipStreamEndCapture(captured => Handle, graph_to => *mut Handle)), 0);
    assert_eq!(hip!(hip, hipGraphDestroy(graph => Handle)), 0);
    assert_eq!(begin(), 0);
    assert_eq!(hip.query(other), 900);
    assert_eq!(hip!(hip, hipStreamIsCapturing(captured => Handle, to => *mut i32)), 0);
    assert_eq!(status, 2);
    assert_eq!(hip!(hip, hipStreamEndCapture(captured => Handle, graph_to => *mut Handle)), 901);
    assert_eq!(graph, 0);
    hip.expect_violations(&["a capture was invalidated"]);
}

#[test]
fn freeing_synchronises_the_device() {
    let hip = Hip::fresh();
    let stream = hip.stream();
    let (words, _) = hip.words(COHERENT);
    let begin = std::time::Instant::now();
    assert_eq!(hip.control.work(stream, DurNs::from_us(3000)), 0);
    let host = words.as_ptr().cast_mut();
    assert_eq!(hip!(hip, hipHostFree(host => *mut AtomicU64)), 0);
    assert!(begin.elapsed() >= Duration::from_millis(3));
    assert_eq!(hip.control.live(Live::HostAllocations), 0);
    assert_eq!(hip!(hip, hipHostFree(ptr::null_mut() => *mut AtomicU64)), 0);
    assert_eq!(hip!(hip, hipFree(12345 => usize)), 17, "no device pointer");
    hip.expect_violations(&[]);
}

#[test]
fn copies_and_fills_run_in_order() {
    let hip = Hip::fresh();
    let stream = hip.stream();
    let mut device = 0_usize;
    let to = &raw mut device;
    assert_eq!(hip!(hip, hipMalloc(to => *mut usize, 64 => usize)), 0);
    let source = [9_u8; 64];
    let from = source.as_ptr();
    let up = hip!(hip, hipMemcpyHtoDAsync(
        device => usize, from => *const u8, 64 => usize, stream => Handle));
    assert_eq!(up, 0);
    let fill = hip!(hip, hipMemsetAsync(
        device => usize, 0x105 => i32, 4 => usize, stream => Handle));
    assert_eq!(fill, 0);
    let mut back = [0_u8; 64];
    let into = back.as_mut_ptr();
    let down = hip!(hip, hipMemcpyDtoHAsync(
        into => *mut u8, device => usize, 64 => usize, stream => Handle));
    assert_eq!(down, 0);
    assert_eq!(&back[..6], &[5, 5, 5, 5, 9, 9]);
    assert_eq!(hip!(hip, hipFree(device => usize)), 0);
    assert_eq!(hip.control.live(Live::DeviceAllocations), 0);
    hip.expect_violations(&[]);
}

#[test]
fn a_host_function_is_called_behind_the_work_and_not_after_a_fault() {
    extern "C" fn count(word: *mut c_void) {
        // SAFETY: the static below.
        unsafe { AtomicU64::from_ptr(word.cast()) }.fetch_add(1, Ordering::Release);
    }
    static RUNS: AtomicU64 = AtomicU64::new(0);
    type Function = extern "C" fn(*mut c_void);
    let hip = Hip::fresh();
    let stream = hip.stream();
    let launch = || {
        let word: *mut c_void = RUNS.as_ptr().cast();
        let count: Function = count;
        hip!(hip, hipLaunchHostFunc(
            stream => Handle, count => Function, word => *mut c_void))
    };
    assert_eq!(launch(), 0);
    assert_eq!(hip.synchronize(stream), 0);
    assert_eq!(RUNS.load(Ordering::Acquire), 1);
    assert_eq!(hip.control.hold(stream), 0);
    assert_eq!(launch(), 0);
    hip.control.fault(719);
    assert_eq!(launch(), 719);
    hip.control.reset();
    assert_eq!(RUNS.load(Ordering::Acquire), 1);
}
