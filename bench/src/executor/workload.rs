//! The work that every executor is given: tasks that yield a number of times and then say so.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Who is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Ours,
    Peer,
    /// The least that a correct executor could do; not a peer.
    Floor,
}

/// An executor, kept from one run to the next.
pub trait Subject {
    fn name(&self) -> &str;
    fn kind(&self) -> Kind;
    /// Spawns `tasks` tasks that each yield `yields` times, and runs them all to their end. Says
    /// how much CPU time that took from after the last spawn.
    fn run(&mut self, tasks: usize, yields: usize) -> Duration;
}

/// Ends one poll and asks for the next; the same for every executor.
#[derive(Default)]
pub struct YieldNow(bool);

impl Future for YieldNow {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// One task.
pub async fn yielding(yields: usize, done: Countdown) {
    for _ in 0..yields {
        YieldNow::default().await;
    }
    done.count();
}

/// Counts tasks that have finished, and wakes who waits for the last.
#[derive(Clone)]
pub struct Countdown(Arc<Shared>);

struct Shared {
    left: AtomicUsize,
    waiter: Mutex<Option<Waker>>,
}

impl Countdown {
    pub fn new(tasks: usize) -> Self {
        Countdown(Arc::new(Shared { left: AtomicUsize::new(tasks), waiter: Mutex::new(None) }))
    }

    fn count(&self) {
        if self.0.left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(waiter) = self.0.waiter.lock().expect("nobody panics in it").take()
        {
            waiter.wake();
        }
    }

    pub fn is_done(&self) -> bool {
        self.0.left.load(Ordering::Acquire) == 0
    }

    /// Resolves once every task has finished. Polled twice: at first and at the end.
    pub async fn wait(self) {
        std::future::poll_fn(|cx| {
            *self.0.waiter.lock().expect("nobody panics in it") = Some(cx.waker().clone());
            if self.is_done() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
