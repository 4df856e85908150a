//! The driver as a program finds it: opened by its path, its entry points called through `dlsym`.
#![allow(dead_code, reason = "each test binary uses its own part of it")]

use driver_core::{Control, library};
use std::ffi::c_void;
use std::io::Write;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

pub type Handle = u64;
pub const RELAXED: i32 = 2;
pub const THREAD_LOCAL: i32 = 1;
pub const GLOBAL: i32 = 0;

/// `cu!(driver, cuInit(0 => u32))`: an entry point's status code.
#[macro_export]
macro_rules! cu {
    ($cuda:expr, $name:ident($($argument:expr => $type:ty),* $(,)?)) => {
        driver_core::foreign_call!(
            $cuda.control.entry_points(), $name($($argument => $type),*) -> i32)
    };
}

/// The library, reset, with one test at a time.
pub struct Cuda {
    pub control: Control,
    _watchdog: Watchdog,
    _alone: MutexGuard<'static, ()>,
}

impl Cuda {
    /// Not initialised.
    pub fn fresh() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let control = Control::open(library("cuda_driver"));
        Cuda { control, _watchdog: Watchdog::new(), _alone: alone }
    }

    /// Initialised, with the primary context of device 0 current to this thread.
    pub fn ready() -> Self {
        let cuda = Cuda::fresh();
        assert_eq!(cu!(cuda, cuInit(0 => u32)), 0);
        let context = cuda.retain(0);
        cuda.bind(context);
        cuda
    }

    pub fn retain(&self, device: i32) -> Handle {
        let mut context: Handle = 0;
        let status = cu!(self, cuDevicePrimaryCtxRetain(
            &raw mut context => *mut Handle, device => i32));
        assert_eq!(status, 0);
        context
    }

    pub fn bind(&self, context: Handle) {
        assert_eq!(cu!(self, cuCtxSetCurrent(context => Handle)), 0);
    }

    pub fn current(&self) -> Handle {
        let mut context: Handle = 0;
        assert_eq!(cu!(self, cuCtxGetCurrent(&raw mut context => *mut Handle)), 0);
        context
    }

    /// A stream that does not synchronise with the legacy one.
    pub fn stream(&self) -> Handle {
        self.stream_with(1)
    }

    pub fn stream_with(&self, flags: u32) -> Handle {
        let mut stream: Handle = 0;
        let status = cu!(self, cuStreamCreate(&raw mut stream => *mut Handle, flags => u32));
        assert_eq!(status, 0);
        stream
    }

    pub fn event(&self) -> Handle {
        let mut event: Handle = 0;
        assert_eq!(cu!(self, cuEventCreate(&raw mut event => *mut Handle, 2 => u32)), 0);
        event
    }

    /// Portable, mapped host memory: the host's address.
    pub fn host(&self, bytes: usize) -> *mut c_void {
        let mut at = ptr::null_mut();
        let status = cu!(self, cuMemHostAlloc(
            &raw mut at => *mut *mut c_void, bytes => usize, 3 => u32));
        assert_eq!(status, 0);
        at
    }

    pub fn device_address(&self, host: *mut c_void) -> u64 {
        let mut at = 0;
        let status = cu!(self, cuMemHostGetDevicePointer_v2(
            &raw mut at => *mut u64, host => *mut c_void, 0 => u32));
        assert_eq!(status, 0);
        at
    }

    /// A page of words, zeroed: as the host sees it, and the device's address of the first.
    pub fn words(&self) -> (&'static [AtomicU64], u64) {
        let host = self.host(4096);
        // SAFETY: the page is aligned, 512 words long, never unmapped while the process lives unless
        // freed and reset, which no test does before its last use of the words.
        let words = unsafe { std::slice::from_raw_parts(host.cast::<AtomicU64>(), 512) };
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        (words, self.device_address(host))
    }

    pub fn write(&self, stream: Handle, at: u64, value: u64) -> i32 {
        cu!(self, cuStreamWriteValue64_v2(
            stream => Handle, at => u64, value => u64, 0 => u32))
    }

    pub fn record(&self, event: Handle, stream: Handle) -> i32 {
        cu!(self, cuEventRecord(event => Handle, stream => Handle))
    }

    pub fn query_event(&self, event: Handle) -> i32 {
        cu!(self, cuEventQuery(event => Handle))
    }

    pub fn query(&self, stream: Handle) -> i32 {
        cu!(self, cuStreamQuery(stream => Handle))
    }

    pub fn synchronize(&self, stream: Handle) -> i32 {
        cu!(self, cuStreamSynchronize(stream => Handle))
    }

    pub fn exchange_mode(&self, mut mode: i32) -> i32 {
        let status = cu!(self, cuThreadExchangeStreamCaptureMode(&raw mut mode => *mut i32));
        assert_eq!(status, 0);
        mode
    }

    pub fn begin_capture(&self, stream: Handle, mode: i32) -> i32 {
        cu!(self, cuStreamBeginCapture_v2(stream => Handle, mode => i32))
    }

    /// The status code and the graph.
    pub fn end_capture(&self, stream: Handle) -> (i32, Handle) {
        let mut graph = 1;
        let status = cu!(self, cuStreamEndCapture(stream => Handle, &raw mut graph => *mut Handle));
        (status, graph)
    }

    /// The status code and the capture status.
    pub fn capturing(&self, stream: Handle) -> (i32, i32) {
        let mut capturing = -1;
        let status =
            cu!(self, cuStreamIsCapturing(stream => Handle, &raw mut capturing => *mut i32));
        (status, capturing)
    }

    /// Ends the test: the violations are exactly these.
    #[track_caller]
    pub fn expect_violations(&self, expected: &[&str]) {
        let found = self.control.reset();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found} does not say {expected}");
        }
    }
}

/// Waits for what is sure to come.
pub fn wait_for(what: impl Fn() -> bool) {
    while !what() {
        thread::yield_now();
    }
}

/// Ends the test run where a test does not end.
pub struct Watchdog(Option<mpsc::Sender<()>>, Option<thread::JoinHandle<()>>);

impl Watchdog {
    pub fn new() -> Self {
        let test = thread::current().name().unwrap_or("a test").to_string();
        let (alive, dropped) = mpsc::channel::<()>();
        let watching = thread::spawn(move || {
            let waited = dropped.recv_timeout(Duration::from_secs(60));
            if waited == Err(mpsc::RecvTimeoutError::Timeout) {
                // Not by `eprintln`, which the test harness captures and loses with the process.
                let _ = writeln!(std::io::stderr(), "{test} hangs: not over after 60 s");
                std::process::exit(101);
            }
        });
        Watchdog(Some(alive), Some(watching))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.0.take());
        if let Some(watching) = self.1.take() {
            watching.join().expect("the watchdog sees its end");
        }
    }
}
