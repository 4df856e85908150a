//! The result of a runtime's task. The executor runs tasks of one erased type; the output goes by a
//! cell that the task and its handle share.

use super::inside::RuntimeId;
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::executor::JoinHandle;
use alloc::rc::Rc;
use core::cell::Cell;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};

/// The handle of a task spawned on a runtime: a [`JoinHandle`] with the task's output. Dropping it
/// detaches the task.
///
/// Once the task has finished, its handle can be awaited anywhere. Before that, polled where the
/// runtime does not run, it resolves to [`OutsideRuntime`](ErrorCode::OutsideRuntime), as nothing
/// there runs the task; it can be awaited again inside.
pub struct Spawned<T> {
    pub(super) join: JoinHandle<()>,
    pub(super) output: Rc<Cell<Option<T>>>,
    pub(super) runtime: RuntimeId,
}

impl<T> Spawned<T> {
    /// Asks for the task to be dropped, as [`JoinHandle::abort`].
    pub fn abort(&self) {
        self.join.abort();
    }

    /// Whether awaiting the handle would resolve at once.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.join.is_finished()
    }
}

impl<T> Future for Spawned<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        if !self.join.is_finished() {
            self.runtime.check("the handle of a task")?;
        }
        Pin::new(&mut self.join).poll(cx).map(|finished| {
            finished?;
            // Taken already where the handle is polled again after it was ready.
            self.output.take().ok_or_else(|| Error::plain(ErrorCode::Aborted))
        })
    }
}

impl<T> fmt::Debug for Spawned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawned").field("finished", &self.is_finished()).finish()
    }
}
