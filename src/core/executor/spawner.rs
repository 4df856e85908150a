//! Spawning, from outside of the executor and from within its tasks: both put the future into the
//! inbox, which the executor empties into places when it starts to run and after each poll.

use super::join::{JoinHandle, JoinTable};
use alloc::{boxed::Box, collections::VecDeque, rc::Rc, rc::Weak, vec::Vec};
use core::cell::{Cell, RefCell};
use core::fmt;
use core::pin::Pin;

/// A task's future, in memory that the next task will use.
pub(super) type FutureBox<F> = Pin<Box<Option<F>>>;

pub(super) struct Inbox<F: Future> {
    pub(super) arrived: RefCell<VecDeque<(u32, FutureBox<F>)>>,
    /// Emptied boxes of finished tasks.
    pub(super) spare: RefCell<Vec<FutureBox<F>>>,
    pub(super) joins: Rc<JoinTable<F::Output>>,
    pub(super) closed: Cell<bool>,
}

impl<F: Future> Inbox<F> {
    pub(super) fn new() -> Self {
        Inbox {
            arrived: RefCell::default(),
            spare: RefCell::default(),
            joins: Rc::new(JoinTable::new()),
            closed: Cell::new(false),
        }
    }

    pub(super) fn spawn(&self, future: F) -> JoinHandle<F::Output> {
        if self.closed.get() {
            return JoinHandle::of_nothing();
        }
        let spare = self.spare.borrow_mut().pop();
        let future = match spare {
            Some(mut place) => {
                place.as_mut().set(Some(future));
                place
            }
            None => Box::pin(Some(future)),
        };
        let join = self.joins.add();
        self.arrived.borrow_mut().push_back((join, future));
        self.joins.attention.set(true);
        JoinHandle::new(self.joins.clone(), join)
    }
}

/// Spawns tasks on an executor, also from within its tasks while it runs. Made by
/// [`Executor::spawner`](crate::Executor::spawner); it does not keep the executor's tasks alive.
pub struct Spawner<F: Future> {
    inbox: Weak<Inbox<F>>,
}

impl<F: Future> Spawner<F> {
    pub(super) fn new(inbox: &Rc<Inbox<F>>) -> Self {
        Spawner { inbox: Rc::downgrade(inbox) }
    }

    /// Queues `future` behind what is ready. Where the executor is gone the future is dropped, and
    /// the handle resolves to [`Aborted`](crate::ErrorCode::Aborted).
    ///
    /// Costs at most two allocations, none where a finished task left its place.
    pub fn spawn(&self, future: F) -> JoinHandle<F::Output> {
        match self.inbox.upgrade() {
            Some(inbox) => inbox.spawn(future),
            None => JoinHandle::of_nothing(),
        }
    }
}

impl<F: Future> Clone for Spawner<F> {
    fn clone(&self) -> Self {
        Spawner { inbox: self.inbox.clone() }
    }
}

impl<F: Future> fmt::Debug for Spawner<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner").field("connected", &(self.inbox.strong_count() > 0)).finish()
    }
}
