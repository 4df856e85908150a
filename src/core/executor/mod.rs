//! The executor: runs ready tasks in the order of their wakes, and idles only when none is ready.
//!
//! ```text
//!  spawn        admit            drain             pop, begin_poll        Ready
//! ------> inbox -----> ready ------------> round ------------------> polled -----> finished
//!                        ^    (all of it)           Pending |                        |
//!                        |                                  v                        v
//!                        +------------- wake ----------- waiting                 place reused
//! ```
//!
//! Each task has a place: its future, in memory of its own that the next task in that place uses
//! again, and its [`link::Task`], which its wakers point to. A round is what was ready when it began:
//! every ready task runs once a round, and what is woken meanwhile runs in the next. Between polls
//! the executor looks at completions and timers, at a pace that keeps the looks cheaper than the
//! polls.
//!
//! # Panics
//!
//! A panic of a poll unwinds out of the run, after the task was taken out and its handle given
//! [`TaskPanicked`](crate::ErrorCode::TaskPanicked). Every other code of the program that the executor
//! calls (wakers of handles, destructors of futures and of results) is [contained](contain): its panic
//! is counted in [`RunStats::panics`], and takes no other task, handle or wake along.
//!
//! # Costs
//!
//! Two allocations a task beside the caller's own box, none for a task in a finished one's place,
//! none for a poll, a wake or a wait. A task switch costs no atomic read-modify-write where the host
//! tells threads apart ([`Idle::thread_token`](crate::Idle::thread_token)). An iteration costs in
//! proportion to the ready tasks.

mod join;
mod link;
mod run;
mod spawner;
mod yield_now;

pub use join::JoinHandle;
#[allow(unused_imports, reason = "a host's, and the feature `std` says whether there are any")]
pub(crate) use run::LiveStats;
pub use run::RunStats;
pub use spawner::Spawner;
pub use yield_now::{YieldNow, yield_now};

use crate::contain::contain;
use crate::core::error::Result;
use alloc::{rc::Rc, sync::Arc, vec::Vec};
use core::cell::Cell;
use core::fmt;
use core::task::{Context, Poll, Waker};
use join::{Waiter, aborted};
use link::{Link, Task};
use spawner::{FutureBox, Inbox};

/// The place of the main future of `run_until`, which has no box.
const MAIN: u32 = 0;

/// Runs tasks of one type on the calling thread, over a [`Reactor`](crate::Reactor).
///
/// `F` may be a boxed future, `Pin<Box<dyn Future<Output = T> + 'a>>`, that borrows what outlives the
/// executor: declare what tasks borrow before the executor. Dropping the executor drops its tasks; their handles resolve to
/// [`Aborted`](crate::ErrorCode::Aborted).
pub struct Executor<F: Future> {
    inbox: Rc<Inbox<F>>,
    places: Vec<Place<F>>,
    free: Vec<u32>,
    link: Option<Arc<Link>>,
    /// The round being run; popped from its end.
    round: Vec<u32>,
    /// How many places hold a task.
    live: usize,
    /// Panics of wakers and destructors since the executor was made.
    contained: Rc<Cell<u64>>,
}

struct Place<F: Future> {
    /// None in a free place.
    future: Option<FutureBox<F>>,
    task: Arc<Task>,
    /// Of `task`; made once, so that a poll counts no reference.
    waker: Waker,
    join: u32,
}

impl<F: Future> Place<F> {
    fn vacant(link: &Arc<Link>, index: u32) -> Self {
        let task = Arc::new(Task::new(link.clone(), index));
        Place { future: None, waker: Waker::from(task.clone()), task, join: 0 }
    }

    /// Whether somebody beside the place holds a waker of its task.
    fn has_wakers(&self) -> bool {
        /// The place's own two: `task` and `waker`.
        const OWN: usize = 2;
        Arc::strong_count(&self.task) > OWN
    }
}

impl<F: Future> Executor<F> {
    /// An executor without tasks.
    #[must_use]
    pub fn new() -> Self {
        Executor {
            inbox: Rc::new(Inbox::new()),
            places: Vec::new(),
            free: Vec::new(),
            link: None,
            round: Vec::new(),
            live: 0,
            contained: Rc::default(),
        }
    }

    /// Queues `future` after what is ready. It is polled once the executor runs.
    ///
    /// Costs at most two allocations, none where a finished task left its place.
    pub fn spawn(&mut self, future: F) -> JoinHandle<F::Output> {
        self.inbox.spawn(future)
    }

    /// A handle that spawns tasks on this executor, also while it runs.
    #[must_use]
    pub fn spawner(&self) -> Spawner<F> {
        Spawner::new(&self.inbox)
    }

