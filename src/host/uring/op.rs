//! The future of one operation.

use super::request::Request;
use super::ring::Ring;
use super::slots::{Key, Orphan};
use alloc::{boxed::Box, rc::Rc};
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

/// What an operation holds while the kernel works on it.
///
/// # Safety
///
/// From `request` until the value is dropped or given to `output`, what the request refers to stays
/// valid for what the kernel does with it, wherever the value is moved, and also where it is
/// forgotten.
pub unsafe trait Operation: Sized + 'static {
    /// What the operation resolves to.
    type Output;

    /// The entry for the kernel.
    fn request(&mut self) -> Request;

    /// The operation ended with `result`, as the kernel says it: less than 0 is an error's number.
    fn output(self, result: i32) -> Self::Output;
}

impl<T: Operation> Orphan for T {
    fn finish(self: Box<Self>, result: i32) {
        drop((*self).output(result));
    }
}

/// An operation of a ring, made by a method of [`UringHandle`](super::UringHandle).
///
/// The first poll queues it. It is submitted, together with others, when the thread idles, when a
/// busy executor looks at its I/O (every 20 us), or once half of the submission queue is filled.
///
/// # Dropping it
///
/// waits for nothing and frees nothing early. An operation that was not submitted yet never will be.
/// One that the kernel has is cancelled; what it holds lives on in the ring and is freed once the
/// kernel says that it has ended. It may still have taken effect: bytes that it received are lost, a
/// connection that it accepted is closed. Forgetting it (`mem::forget`) leaks what it holds.
#[must_use = "a future does nothing until it is awaited"]
pub struct Op<T: Operation> {
    ring: Rc<Ring>,
    state: State<T>,
}

enum State<T> {
    New(T),
    Started(Key, T),
    Ended,
}

// Nothing is pinned: an operation's data may be moved, see `Operation`.
impl<T: Operation> Unpin for Op<T> {}

impl<T: Operation> Op<T> {
    pub(super) fn new(ring: &Rc<Ring>, operation: T) -> Self {
        Op { ring: ring.clone(), state: State::New(operation) }
    }
}

impl<T: Operation> Future for Op<T> {
    type Output = T::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T::Output> {
        match core::mem::replace(&mut self.state, State::Ended) {
            State::New(mut operation) => {
                let request = operation.request();
                let (key, reaped) = self.ring.start(request, cx.waker().clone());
                // Before any other code runs: what unwinds there must not free what is in flight.
                self.state = State::Started(key, operation);
                self.ring.finish(reaped);
                Poll::Pending
            }
            State::Started(key, operation) => {
                self.state = State::Started(key, operation);
                let result = ready!(self.ring.poll_key(key, cx.waker()));
                match core::mem::replace(&mut self.state, State::Ended) {
                    State::Started(_, operation) => Poll::Ready(operation.output(result)),
                    State::New(_) | State::Ended => unreachable!("it was started"),
                }
            }
            State::Ended => panic!("an operation was polled after it had ended"),
        }
    }
}

impl<T: Operation> Drop for Op<T> {
    fn drop(&mut self) {
        if let State::Started(key, operation) = core::mem::replace(&mut self.state, State::Ended) {
            self.ring.abandon(key, Box::new(operation));
        }
    }
}

impl<T: Operation> fmt::Debug for Op<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::New(_) => "new",
            State::Started(..) => "started",
            State::Ended => "ended",
        };
        f.debug_struct("Op").field("state", &state).finish_non_exhaustive()
    }
}
