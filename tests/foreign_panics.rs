//! Wakers, destructors and results of the program that panic: nobody else's wake, handle or task is
//! lost, and a program that is unwinding already is not aborted.

mod manual;

use gpu_async_reactor::{
    CompletionLine, DurNs, ErrorCode, Executor, JoinHandle, ManualClock, OwnedDescriptor, Reactor,
    SharedLine, Slot, Spawner, yield_now,
};
use manual::TraceIdle;
use std::cell::{Cell, RefCell};
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

const BOUND: DurNs = DurNs::from_us(50);
const SLOT: Slot = Slot::ALL[0];

type Task<'a, T = ()> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A payload whose destructor panics as well.
struct Payload;

impl Drop for Payload {
    fn drop(&mut self) {
        panic!("a payload");
    }
}

/// Panics when it is used, and once more when the payload of that is dropped.
struct Panicking;

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        panic_any(Payload);
    }
}

#[derive(Default)]
struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic_any(Payload);
    }
}

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

fn on(line: &SharedLine) -> OwnedDescriptor {
    OwnedDescriptor { line: line.clone(), slot: SLOT, target: 1 }
}

#[test]
fn f59_wakers_that_panic_keep_no_other_of_the_same_fire_from_being_woken() {
    let clock = ManualClock::new();
    let reactor = Reactor::new(&clock);
    let line = CompletionLine::shared();
    let counting = Arc::new(Counting::default());
    let (good, bad) = (Waker::from(counting.clone()), Waker::from(Arc::new(Panicking)));
    let mut waits: Vec<_> = (0..10).map(|_| reactor.ready_owned(on(&line), None)).collect();
    for (at, wait) in waits.iter_mut().enumerate() {
        assert!(poll(wait, if at % 4 == 0 { &bad } else { &good }).is_pending());
    }
    (*line).as_ref().store(SLOT, 1);
    assert!(reactor.fire());
    assert_eq!(counting.0.load(Ordering::Relaxed), 7);
    assert_eq!((reactor.contained_panics(), reactor.pending()), (3, (0, 0)));
}

/// A line that panics when its last handle goes.
struct BadLine(CompletionLine, #[allow(dead_code, reason = "dropped")] PanicsOnDrop);

impl AsRef<CompletionLine> for BadLine {
    fn as_ref(&self) -> &CompletionLine {
        &self.0
    }
}

#[test]
fn f59_a_line_whose_destructor_panics_keeps_no_waker_of_its_fire_from_being_woken() {
    let clock = ManualClock::new();
    let reactor = Reactor::new(&clock);
    let counting = Arc::new(Counting::default());
    let waker = Waker::from(counting.clone());
    let bad: Arc<BadLine> = Arc::new(BadLine(CompletionLine::default(), PanicsOnDrop));
    let (weak, bad): (_, SharedLine) = (Arc::downgrade(&bad), bad);
    let good = CompletionLine::shared();
    {
        // Forgotten: the reactor alone keeps its line from then on.
        let mut forgotten = reactor.ready_owned(on(&bad), None);
        assert!(poll(&mut forgotten, &waker).is_pending());
        // SAFETY: none is needed: a future may be forgotten. Its own handle of the line is leaked,
        // so that one is taken from the count.
        std::mem::forget(forgotten);
    }
    let mut kept = reactor.ready_owned(on(&good), None);
    assert!(poll(&mut kept, &waker).is_pending());
    (*bad).as_ref().store(SLOT, 1);
    (*good).as_ref().store(SLOT, 1);
    // The forgotten future's handle and this one: the reactor's is the last.
    let raw = Arc::into_raw(weak.upgrade().unwrap());
    drop(bad);
    // SAFETY: `raw` came from `into_raw` and stands for one count; the other count that is taken is
    // that of the forgotten future, which nobody else gives back.
    unsafe {
        Arc::decrement_strong_count(raw);
        Arc::decrement_strong_count(raw);
    }
    assert!(reactor.fire());
    assert_eq!(counting.0.load(Ordering::Relaxed), 2);
    assert_eq!((weak.strong_count(), reactor.contained_panics()), (0, 1));
}

/// A future beside something that panics in its drop, which comes after the panic of a poll: what
/// panics while a poll unwinds ends the process, whatever the executor does.
struct Beside<'a, T = ()> {
    future: Task<'a, T>,
    _held: PanicsOnDrop,
}

