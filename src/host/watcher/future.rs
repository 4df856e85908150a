//! The future of a watch. It holds what keeps the line alive until it is polled first, when the
//! thread on duty takes that over.

use super::entry::{Entry, Status, Terms};
use super::scan::{Letter, Shared};
use super::{WatchError, WatchOptions, WatchResult};
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::line::{CompletionLine, OwnedDescriptor};
use crate::core::time::MonoNs;
use crate::fork::{self, Birth, Own};
use crate::monotonic;
use alloc::sync::Arc;
use core::fmt;
use core::mem;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context, Poll, Waker};

/// Resolves once the watched work is done, its status failed, or its deadline passed. Made by
/// [`Watcher::watch`](super::Watcher::watch).
///
/// It registers at its first poll; the wait, and its first backstop, begin there. Dropping it
/// unregisters it without waking the watcher's thread, which then drops the status and the line at
/// its next look. Forgetting it leaves it registered until it ends.
#[must_use = "a future does nothing until it is awaited"]
pub struct Watch<F> {
    shared: Own<Arc<Shared>>,
    state: State<F>,
}

enum State<F> {
    New(OwnedDescriptor, WatchOptions, F),
    Waiting(Arc<Entry<Status>>),
    Done,
}

// Nothing in it is ever pinned.
impl<F> Unpin for Watch<F> {}

impl<F: FnMut() -> Result<bool> + Send + 'static> Watch<F> {
    pub(super) fn new(
        shared: Own<Arc<Shared>>,
        descriptor: OwnedDescriptor,
        options: WatchOptions,
        status: F,
    ) -> Self {
        Watch { shared, state: State::New(descriptor, options, status) }
    }

    fn register(
        &self,
        descriptor: OwnedDescriptor,
        options: WatchOptions,
        status: F,
        waker: &Waker,
    ) -> core::result::Result<Arc<Entry<Status>>, WatchError> {
        let entry: Arc<Entry<Status>> = Arc::new(Entry::new(waker.clone(), status));
        // A thread that looks takes the watch up at once, and reads the clock then: that read costs
        // as much as the rest of this.
        let began = if self.shared.inbox.is_looking() { MonoNs(0) } else { monotonic::now() };
        let deadline = options.deadline.unwrap_or(MonoNs::MAX);
        let device = options.device.unwrap_or_else(|| {
            let line: &CompletionLine = (*descriptor.line).as_ref();
            NonNull::from(line).addr()
        });
        let terms = Terms { began, backstop: options.backstop, deadline, device: device.get() };
        let letter = Letter::Enter(entry.clone(), descriptor, terms);
        let event = || match began {
            MonoNs(0) => terms.next_event(monotonic::now()),
            began => terms.next_event(began),
        };
        match self.shared.send(letter, event) {
            Ok(()) => Ok(entry),
            Err(_closed) => Err(WatchError::Watcher(closed())),
        }
    }
}

impl<F: FnMut() -> Result<bool> + Send + 'static> Future for Watch<F> {
    type Output = WatchResult;

    /// # Panics
    ///
    /// Polled again after it resolved.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<WatchResult> {
        let this = &mut *self;
        if this.birth().is_forked() {
            return Poll::Ready(Err(this.forked()));
        }
        if let State::Waiting(entry) = &this.state {
            let Some(result) = entry.poll(cx.waker()) else { return Poll::Pending };
            this.state = State::Done;
            return Poll::Ready(result);
        }
        match mem::replace(&mut this.state, State::Done) {
            State::New(descriptor, options, status) => {
                match this.register(descriptor, options, status, cx.waker()) {
                    Ok(entry) => {
                        this.state = State::Waiting(entry);
                        Poll::Pending
                    }
                    Err(error) => Poll::Ready(Err(error)),
                }
            }
            State::Waiting(_) | State::Done => panic!("a watch was polled after it had resolved"),
        }
    }
}

impl<F> Watch<F> {
    fn birth(&self) -> Birth {
        self.shared.birth()
    }

    /// The end in a forked child: what the watch has of the parent is forgotten.
    #[cold]
    fn forked(&mut self) -> WatchError {
        mem::forget(mem::replace(&mut self.state, State::Done));
        WatchError::Watcher(fork::forked("watch"))
    }
}

impl<F> Drop for Watch<F> {
    fn drop(&mut self) {
        if self.birth().is_forked() {
            mem::forget(mem::replace(&mut self.state, State::Done));
            return;
        }
        if let State::Waiting(entry) = mem::replace(&mut self.state, State::Done) {
            if entry.abandon() {
                // An event that never comes: it wakes nobody. A closed watcher forgets it anyway.
                drop(self.shared.send(Letter::Leave(entry), || MonoNs::MAX));
            }
        }
    }
}

pub(super) fn closed() -> Error {
    Error::plain(ErrorCode::WatcherClosed)
}

impl<F> fmt::Debug for Watch<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::New(..) => "new",
            State::Waiting(_) => "waiting",
            State::Done => "done",
        };
        f.debug_struct("Watch").field("state", &state).finish_non_exhaustive()
    }
}
