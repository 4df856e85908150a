//! What the tests of the backends share: each test opens a test driver of its own, under a path of its
//! own, so that it has a process's only copy of the driver's state to itself.

use driver_core::{Control, foreign_call};
use gpu_async_reactor::backend::cuda::{Cuda, CudaDriver};
use gpu_async_reactor::backend::hip::{Hip, HipDriver};
use gpu_async_reactor::backend::mapped::{Device, Driver, Interface, Stream, StreamHandle};
use gpu_async_reactor::host::{StdClock, StdIdle};
use gpu_async_reactor::{
    CompletionPort, DeviceStream, Error, ReactorPort, Result, ThreadPort, WaitPlan, Waited,
    reached, run_inline, wait,
};
use libloading::Library;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A vendor's interface, as the tests need it.
pub trait Vendor: Sized {
    /// The backend.
    type Interface: Interface;
    /// The file name of the test driver, without what the system adds.
    const LIBRARY: &'static str;
    /// A sticky status: its number and its name.
    const FAULT: (i32, &'static str);
    /// The entry points without which there is no backend.
    const REQUIRED: &'static [&'static str];

    /// Opens the test driver at `path`.
    ///
    /// # Errors
    ///
    /// Those of the backend.
    fn load(path: &Path) -> Result<Driver<Self::Interface>>;

    /// Device `ordinal`.
    ///
    /// # Errors
    ///
    /// Those of the backend.
    fn device(driver: &Driver<Self::Interface>, ordinal: u32) -> Result<Device<Self::Interface>>;

    /// The vendor's name of a call.
    fn entry(call: Call) -> &'static str;

    /// The beginning of every name of an entry point.
    const PREFIX: &'static str;

    /// Device memory of device 0, allocated past the backend: its address.
    ///
    /// # Panics
    ///
    /// Where there is none.
    fn device_memory(control: &Control, bytes: usize) -> u64;

    /// Begins to capture a stream in global mode, past the backend.
    ///
    /// # Panics
    ///
    /// Where the driver refuses.
    fn begin_capture(control: &Control, stream: StreamHandle);

    /// Ends it. Returns whether there is a graph: the capture was not broken.
    fn end_capture(control: &Control, stream: StreamHandle) -> bool;

    /// A stream that the legacy default stream waits for, made past the backend.
    ///
    /// # Panics
    ///
    /// Where the driver refuses.
    fn blocking_stream(control: &Control) -> StreamHandle;

    /// Makes something else current to this thread than what the tests use.
    ///
    /// # Panics
    ///
    /// Where the driver refuses.
    fn go_elsewhere(control: &Control);

    /// Queues a write of `value` into `bytes` bytes of device memory, past the backend.
    ///
    /// # Panics
    ///
    /// Where the driver refuses.
    fn fill(control: &Control, stream: StreamHandle, to: u64, value: u8, bytes: usize);
}

/// Calls that both vendors have.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// Waits for a whole context.
    Settle,
    /// Frees page-locked memory.
    Free,
    /// Asks about a stream.
    QueryStream,
    /// Asks about an event.
    QueryEvent,
    /// Queues the store of a mark.
    Store,
    /// Queues a host function.
    Launch,
    /// Creates a stream.
    CreateStream,
    /// Allocates page-locked memory.
    Allocate,
    /// Records an event.
    Record,
    /// Waits for an event.
    SynchronizeEvent,
    /// The first call of those that make a context current.
    Enter,
}

/// NVIDIA.
pub struct OfCuda;

