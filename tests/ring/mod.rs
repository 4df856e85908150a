//! What the tests of a ring's operations share.
#![allow(dead_code, reason = "each test binary uses its own part of it")]

use gpu_async_reactor::host::uring::{
    BeforeEnter, IoBuf, IoBufMut, Kernel, RingMode, RingNeed, SetupCall, SetupCalls,
};
use gpu_async_reactor::host::{ParkPolicy, StdClock, UringIdle};
use gpu_async_reactor::{Clock, DurNs, Executor, Idle, MonoNs, Reactor};
use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

pub type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

pub const BOUND: DurNs = DurNs::from_ms(5_000);

pub fn now() -> MonoNs {
    StdClock::new().monotonic_ns()
}

pub fn ring_with(entries: u32, calls: &dyn SetupCalls) -> Option<UringIdle> {
    match UringIdle::with_calls(StdClock::new(), ParkPolicy::default(), entries, calls) {
        Ok(idle) => Some(idle),
        Err(why) => {
            println!("skipped: no io_uring here: {why}");
            None
        }
    }
}

pub fn ring(entries: u32) -> Option<UringIdle> {
    ring_with(entries, &Kernel)
}

/// Runs the tasks that `spawn` makes, and `main`, on the ring.
pub fn run<T>(idle: &mut UringIdle, main: impl Future<Output = T>) -> T {
    let reactor = Reactor::new(StdClock::new());
    let mut executor: Executor<Task> = Executor::new();
    executor.run_until(&reactor, idle, BOUND, main).unwrap().0
}

pub fn pair() -> (Arc<OwnedFd>, Arc<OwnedFd>) {
    let (one, other) = UnixStream::pair().unwrap();
    (Arc::new(one.into()), Arc::new(other.into()))
}

pub fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A buffer that says when it is dropped. Its memory is then kept, full of a pattern, to see whether
/// the kernel still writes to it.
pub struct Watched {
    pub bytes: Vec<u8>,
    grave: Arc<Grave>,
}

#[derive(Default)]
pub struct Grave(Mutex<Vec<Vec<u8>>>);

pub const DEAD: u8 = 0xDE;

impl Grave {
    /// How many buffers were dropped. Nobody has written to them since.
    pub fn drops(&self) -> usize {
        let buried = self.0.lock().unwrap();
        for bytes in &*buried {
            assert!(bytes.iter().all(|&byte| byte == DEAD), "written to after it was dropped");
        }
        buried.len()
    }
}

impl Watched {
    pub fn new(capacity: usize) -> (Self, Arc<Grave>) {
        let grave = Arc::new(Grave::default());
        (Watched::of(&grave, Vec::with_capacity(capacity)), grave)
    }

    pub fn of(grave: &Arc<Grave>, bytes: Vec<u8>) -> Self {
        Watched { bytes, grave: grave.clone() }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        bytes.resize(bytes.capacity(), DEAD);
        self.grave.0.lock().unwrap().push(bytes);
    }
}

// SAFETY: the vector inside owns its memory, and nobody else reaches it.
unsafe impl IoBufMut for Watched {
    fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        self.bytes.spare()
    }

    unsafe fn advance(&mut self, count: usize) {
        // SAFETY: the caller's promise is the same about the vector.
        unsafe { self.bytes.advance(count) };
    }
}

// SAFETY: as above.
unsafe impl IoBuf for Watched {
    fn bytes(&self) -> &[u8] {
        self.bytes.bytes()
    }
}

/// Idles until `what` holds.
pub fn idle_until(idle: &mut UringIdle, what: impl Fn() -> bool) {
    while !what() {
        idle.sleep_until(now().after(DurNs::from_us(200)));
    }
}

/// The kernel as it is until it refuses each `io_uring_enter` with an error, and as an older one is.
#[derive(Clone)]
pub struct Refusing {
    /// The error, once it is set.
    pub errno: Rc<Cell<Option<i32>>>,
    pub mode: RingMode,
    /// Futex waits and absolute waits.
    pub newest: bool,
}

impl Refusing {
    pub fn later(mode: RingMode, newest: bool) -> Self {
        Refusing { errno: Rc::default(), mode, newest }
    }

    /// In every mode, on this kernel and on older ones.
    pub fn on_every_kernel() -> impl Iterator<Item = Self> {
        let modes = [RingMode::Deferred, RingMode::Cooperative, RingMode::Plain];
        modes.into_iter().flat_map(|mode| [true, false].map(|newest| Refusing::later(mode, newest)))
    }
}

impl SetupCalls for Refusing {
    fn before(&self, call: SetupCall) -> io::Result<()> {
        match call {
            SetupCall::Setup(mode) if mode != self.mode => Err(io::Error::from_raw_os_error(22)),
            _ => Ok(()),
        }
    }

    fn has(&self, need: RingNeed, found: bool) -> bool {
        found && (self.newest || !matches!(need, RingNeed::FutexWaits | RingNeed::InstantWaits))
    }

    fn later_enters(&self) -> Option<BeforeEnter> {
        let errno = self.errno.clone();
        Some(Box::new(move |_| {
            errno.get().map_or(Ok(()), |n| Err(io::Error::from_raw_os_error(n)))
        }))
    }
}

/// Longer than a child takes on a busy machine.
const CHILD_SECONDS: u32 = 15;

/// Runs `code` in a forked child, and returns whether it came to its end in time.
pub fn in_child(code: impl FnOnce()) -> bool {
    // SAFETY: the child has one thread, and calls what this test is about: code that must work where
    // the locks of other threads are held for ever. It ends by `_exit`, at the latest by its alarm.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        // SAFETY: without a handler the alarm ends the process.
        unsafe { libc::alarm(CHILD_SECONDS) };
        let went = catch_unwind(AssertUnwindSafe(code));
        // SAFETY: it ends this process at once.
        unsafe { libc::_exit(if went.is_ok() { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` outlives the call, and the child is this process's own.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7
}
