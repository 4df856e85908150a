//! The executor, cranked on a manual clock with an idle that records what it was asked for.

mod manual;

use gpu_async_reactor::{
    CompletionLine, DurNs, ErrorCode, Executor, Idle, ManualClock, MemoryDescriptor, MonoNs,
    Reactor, Slot, yield_now,
};
use manual::{Trace, TraceIdle, noop_run};
use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

type Task<'a, T = ()> = Pin<Box<dyn Future<Output = T> + 'a>>;

const BOUND: DurNs = DurNs::from_us(50);

fn names(trace: &RefCell<Vec<String>>) -> Vec<String> {
    std::mem::take(&mut trace.borrow_mut())
}

#[test]
fn ready_tasks_run_in_the_order_of_their_wakes_each_once_a_round() {
    for token in [false, true] {
        let clock = ManualClock::new();
        let reactor = Reactor::new(&clock);
        let mut idle = TraceIdle::new(&clock);
        idle.tell_threads_apart = token;
        let trace = RefCell::new(Vec::new());
        let wakers: [RefCell<Option<Waker>>; 3] = Default::default();
        let mut executor: Executor<Task> = Executor::new();
        for name in 0..3 {
            let (trace, wakers) = (&trace, &wakers);
            executor.spawn(Box::pin(async move {
                let mut polled = false;
                poll_fn(|cx| {
                    trace.borrow_mut().push(name.to_string());
                    if std::mem::replace(&mut polled, true) {
                        return Poll::Ready(());
                    }
                    *wakers[name].borrow_mut() = Some(cx.waker().clone());
                    Poll::Pending
                })
                .await;
            }));
        }
        // Woken in the order 2, 0, 1, and 2 twice.
        executor.spawn(Box::pin(async {
            yield_now().await;
            for name in [2, 0, 2, 1] {
                wakers[name].borrow().as_ref().unwrap().wake_by_ref();
            }
        }));
        noop_run(&mut executor, &reactor, &mut idle).unwrap();
        assert_eq!(names(&trace), ["0", "1", "2", "2", "0", "1"], "token: {token}");
        assert!(idle.trace.is_empty(), "nothing to idle for");
    }
}

#[test]
fn a_busy_task_does_not_keep_completions_or_others_waiting() {
    let clock = ManualClock::new();
    let reactor = Reactor::new(&clock);
    let line = CompletionLine::default();
    let slot = Slot::ALL[2];
    let mut idle = TraceIdle::new(&clock);
    let rounds = Cell::new(0u32);
    let (other, resumed) = (Cell::new(0), Cell::new(0));
    let mut executor: Executor<Task> = Executor::new();
    let main = async {
        reactor.ready(MemoryDescriptor::new(&line, slot, 1), None).await;
        resumed.set(rounds.get());
    };
    executor.spawn(Box::pin(async {
        loop {
            rounds.set(rounds.get() + 1);
            if rounds.get() == 1_000 {
                line.store(slot, 1);
            }
            assert!(rounds.get() < 2_000, "the completion was never looked at");
            yield_now().await;
        }
    }));
    executor.spawn(Box::pin(async {
        loop {
            other.set(other.get() + 1);
            yield_now().await;
        }
    }));
    executor.run_until(&reactor, &mut idle, BOUND, main).unwrap();
    assert!(resumed.get() - 1_000 <= 16, "seen after {} rounds", resumed.get() - 1_000);
    assert!(rounds.get().abs_diff(other.get()) <= 1, "every ready task runs once a round");
}

#[test]
fn a_thread_idles_only_when_nothing_is_ready() {
    let clock = ManualClock::new();
    let reactor = Reactor::new(&clock);
    let mut idle = TraceIdle::new(&clock);
    let mut executor: Executor<Task> = Executor::new();
    executor.spawn(Box::pin(async {
        for _ in 0..100 {
            yield_now().await;
        }
    }));
    executor.spawn(Box::pin(reactor.alarm(gpu_async_reactor::MonoNs(7_000))));
    let stats = executor.run(&reactor, &mut idle, BOUND).unwrap();
    assert_eq!(idle.trace, [Trace::Sleep(7_000)]);
    assert_eq!((stats.slept, stats.parked, stats.idle_ns), (1, 0, 7_000));
    assert_eq!(stats.polls, 101 + 2);
}

#[test]
fn a_stall_is_reported_with_the_tasks_left_and_the_executor_can_go_on() {
    let clock = ManualClock::new();
    let reactor = Reactor::new(&clock);
    let mut idle = TraceIdle::new(&clock);
    let mut executor: Executor<Task<u8>> = Executor::new();
    let stuck = executor.spawn(Box::pin(pending()));
    let waits_for_stuck = executor.spawn(Box::pin(async { stuck.await.unwrap() }));
    let error = executor.run(&reactor, &mut idle, BOUND).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Stalled);
    assert_eq!(error.args(), ["2"]);
    waits_for_stuck.abort();
    let done = executor.spawn(Box::pin(async { 5 }));
    let error = executor.run(&reactor, &mut idle, BOUND).unwrap_err();
    assert_eq!(error.args(), ["1"], "the aborted task took its handle along");
    let (sum, _) =
        executor.run_until(&reactor, &mut idle, BOUND, async { done.await.unwrap() + 1 }).unwrap();
    assert_eq!(sum, 6);
    assert!(idle.trace.is_empty());
}