    /// How many tasks have not finished.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live + self.inbox.arrived.borrow().len()
    }

    /// Whether every task has finished.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives what arrived a place, and drops what was aborted, until neither brings more.
    #[inline]
    fn attend(&mut self) {
        while self.inbox.joins.attention.replace(false) {
            self.admit_and_abort();
        }
    }

    #[inline(never)]
    fn admit_and_abort(&mut self) {
        loop {
            let arrived = self.inbox.arrived.borrow_mut().pop_front();
            if let Some((join, future)) = arrived {
                self.admit(join, future);
            } else if let Some(place) = self.inbox.joins.next_abort() {
                // The drop of the future may spawn a task and abort it at once: that task needs its
                // place before its abort is processed.
                self.finish(place, Err(aborted()));
            } else {
                return;
            }
        }
    }

    /// Calls code of the program whose panic must not take anything else along.
    fn contain(&self, code: impl FnOnce()) {
        if contain(code).is_none() {
            self.contained.set(self.contained.get() + 1);
        }
    }

    fn admit(&mut self, join: u32, future: FutureBox<F>) {
        let link = self.link.as_ref().expect("tasks are admitted while the executor runs");
        let index = self.free.pop().unwrap_or_else(|| {
            let index = self.places.len() as u32;
            self.places.push(Place::vacant(link, index));
            // A round and the free list never need more, so that neither grows while tasks run.
            self.round.reserve(self.places.len() - self.round.len());
            self.free.reserve(self.places.len() - self.free.len());
            index
        });
        let place = &mut self.places[index as usize];
        place.future = Some(future);
        place.join = join;
        self.live += 1;
        self.inbox.joins.set_place(join, index);
        link.wake_from_runner(&place.task);
    }

    /// Polls the task at `index`; nothing where the place is free.
    #[inline]
    fn poll(&mut self, index: u32) {
        /// Frees the place of a task that panics.
        struct Unwinding<'e, F: Future>(&'e mut Executor<F>, u32);
        impl<F: Future> Drop for Unwinding<'_, F> {
            fn drop(&mut self) {
                let panicked = crate::Error::plain(crate::ErrorCode::TaskPanicked);
                self.0.finish(self.1, Err(panicked));
            }
        }

        let unwinding = Unwinding(self, index);
        let executor = &mut *unwinding.0;
        let place = &mut executor.places[index as usize];
        let polled = match &mut place.future {
            Some(future) => {
                executor.inbox.joins.set_polling(place.waker.data(), index);
                let future = future.as_mut().as_pin_mut().expect("a place in use has a future");
                future.poll(&mut Context::from_waker(&place.waker))
            }
            None => Poll::Pending,
        };
        core::mem::forget(unwinding);
        if let Poll::Ready(output) = polled {
            self.finish(index, Ok(output));
        }
    }

    /// Frees the place, drops the future, and only then gives the result to the handle: a task that
    /// awaits it finds what the finished one held released. Runs while a panic unwinds as well: what
    /// it calls of the program is contained.
    #[inline(never)]
    fn finish(&mut self, index: u32, result: Result<F::Output>) {
        let place = &mut self.places[index as usize];
        let Some(mut future) = place.future.take() else { return };
        let join = place.join;
        self.live -= 1;
        self.free.push(index);
        self.contain(|| future.as_mut().set(None));
        self.contain(|| match self.inbox.joins.finish(join, result) {
            Waiter::Task(waiter) => self.wake_place(waiter),
            Waiter::Other(waker) => waker.wake(),
            Waiter::Nobody => {}
        });
        self.inbox.spare.borrow_mut().push(future);
    }

    fn wake_place(&self, index: u32) {
        if let Some(link) = &self.link {
            link.wake_from_runner(&self.places[index as usize].task);
        }
    }
}

impl<F: Future> Default for Executor<F> {
    fn default() -> Self {
        Executor::new()
    }
}

impl<F: Future> Drop for Executor<F> {
    fn drop(&mut self) {
        self.inbox.closed.set(true);
        // Futures of tasks may hold handles, spawners and wakers; nothing is borrowed here. One that
        // panics in its drop keeps no other from being dropped, and no handle from resolving.
        for place in self.places.drain(..) {
            contain(|| drop(place));
        }
        loop {
            let arrived = self.inbox.arrived.borrow_mut().pop_front();
            let Some(arrived) = arrived else { break };
            contain(|| drop(arrived));
        }
        self.inbox.joins.close();
    }
}

impl<F: Future> fmt::Debug for Executor<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("tasks", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(all(loom, test))]
mod model;