impl<T> Future for Beside<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.future.as_mut().poll(cx)
    }
}

#[test]
fn f41_a_task_that_panics_beside_a_waker_and_a_destructor_that_do_is_no_abort() {
    let clock = ManualClock::new();
    let reactor = Reactor::new(&clock);
    let mut idle = TraceIdle::new(&clock);
    let mut executor: Executor<Task> = Executor::new();
    let mut handle = executor.spawn(Box::pin(Beside {
        future: Box::pin(async {
            yield_now().await;
            panic!("the task")
        }),
        _held: PanicsOnDrop,
    }));
    let other = executor.spawn(Box::pin(async {
        yield_now().await;
        yield_now().await;
    }));
    executor.run_until(&reactor, &mut idle, BOUND, async {}).unwrap();
    assert!(poll(&mut handle, &Waker::from(Arc::new(Panicking))).is_pending());
    let run = catch_unwind(AssertUnwindSafe(|| executor.run(&reactor, &mut idle, BOUND)));
    assert!(run.is_err());
    assert!(handle.is_finished());
    executor.run(&reactor, &mut idle, BOUND).unwrap();
    assert!(other.is_finished());
}

#[test]
fn futures_results_and_wakers_that_panic_when_dropped_or_used_are_counted_by_the_run() {
    let clock = ManualClock::new();
    let reactor = Reactor::new(&clock);
    let mut idle = TraceIdle::new(&clock);
    let mut executor: Executor<Task<Option<PanicsOnDrop>>> = Executor::new();
    // The future panics in its drop after it has finished.
    let first = executor.spawn(Box::pin(Beside {
        future: Box::pin(async {
            yield_now().await;
            None
        }),
        _held: PanicsOnDrop,
    }));
    // The result that nobody takes panics in its drop.
    drop(executor.spawn(Box::pin(async { Some(PanicsOnDrop) })));
    // Aborted while it holds what panics.
    let aborted = executor.spawn(Box::pin(async {
        let _held = PanicsOnDrop;
        pending().await
    }));
    let main = async {
        yield_now().await;
        aborted.abort();
        assert!(first.await.unwrap().is_none());
        aborted.await.map(|_| ()).unwrap_err().code()
    };
    let (code, stats) = executor.run_until(&reactor, &mut idle, BOUND, main).unwrap();
    assert_eq!((code, stats.panics), (ErrorCode::Aborted, 3));
    assert!(executor.is_empty());
}

#[test]
fn handles_resolve_when_an_executor_is_dropped_whose_tasks_panic_in_their_drop() {
    let clock = ManualClock::new();
    let reactor = Reactor::new(&clock);
    let mut idle = TraceIdle::new(&clock);
    let mut executor: Executor<Task> = Executor::new();
    let bad = || -> Task {
        Box::pin(async {
            let _held = PanicsOnDrop;
            pending().await
        })
    };
    let mut handles = vec![executor.spawn(bad()), executor.spawn(Box::pin(pending()))];
    executor.run_until(&reactor, &mut idle, BOUND, yield_now()).unwrap();
    // Never admitted.
    let held = PanicsOnDrop;
    handles.push(executor.spawn(Box::pin(async move {
        let _held = held;
        pending().await
    })));
    assert!(poll(&mut handles[1], &Waker::from(Arc::new(Panicking))).is_pending());
    drop(executor);
    assert!(handles.iter().all(JoinHandle::is_finished));
}

/// Spawns a task when it is dropped, and gives its handle away.
struct SpawnOnDrop<T: 'static> {
    spawner: Spawner<Task<'static, T>>,
    task: Option<Task<'static, T>>,
    handle: Rc<RefCell<Option<JoinHandle<T>>>>,
    and_then: fn(&JoinHandle<T>),
}