#[test]
fn a_panic_leaves_run_and_takes_only_its_task_along() {
    let clock = ManualClock::new();
    let reactor = Reactor::new(&clock);
    let mut idle = TraceIdle::new(&clock);
    let dropped = Rc::new(Cell::new(false));
    struct OnDrop(Rc<Cell<bool>>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    let held = OnDrop(dropped.clone());
    let mut executor: Executor<Task<u8>> = Executor::new();
    let first = executor.spawn(Box::pin(async { 1 }));
    let bad = executor.spawn(Box::pin(async move {
        let _held = held;
        panic!("on purpose")
    }));
    let last = executor.spawn(Box::pin(async { 3 }));
    let run = catch_unwind(AssertUnwindSafe(|| executor.run(&reactor, &mut idle, BOUND)));
    assert!(run.is_err() && dropped.get());
    assert_eq!(executor.len(), 1);
    let main = async {
        let bad = bad.await.unwrap_err();
        (first.await.unwrap(), bad.code(), last.await.unwrap())
    };
    let (seen, _) = executor.run_until(&reactor, &mut idle, BOUND, main).unwrap();
    assert_eq!(seen, (1, ErrorCode::TaskPanicked, 3));
}

#[test]
fn handles_of_a_gone_executor_are_aborted_and_wake_who_waits() {
    let clock = ManualClock::new();
    let reactor = Reactor::new(&clock);
    let mut idle = TraceIdle::new(&clock);
    let mut inner: Executor<Task> = Executor::new();
    let spawner = inner.spawner();
    let orphan = inner.spawn(Box::pin(pending()));
    let mut outer: Executor<Task> = Executor::new();
    outer.spawn(Box::pin(async {
        yield_now().await;
        drop(inner);
    }));
    let main = async {
        assert_eq!(orphan.await.unwrap_err().code(), ErrorCode::Aborted);
        spawner.spawn(Box::pin(async {})).await.unwrap_err().code()
    };
    let (code, _) = outer.run_until(&reactor, &mut idle, BOUND, main).unwrap();
    assert_eq!(code, ErrorCode::Aborted);
}

#[test]
fn an_aborted_task_is_dropped_before_its_handle_resolves() {
    let clock = ManualClock::new();
    let reactor = Reactor::new(&clock);
    let mut idle = TraceIdle::new(&clock);
    let token = Rc::new(());
    let held = token.clone();
    let mut executor: Executor<Task> = Executor::new();
    let handle = executor.spawn(Box::pin(async move {
        let _held = held;
        pending().await
    }));
    let main = async {
        yield_now().await;
        handle.abort();
        assert_eq!(handle.await.unwrap_err().code(), ErrorCode::Aborted);
        Rc::strong_count(&token)
    };
    let (count, _) = executor.run_until(&reactor, &mut idle, BOUND, main).unwrap();
    assert_eq!((count, executor.len()), (1, 0));
}

#[test]
fn a_task_can_abort_itself_and_spawn_while_it_is_dropped() {
    let clock = ManualClock::new();
    let reactor = Reactor::new(&clock);
    let mut idle = TraceIdle::new(&clock);
    let mut executor: Executor<Task> = Executor::new();
    let ran = Rc::new(Cell::new(false));
    struct SpawnOnDrop(gpu_async_reactor::Spawner<Task<'static>>, Rc<Cell<bool>>);
    impl Drop for SpawnOnDrop {
        fn drop(&mut self) {
            let ran = self.1.clone();
            drop(self.0.spawn(Box::pin(async move { ran.set(true) })));
        }
    }
    let own = Rc::new(RefCell::new(None::<gpu_async_reactor::JoinHandle<()>>));
    let on_drop = SpawnOnDrop(executor.spawner(), ran.clone());
    let to_abort = own.clone();
    let handle = executor.spawn(Box::pin(async move {
        let _on_drop = on_drop;
        to_abort.borrow().as_ref().unwrap().abort();
        pending().await
    }));
    *own.borrow_mut() = Some(handle);
    executor.run(&reactor, &mut idle, BOUND).unwrap();
    assert!(ran.get());
    assert!(own.borrow().as_ref().unwrap().is_finished());
}

#[test]
fn another_idle_gets_new_wakers_and_every_task_is_polled_once() {
    let clock = ManualClock::new();
    let reactor = Reactor::new(&clock);
    let polls = Cell::new(0);
    let kept: RefCell<Option<Waker>> = RefCell::default();
    let mut executor: Executor<Task> = Executor::new();
    executor.spawn(Box::pin(poll_fn(|cx| {
        polls.set(polls.get() + 1);
        *kept.borrow_mut() = Some(cx.waker().clone());
        if polls.get() == 3 { Poll::Ready(()) } else { Poll::Pending }
    })));
    let mut first = TraceIdle::new(&clock);
    executor.run_until(&reactor, &mut first, BOUND, yield_now()).unwrap();
    executor.run_until(&reactor, &mut first, BOUND, yield_now()).unwrap();
    assert_eq!(polls.get(), 1, "the same idle polls nothing anew");
    let mut second = TraceIdle::new(&clock);
    second.tell_threads_apart = true;
    executor.run_until(&reactor, &mut second, BOUND, yield_now()).unwrap();
    assert_eq!(polls.get(), 2);
    kept.borrow().as_ref().unwrap().wake_by_ref();
    executor.run(&reactor, &mut second, BOUND).unwrap();
    assert_eq!(polls.get(), 3);
}

#[test]
fn tasks_may_borrow_what_outlives_the_executor() {
    let numbers = [1, 2, 3];
    let clock = ManualClock::new();
    let reactor = Reactor::new(&clock);
    let mut idle = TraceIdle::new(&clock);
    let mut executor: Executor<Task<'_, usize>> = Executor::new();
    let handle = executor.spawn(Box::pin(async { numbers.len() }));
    let (len, _) =
        executor.run_until(&reactor, &mut idle, BOUND, async { handle.await.unwrap() }).unwrap();
    assert_eq!(len, 3);
}

#[test]
fn a_hundred_thousand_waiting_tasks_on_12_500_lines_complete() {
    let clock = ManualClock::new();
    let reactor = Reactor::new(&clock);
    let lines: Vec<CompletionLine> = (0..12_500).map(|_| CompletionLine::default()).collect();
    let mut idle = TraceIdle::new(&clock);
    let done = Cell::new(0);
    let mut executor: Executor<Task> = Executor::new();
    for line in &lines {
        for slot in Slot::ALL {
            let (reactor, done) = (&reactor, &done);
            drop(executor.spawn(Box::pin(async move {
                reactor.ready(MemoryDescriptor::new(line, slot, 1), None).await;
                done.set(done.get() + 1);
            })));
        }
    }
    let main = async {
        yield_now().await;
        assert_eq!(reactor.pending(), (100_000, 0));
        for line in lines.iter().rev() {
            for slot in Slot::ALL {
                line.store(slot, 1);
            }
        }
    };
    executor.run_until(&reactor, &mut idle, BOUND, main).unwrap();
    let stats = executor.run(&reactor, &mut idle, BOUND).unwrap();
    assert_eq!((done.get(), stats.polls), (100_000, 100_000));
    assert_eq!(reactor.pending(), (0, 0));
}

/// An idle with I/O of the program, which completes after some looks and never by idling.
struct WithIo<'c> {
    idle: TraceIdle<'c>,
    looks_left: u32,
    looks_at: Vec<u64>,
    waiter: Rc<RefCell<Option<Waker>>>,
}

impl Idle for WithIo<'_> {
    fn sleep_until(&mut self, at: MonoNs) {
        self.idle.sleep_until(at);
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        self.idle.park_line(line, ready, bound)
    }

    fn has_io(&self) -> bool {
        self.looks_left > 0
    }

    fn poll_io(&mut self, now: MonoNs) -> bool {
        self.looks_at.push(now.0);
        self.looks_left -= 1;
        if self.looks_left > 0 {
            return false;
        }
        self.waiter.borrow_mut().take().unwrap().wake();
        true
    }
}

