//! What tests of the watcher share.

use gpu_async_reactor::backend::software::SoftwareStream;
use gpu_async_reactor::host::{
    StdClock, WatchError, WatchOptions, WatchPolicy, WatchResult, Watcher,
};
use gpu_async_reactor::{
    Clock, CompletionLine, DurNs, Error, ErrorCode, MonoNs, OwnedDescriptor, Slot,
};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

pub const BACKSTOP: DurNs = DurNs::from_ms(2);
pub const OPTIONS: WatchOptions = WatchOptions::new(BACKSTOP);
/// Backstops that no test lives to see.
pub const NEVER: WatchOptions = WatchOptions::new(DurNs::from_ms(3_600_000));
pub const POLICIES: [WatchPolicy; 3] =
    [WatchPolicy::SPIN, WatchPolicy::BALANCED, WatchPolicy::SAVING];

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread: the smallest runtime there is.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Polls once, with a waker that does nothing.
pub fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A waker that runs code.
struct Run<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Run<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

pub fn running(code: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Run(code)))
}

/// Polls once, with that waker.
pub fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

pub fn watcher(policy: WatchPolicy) -> Watcher {
    Watcher::new(policy).unwrap()
}

pub fn now() -> MonoNs {
    StdClock::new().monotonic_ns()
}

/// A slot of a line in host memory, stored by the test.
pub fn word(target: u64) -> OwnedDescriptor {
    OwnedDescriptor { line: CompletionLine::shared(), slot: Slot::ALL[0], target }
}

pub fn store(word: &OwnedDescriptor, number: u64) {
    (*word.line).as_ref().store(word.slot, number);
}

/// A status that is done with the word.
pub fn agreeing(
    word: &OwnedDescriptor,
) -> impl FnMut() -> Result<bool, Error> + Send + 'static + use<> {
    let word = word.clone();
    move || Ok(word.is_complete())
}

pub fn status_error(result: WatchResult) -> Error {
    match result {
        Err(WatchError::Status(error)) => error,
        other => panic!("not an error of the status: {other:?}"),
    }
}

pub fn watcher_error(result: WatchResult) -> ErrorCode {
    match result {
        Err(WatchError::Watcher(error)) => error.code(),
        other => panic!("not an error of the watcher: {other:?}"),
    }
}

pub fn shared_stream(
    device: &gpu_async_reactor::backend::software::SoftwareDevice,
) -> Arc<SoftwareStream> {
    Arc::new(device.stream().unwrap())
}
