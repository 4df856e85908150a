//! The floor: a queue of `Rc` tasks and one atomic read-modify-write a switch. It serves one thread,
//! has no handles, no timers, no aborts and no panics, so it is not a peer: it shows how much of a
//! switch is the poll itself.

use super::workload::{Countdown, Kind, Subject, yielding};
use crate::measure::cpu_time;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

type Queue = Rc<RefCell<VecDeque<Rc<Task>>>>;

struct Task {
    future: RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>>,
    queued: AtomicBool,
    queue: Queue,
}

impl Task {
    fn wake(self: &Rc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.queue.borrow_mut().push_back(self.clone());
        }
    }
}

/// A waker of an `Rc`. The workload is polled on one thread and sends no waker away.
const VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, release);

fn clone(task: *const ()) -> RawWaker {
    // SAFETY: `task` came from `Rc::into_raw` and holds one of its counts.
    unsafe { Rc::increment_strong_count(task.cast::<Task>()) };
    RawWaker::new(task, &VTABLE)
}

fn wake(task: *const ()) {
    wake_by_ref(task);
    release(task);
}

fn wake_by_ref(task: *const ()) {
    // SAFETY: as in `clone`; the count is not given up here, so it is not dropped.
    let task = std::mem::ManuallyDrop::new(unsafe { Rc::from_raw(task.cast::<Task>()) });
    task.wake();
}

fn release(task: *const ()) {
    // SAFETY: as in `clone`; the waker gives up its count.
    drop(unsafe { Rc::from_raw(task.cast::<Task>()) });
}

#[derive(Default)]
pub struct Floor {
    queue: Queue,
}

impl Subject for Floor {
    fn name(&self) -> &str {
        "floor: Rc queue, one atomic"
    }

    fn kind(&self) -> Kind {
        Kind::Floor
    }

    fn run(&mut self, tasks: usize, yields: usize) -> Duration {
        let done = Countdown::new(tasks);
        for _ in 0..tasks {
            let future = RefCell::new(Some(Box::pin(yielding(yields, done.clone())) as _));
            let queue = self.queue.clone();
            Rc::new(Task { future, queued: AtomicBool::new(false), queue }).wake();
        }
        cpu_time(|| {
            loop {
                let next = self.queue.borrow_mut().pop_front();
                let Some(task) = next else { break };
                task.queued.store(false, Ordering::Relaxed);
                let data = Rc::into_raw(task.clone()).cast();
                // SAFETY: the functions of VTABLE keep the contract of RawWakerVTable, except that
                // they are of one thread only, which is all that this workload uses.
                let waker = unsafe { Waker::from_raw(RawWaker::new(data, &VTABLE)) };
                let mut future = task.future.borrow_mut();
                if let Some(polled) = future.as_mut()
                    && polled.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
                {
                    *future = None;
                }
            }
        })
    }
}