#[test]
fn a_busy_executor_brings_the_io_of_its_idle_on_between_polls_and_only_where_there_is_some() {
    for looks in [1, 10] {
        let clock = ManualClock::new();
        // Nothing is registered here: I/O is looked at on its own account.
        let reactor = Reactor::new(&clock);
        let waiter = Rc::new(RefCell::new(None));
        let idle = TraceIdle::new(&clock);
        let mut idle =
            WithIo { idle, looks_left: looks, looks_at: Vec::new(), waiter: waiter.clone() };
        let done = Cell::new(false);
        let mut executor: Executor<Task> = Executor::new();
        executor.spawn(Box::pin(async {
            let mut polled = false;
            poll_fn(|cx| {
                if std::mem::replace(&mut polled, true) {
                    return Poll::Ready(());
                }
                *waiter.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            })
            .await;
            done.set(true);
        }));
        executor.spawn(Box::pin(async {
            while !done.get() {
                clock.advance(DurNs(100));
                yield_now().await;
            }
        }));
        let stats = executor.run(&reactor, &mut idle, BOUND).unwrap();
        assert!(idle.idle.trace.is_empty(), "it was never idle");
        assert_eq!(idle.looks_at.len() as u32, looks, "and was not asked once there was none");
        assert_eq!(stats.woke, 1);
        // At the pace of the other looks: every 400 ns or so, of steps that take 50 each.
        let gaps = idle.looks_at.windows(2).map(|two| two[1] - two[0]);
        assert!(gaps.clone().all(|gap| gap <= 1_600), "{:?}", gaps.collect::<Vec<_>>());
    }
}