impl<T> Drop for SpawnOnDrop<T> {
    fn drop(&mut self) {
        let handle = self.spawner.spawn(self.task.take().unwrap());
        (self.and_then)(&handle);
        *self.handle.borrow_mut() = Some(handle);
    }
}

#[test]
fn an_abort_of_a_task_that_has_finished_does_not_reach_the_next_one() {
    struct Output(#[allow(dead_code, reason = "dropped")] Option<SpawnOnDrop<Output>>);
    let clock = ManualClock::new();
    let reactor = Reactor::new(&clock);
    let mut idle = TraceIdle::new(&clock);
    let mut executor: Executor<Task<'static, Output>> = Executor::new();
    let (own, ran) = (Rc::new(RefCell::new(None::<JoinHandle<Output>>)), Rc::new(Cell::new(false)));
    let (of_task, next_ran) = (own.clone(), ran.clone());
    let next: Task<'static, Output> = Box::pin(async move {
        next_ran.set(true);
        Output(None)
    });
    let spawner = executor.spawner();
    let handle = executor.spawn(Box::pin(async move {
        let handle = of_task.borrow_mut().take().unwrap();
        (0..3).for_each(|_| handle.abort());
        drop(handle);
        let and_then = |_: &JoinHandle<Output>| {};
        Output(Some(SpawnOnDrop { spawner, task: Some(next), handle: Rc::default(), and_then }))
    }));
    *own.borrow_mut() = Some(handle);
    executor.run(&reactor, &mut idle, BOUND).unwrap();
    assert!(ran.get(), "its successor in the table was aborted");
}

#[test]
fn a_task_that_is_spawned_and_aborted_in_the_drop_of_an_aborted_one_is_dropped() {
    let clock = ManualClock::new();
    let reactor = Reactor::new(&clock);
    let mut idle = TraceIdle::new(&clock);
    let mut executor: Executor<Task<'static>> = Executor::new();
    let second = Rc::new(RefCell::new(None));
    let on_drop = SpawnOnDrop {
        spawner: executor.spawner(),
        task: Some(Box::pin(pending())),
        handle: second.clone(),
        and_then: JoinHandle::abort,
    };
    let first = executor.spawn(Box::pin(async move {
        let _on_drop = on_drop;
        pending().await
    }));
    let main = async {
        yield_now().await;
        first.abort();
        assert_eq!(first.await.unwrap_err().code(), ErrorCode::Aborted);
        let second = second.borrow_mut().take().unwrap();
        second.await.unwrap_err().code()
    };
    let (code, _) = executor.run_until(&reactor, &mut idle, BOUND, main).unwrap();
    assert_eq!((code, executor.len()), (ErrorCode::Aborted, 0));
}

#[test]
fn a_task_aborted_twice_whose_waiter_drops_the_handle_and_spawns_costs_nobody_anything() {
    thread_local! {
        static HELD: RefCell<Option<(JoinHandle<()>, Spawner<Task<'static>>)>> =
            const { RefCell::new(None) };
    }
    struct DropAndSpawn;
    impl Wake for DropAndSpawn {
        fn wake(self: Arc<Self>) {
            if let Some((handle, spawner)) = HELD.take() {
                drop(handle);
                drop(spawner.spawn(Box::pin(async {})));
            }
        }
    }
    let clock = ManualClock::new();
    let reactor = Reactor::new(&clock);
    let mut idle = TraceIdle::new(&clock);
    let mut executor: Executor<Task<'static>> = Executor::new();
    let mut handle = executor.spawn(Box::pin(pending()));
    executor.run_until(&reactor, &mut idle, BOUND, yield_now()).unwrap();
    assert!(poll(&mut handle, &Waker::from(Arc::new(DropAndSpawn))).is_pending());
    handle.abort();
    handle.abort();
    HELD.set(Some((handle, executor.spawner())));
    executor.run(&reactor, &mut idle, BOUND).unwrap();
    assert!(executor.is_empty());
}