impl Vendor for OfCuda {
    type Interface = Cuda;
    const LIBRARY: &'static str = "cuda_driver";
    const FAULT: (i32, &'static str) = (700, "CUDA_ERROR_ILLEGAL_ADDRESS");
    const REQUIRED: &'static [&'static str] = &[
        "cuInit",
        "cuDriverGetVersion",
        "cuGetErrorName",
        "cuDeviceGetCount",
        "cuDeviceGet",
        "cuDeviceGetName",
        "cuDeviceGetAttribute",
        "cuDevicePrimaryCtxRetain",
        "cuDevicePrimaryCtxRelease_v2",
        "cuCtxGetCurrent",
        "cuCtxPushCurrent_v2",
        "cuCtxPopCurrent_v2",
        "cuCtxGetDevice",
        "cuCtxSynchronize",
        "cuThreadExchangeStreamCaptureMode",
        "cuMemHostAlloc",
        "cuMemHostGetDevicePointer_v2",
        "cuMemFreeHost",
        "cuMemAlloc_v2",
        "cuMemFree_v2",
        "cuMemcpyDtoHAsync_v2",
        "cuMemcpyHtoDAsync_v2",
        "cuMemsetD8Async",
        "cuStreamCreate",
        "cuStreamDestroy_v2",
        "cuStreamGetCtx",
        "cuStreamIsCapturing",
        "cuStreamQuery",
        "cuStreamSynchronize",
        "cuEventCreate",
        "cuEventDestroy_v2",
        "cuEventRecord",
        "cuEventQuery",
        "cuEventSynchronize",
        "cuLaunchHostFunc",
    ];

    fn load(path: &Path) -> Result<CudaDriver> {
        // SAFETY: the test driver has the vendor's interface.
        unsafe { CudaDriver::load_from(path) }
    }

    fn device(driver: &CudaDriver, ordinal: u32) -> Result<Device<Cuda>> {
        driver.device(ordinal)
    }

    fn entry(call: Call) -> &'static str {
        match call {
            Call::Settle => "cuCtxSynchronize",
            Call::Free => "cuMemFreeHost",
            Call::QueryStream => "cuStreamQuery",
            Call::QueryEvent => "cuEventQuery",
            Call::Store => "cuStreamBatchMemOp_v2",
            Call::Launch => "cuLaunchHostFunc",
            Call::CreateStream => "cuStreamCreate",
            Call::Allocate => "cuMemHostAlloc",
            Call::Record => "cuEventRecord",
            Call::SynchronizeEvent => "cuEventSynchronize",
            Call::Enter => "cuCtxGetCurrent",
        }
    }

    const PREFIX: &'static str = "cu";

    fn device_memory(control: &Control, bytes: usize) -> u64 {
        // It goes with its context, so that somebody must hold that.
        let (mut context, mut address) = (0u64, 0u64);
        let retained = foreign_call!(control.entry_points(), cuDevicePrimaryCtxRetain(
            &raw mut context => *mut u64, 0 => i32) -> i32);
        assert_eq!(retained, 0);
        in_primary(
            control,
            |library| foreign_call!(library, cuMemAlloc_v2(&raw mut address => *mut u64, bytes => usize) -> i32),
        );
        address
    }

    fn begin_capture(control: &Control, stream: StreamHandle) {
        in_primary(
            control,
            |library| foreign_call!(library, cuStreamBeginCapture_v2(number_of(stream) => u64, 0 => i32) -> i32),
        );
    }

    fn end_capture(control: &Control, stream: StreamHandle) -> bool {
        let mut graph = 0u64;
        in_primary(control, |library| {
            foreign_call!(library, cuStreamEndCapture(
                number_of(stream) => u64, &raw mut graph => *mut u64) -> i32)
        });
        graph != 0
    }

    fn blocking_stream(control: &Control) -> StreamHandle {
        let mut stream = 0u64;
        in_primary(
            control,
            |library| foreign_call!(library, cuStreamCreate(&raw mut stream => *mut u64, 0 => u32) -> i32),
        );
        handle_of(stream)
    }

    fn go_elsewhere(control: &Control) {
        // No context is current to a new thread.
        let set = foreign_call!(control.entry_points(), cuCtxSetCurrent(0 => u64) -> i32);
        assert_eq!(set, 0);
    }

    fn fill(control: &Control, stream: StreamHandle, to: u64, value: u8, bytes: usize) {
        in_primary(control, |library| {
            foreign_call!(library, cuMemsetD8Async(
                to => u64, value => u8, bytes => usize, number_of(stream) => u64) -> i32)
        });
    }
}

