//! What tests over the software device share.
#![allow(dead_code, reason = "each test binary uses its own part of it")]

pub mod watching;

use gpu_async_reactor::backend::software::{SoftwareDevice, SoftwareStream};
use gpu_async_reactor::{DeviceStream, Error, ErrorCode, OwnedDescriptor, reached};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

pub fn device() -> SoftwareDevice {
    SoftwareDevice::new().unwrap()
}

/// Whether the word of `number` is there.
pub fn seen(stream: &SoftwareStream, number: u64) -> bool {
    reached((**stream.line()).as_ref(), stream.slot(), number)
}

/// The descriptor of `target`, which outlives the stream.
pub fn descriptor(stream: &SoftwareStream, target: u64) -> OwnedDescriptor {
    OwnedDescriptor { line: stream.line().clone(), slot: stream.slot(), target }
}

/// Waits for what is sure to come.
pub fn wait_for(what: impl Fn() -> bool) {
    while !what() {
        thread::yield_now();
    }
}

/// Whether `error` is the device's status `status`: a number and a name.
pub fn is_fault(error: &Error, status: &str) -> bool {
    error.code() == ErrorCode::Backend && error.args()[1] == status
}

/// Every method answers with the status, and does so again.
pub fn assert_faulted(stream: &SoftwareStream, status: &str) {
    for _ in 0..3 {
        assert!(is_fault(&stream.query().unwrap_err(), status));
        assert!(is_fault(&stream.query_mark(1).unwrap_err(), status));
        assert!(is_fault(&stream.synchronize().unwrap_err(), status));
        assert!(is_fault(&stream.synchronize_mark(1).unwrap_err(), status));
        assert!(is_fault(&stream.mark().unwrap_err(), status));
        assert!(is_fault(&stream.run(|| {}).unwrap_err(), status));
    }
}

/// One value from any thread to a task: what a program would use a channel for.
pub struct Mailbox(Mutex<(Option<u64>, Option<Waker>)>);

impl Mailbox {
    pub fn new() -> Arc<Self> {
        Arc::new(Mailbox(Mutex::new((None, None))))
    }

    /// Puts a value in and wakes the task, then gives the waker up.
    pub fn send(&self, value: u64) {
        let waker = {
            let mut mailbox = self.0.lock().unwrap();
            mailbox.0 = Some(value);
            mailbox.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes a value out.
    pub async fn receive(&self) -> u64 {
        poll_fn(|cx| {
            let mut mailbox = self.0.lock().unwrap();
            match mailbox.0.take() {
                Some(value) => Poll::Ready(value),
                None => {
                    mailbox.1 = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Whether a task waits here.
    pub fn is_awaited(&self) -> bool {
        self.0.lock().unwrap().1.is_some()
    }
}

/// Ends a test that allocates without end before it takes the machine: no more address space than
/// this, for the whole process.
#[cfg(target_os = "linux")]
pub fn limit_memory(bytes: u64) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
    setrlimit(Resource::As, limit).expect("a limit may be lowered");
}

#[cfg(not(target_os = "linux"))]
pub fn limit_memory(_: u64) {}

/// Ends the test run where a test does not end: what hangs without its remedy must fail.
pub struct Watchdog(Option<mpsc::Sender<()>>, Option<thread::JoinHandle<()>>);

impl Watchdog {
    pub fn new(test: &'static str) -> Self {
        let (alive, dropped) = mpsc::channel::<()>();
        let watching = thread::spawn(move || {
            let waited = dropped.recv_timeout(Duration::from_secs(60));
            if waited == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{test} hangs: not over after 60 s");
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
