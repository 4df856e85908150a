//! What the tests of the backends share: each test opens a test driver of its own, under a path of its
//! own, so that it has a process's only copy of the driver's state to itself.
// The test drivers are libraries of Linux.
#![cfg(target_os = "linux")]

mod cuda;
mod hip;
mod watchdog;

pub use cuda::OfCuda;
pub use hip::OfHip;
pub use watchdog::Watchdog;

use driver_core::Control;
use gpu_async_reactor::backend::mapped::{Device, Driver, Interface, Stream, StreamHandle};
use gpu_async_reactor::host::{StdClock, StdIdle};
use gpu_async_reactor::{
    CompletionPort, DeviceStream, Error, ReactorPort, Result, ThreadPort, WaitPlan, Waited,
    reached, run_inline, wait,
};
use std::path::{Path, PathBuf};
use std::thread;

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
    fn load(path: &Path) -> Result<Driver<Self::Interface>> {
        // SAFETY: the test driver has the vendor's interface.
        unsafe { Driver::load_from(path) }
    }

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

    /// Destroys a stream that was made past the backend.
    ///
    /// # Panics
    ///
    /// Where the driver refuses.
    fn destroy_stream(control: &Control, stream: StreamHandle);

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
    /// Waits for a whole context, which the backend never does.
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
    /// Creates an event.
    CreateEvent,
    /// Allocates page-locked memory.
    Allocate,
    /// Records an event.
    Record,
    /// Waits for an event.
    SynchronizeEvent,
    /// The first call of those that make a context current.
    Enter,
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