/// Makes a call of CUDA's driver in the primary context of device 0.
fn in_primary(control: &Control, call: impl FnOnce(&Library) -> i32) {
    let library = control.entry_points();
    let mut context = 0u64;
    let retained = foreign_call!(library, cuDevicePrimaryCtxRetain(
        &raw mut context => *mut u64, 0 => i32) -> i32);
    let pushed = foreign_call!(library, cuCtxPushCurrent_v2(context => u64) -> i32);
    let called = call(library);
    let popped = foreign_call!(library, cuCtxPopCurrent_v2(&raw mut context => *mut u64) -> i32);
    let released = foreign_call!(library, cuDevicePrimaryCtxRelease_v2(0 => i32) -> i32);
    assert_eq!([retained, pushed, called, popped, released], [0; 5]);
}

/// AMD.
pub struct OfHip;

impl Vendor for OfHip {
    type Interface = Hip;
    const LIBRARY: &'static str = "hip_driver";
    const FAULT: (i32, &'static str) = (700, "hipErrorIllegalAddress");
    const REQUIRED: &'static [&'static str] = &[
        "hipInit",
        "hipRuntimeGetVersion",
        "hipGetErrorName",
        "hipGetDeviceCount",
        "hipGetDevice",
        "hipSetDevice",
        "hipDeviceGetAttribute",
        "hipDeviceSynchronize",
        "hipThreadExchangeStreamCaptureMode",
        "hipHostMalloc",
        "hipHostGetDevicePointer",
        "hipHostFree",
        "hipMalloc",
        "hipFree",
        "hipMemcpyDtoHAsync",
        "hipMemcpyHtoDAsync",
        "hipMemsetAsync",
        "hipStreamCreateWithFlags",
        "hipStreamDestroy",
        "hipStreamIsCapturing",
        "hipStreamQuery",
        "hipStreamSynchronize",
        "hipEventCreateWithFlags",
        "hipEventDestroy",
        "hipEventRecord",
        "hipEventQuery",
        "hipEventSynchronize",
    ];

    fn load(path: &Path) -> Result<HipDriver> {
        // SAFETY: the test driver has the vendor's interface.
        unsafe { HipDriver::load_from(path) }
    }

    fn device(driver: &HipDriver, ordinal: u32) -> Result<Device<Hip>> {
        driver.device(ordinal)
    }

    fn entry(call: Call) -> &'static str {
        match call {
            Call::Settle => "hipDeviceSynchronize",
            Call::Free => "hipHostFree",
            Call::QueryStream => "hipStreamQuery",
            Call::QueryEvent => "hipEventQuery",
            Call::Store => "hipStreamWriteValue64",
            Call::Launch => "hipLaunchHostFunc",
            Call::CreateStream => "hipStreamCreateWithFlags",
            Call::Allocate => "hipHostMalloc",
            Call::Record => "hipEventRecord",
            Call::SynchronizeEvent => "hipEventSynchronize",
            Call::Enter => "hipGetDevice",
        }
    }

    const PREFIX: &'static str = "hip";

    fn device_memory(control: &Control, bytes: usize) -> u64 {
        let mut address = 0u64;
        let allocated = foreign_call!(control.entry_points(), hipMalloc(
            &raw mut address => *mut u64, bytes => usize) -> i32);
        assert_eq!(allocated, 0);
        address
    }

    fn begin_capture(control: &Control, stream: StreamHandle) {
        let begun = foreign_call!(control.entry_points(), hipStreamBeginCapture(
            number_of(stream) => u64, 0 => i32) -> i32);
        assert_eq!(begun, 0);
    }

    fn end_capture(control: &Control, stream: StreamHandle) -> bool {
        let mut graph = 0u64;
        let ended = foreign_call!(control.entry_points(), hipStreamEndCapture(
            number_of(stream) => u64, &raw mut graph => *mut u64) -> i32);
        ended == 0 && graph != 0
    }

    fn blocking_stream(control: &Control) -> StreamHandle {
        let mut stream = 0u64;
        let made = foreign_call!(control.entry_points(), hipStreamCreateWithFlags(
            &raw mut stream => *mut u64, 0 => u32) -> i32);
        assert_eq!(made, 0);
        handle_of(stream)
    }

    fn go_elsewhere(control: &Control) {
        control.devices(2);
        let set = foreign_call!(control.entry_points(), hipSetDevice(1 => i32) -> i32);
        assert_eq!(set, 0);
    }

    fn fill(control: &Control, stream: StreamHandle, to: u64, value: u8, bytes: usize) {
        let filled = foreign_call!(control.entry_points(), hipMemsetAsync(
            to => u64, i32::from(value) => i32, bytes => usize, number_of(stream) => u64) -> i32);
        assert_eq!(filled, 0);
    }
}

