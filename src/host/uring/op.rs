//! The future of one operation.

use super::ended::Ended;
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
    ///
    /// # Errors
    ///
    /// How the operation ends if the kernel cannot be asked for it.
    fn request(&mut self) -> Result<Request, Ended>;

    /// What the operation resolves to, which ended as `ended`.
    fn output(self, ended: Ended) -> Self::Output;
}

impl<T: Operation> Orphan for T {
    fn finish(self: Box<Self>, ended: Ended) {
        drop((*self).output(ended));
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
///
/// # A ring that is lost, a forked child
///
/// If the kernel refuses the ring after it was made, an operation ends with that error: at once if the
/// kernel never had it, and otherwise once the kernel has let go of it, some 10 to 100 ms later; it may
/// have taken effect then. An operation that is started afterwards is refused with the same error.
///
/// In a child that was forked, an operation of the parent ends with an error that names the fork when
/// it is polled, and what is started there at its first poll. The parent's goes on. Dropping one there
/// leaks what it holds.
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
                let request = match self.ring.refuses() {
                    Some(ended) => Err(ended),
                    None => operation.request(),
                };
                let request = match request {
                    Ok(request) => request,
                    Err(ended) => return Poll::Ready(operation.output(ended)),
                };
                let (key, reaped) = self.ring.start(request, cx.waker().clone());
                // Before any other code runs: what unwinds there must not free what is in flight.
                self.state = State::Started(key, operation);
                self.ring.finish(reaped);
                Poll::Pending
            }
            State::Started(key, operation) => {
                self.state = State::Started(key, operation);
                let ended = ready!(self.ring.poll_key(key, cx.waker()));
                match core::mem::replace(&mut self.state, State::Ended) {
                    State::Started(_, operation) => Poll::Ready(operation.output(ended)),
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
            if self.ring.is_forked() {
                // Its kernel half is the parent's.
                core::mem::forget(operation);
            } else {
                self.ring.abandon(key, Box::new(operation));
            }
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