/// A test driver of one's own, and the backend that has opened it.
pub struct Bench<V: Vendor> {
    /// The controls of the fake device.
    pub control: Control,
    /// The backend's driver.
    pub driver: Driver<V::Interface>,
    _folder: tempfile::TempDir,
    _watchdog: Watchdog,
}

/// A device, ready to be used.
pub type OpenDevice<V> = Device<<V as Vendor>::Interface>;

/// A copy of the test driver in a folder of its own.
///
/// # Panics
///
/// Where it cannot be copied.
#[must_use]
pub fn copy_of<V: Vendor>() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("driver.so");
    std::fs::copy(driver_core::library(V::LIBRARY), &path).expect("a copy of the test driver");
    (folder, path)
}

impl<V: Vendor> Bench<V> {
    /// A fresh test driver, opened by the backend.
    ///
    /// # Panics
    ///
    /// Where the backend refuses it.
    #[must_use]
    pub fn new() -> Self {
        let (folder, path) = copy_of::<V>();
        Bench::over(folder, &path)
    }

    /// The test driver at `path`, which lies in `folder`.
    ///
    /// # Panics
    ///
    /// Where the backend refuses it.
    #[must_use]
    pub fn over(folder: tempfile::TempDir, path: &Path) -> Self {
        let control = Control::open(path);
        let driver = V::load(path).expect("the backend takes the test driver");
        Bench { control, driver, _folder: folder, _watchdog: Watchdog::new() }
    }

    /// Device 0.
    ///
    /// # Panics
    ///
    /// Where the backend refuses it.
    #[must_use]
    pub fn device(&self) -> OpenDevice<V> {
        V::device(&self.driver, 0).expect("device 0 is whole")
    }

    /// How often the driver was called by this name.
    #[must_use]
    pub fn calls(&self, call: Call) -> u64 {
        self.control.calls(V::entry(call))
    }

    /// Has the next call of this name fail.
    pub fn fail(&self, call: Call, code: i32) {
        self.control.fail(V::entry(call), 1, code);
    }

    /// Has calls of this name stand still before they have an effect, or go on.
    pub fn hang(&self, call: Call, on: bool) {
        self.control.hang(V::entry(call), on);
    }

    /// Runs `during` while a call of this name, which `calling` makes on another thread, stands still.
    pub fn while_hung<T: Send, U>(
        &self,
        call: Call,
        calling: impl FnOnce() -> T + Send,
        during: impl FnOnce() -> U,
    ) -> (T, U) {
        self.hang(call, true);
        thread::scope(|scope| {
            let called = scope.spawn(calling);
            wait_for(|| self.control.hung() > 0);
            let during = during();
            self.hang(call, false);
            (called.join().expect("the call returns"), during)
        })
    }

    /// Queues work that ends when released.
    ///
    /// # Panics
    ///
    /// Where the fake device refuses it.
    pub fn hold(&self, stream: &Stream<V::Interface>) {
        assert_eq!(self.control.hold(number_of(stream.handle())), 0);
    }

    /// Breaks the device: its sticky fault.
    pub fn fault(&self) {
        self.control.fault(V::FAULT.0);
    }

    /// That nothing was done to the driver that a program must not do.
    ///
    /// # Panics
    ///
    /// Where something was.
    pub fn assert_clean(&self) {
        assert_eq!(self.control.violations(), [""; 0]);
    }
}

impl<V: Vendor> Default for Bench<V> {
    fn default() -> Self {
        Bench::new()
    }
}

/// The handle that the controls call `number`.
#[must_use]
pub fn handle_of(number: u64) -> StreamHandle {
    StreamHandle::from_raw(std::ptr::with_exposed_provenance_mut(number as usize))
}

/// A handle as the controls take it.
#[must_use]
pub fn number_of(handle: StreamHandle) -> u64 {
    handle.as_raw().expose_provenance() as u64
}

/// Whether the word of `number` is there.
pub fn seen<A: Interface>(stream: &Stream<A>, number: u64) -> bool {
    reached((**stream.line()).as_ref(), stream.slot(), number)
}

/// That `error` is the sticky fault of the vendor's device.
///
/// # Panics
///
/// Where it is not.
#[track_caller]
pub fn assert_fault<V: Vendor>(error: &Error) {
    assert_eq!(error.status_number(), Some(i64::from(V::FAULT.0)), "{error}");
    assert!(error.to_string().ends_with(&format!("{} {}", V::FAULT.0, V::FAULT.1)), "{error}");
}

/// A plan's text as a plan.
///
/// # Panics
///
/// Where it is none.
#[must_use]
pub fn plan(text: &str) -> WaitPlan {
    WaitPlan::parse(text).expect("a plan")
}

/// A port that keeps the thread.
#[must_use]
pub fn thread_port<S: DeviceStream>(stream: S) -> ThreadPort<S, StdIdle> {
    ThreadPort::new(stream, StdIdle::probe(StdClock::new()).0)
}

/// Waits by `text` on `port`, without a sleep.
///
/// # Errors
///
/// Those of the wait.
///
/// # Panics
///
/// Where the wait does not end at its first poll.
pub fn wait_by<P: CompletionPort>(text: &str, port: &mut P) -> Result<Waited, P::Error> {
    run_inline(wait(&plan(text), None, port, &StdClock::new()))
        .expect("a wait on a thread is inline")
}

/// Waits for what is sure to come.
pub fn wait_for(what: impl Fn() -> bool) {
    while !what() {
        thread::yield_now();
    }
}

/// A port on a reactor, for tests that name the type.
pub type OnReactor<'r, 'l, S> = ReactorPort<'r, 'l, S, StdClock>;

/// Ends the test run where a test does not end.
pub struct Watchdog(Option<mpsc::Sender<()>>, Option<JoinHandle<()>>);

impl Watchdog {
    /// Watches the test of this thread, for 60 s.
    ///
    /// # Panics
    ///
    /// Where there is no thread to be had.
    #[must_use]
    pub fn new() -> Self {
        Watchdog::for_s(60)
    }

    /// The same, for so many seconds.
    ///
    /// # Panics
    ///
    /// Where there is no thread to be had.
    #[must_use]
    pub fn for_s(seconds: u64) -> Self {
        let test = thread::current().name().unwrap_or("a test").to_string();
        let (alive, dropped) = mpsc::channel::<()>();
        let watching = thread::spawn(move || {
            let waited = dropped.recv_timeout(Duration::from_secs(seconds));
            if waited == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{test} hangs: not over after {seconds} s");
                std::process::exit(101);
            }
        });
        Watchdog(Some(alive), Some(watching))
    }
}

impl Default for Watchdog {
    fn default() -> Self {
        Watchdog::new()
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

/// One test for each vendor: `for_each_vendor! { name; ... }` of functions `fn name<V: Vendor>()`.
#[macro_export]
macro_rules! for_each_vendor {
    ($($name:ident;)*) => {
        mod cuda {
            $(#[test] fn $name() { super::$name::<$crate::OfCuda>(); })*
        }
        mod hip {
            $(#[test] fn $name() { super::$name::<$crate::OfHip>(); })*
        }
    };
}
