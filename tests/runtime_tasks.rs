//! Tasks of a runtime whose outputs and destructors are the program's own code.

mod common;

use common::Watchdog;
use gpu_async_reactor::ErrorCode;
use gpu_async_reactor::host::{Handle, Runtime};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

fn runtime() -> Runtime {
    Runtime::new("poll", "gpu-reactor").unwrap()
}

/// Calls its function when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn panics_in_its_drop() -> OnDrop<impl FnMut()> {
    OnDrop(|| resume_unwind(Box::new("the drop of an output")))
}

/// An output that spawns `count` more tasks when it is dropped, each counted.
fn spawns_in_its_drop(handle: &Handle, ran: &Rc<Cell<u32>>) -> OnDrop<impl FnMut() + use<>> {
    let (handle, ran) = (handle.clone(), ran.clone());
    OnDrop(move || {
        let ran = ran.clone();
        handle.spawn(async move { ran.set(ran.get() + 1) });
    })
}

#[test]
fn an_output_nobody_takes_whose_drop_panics_costs_no_other_task_anything() {
    let _watchdog = Watchdog::new("an output's drop panics");
    let runtime = runtime();
    let ran = Rc::new(Cell::new(0));
    for task in 0..9 {
        let ran = ran.clone();
        if task == 4 {
            drop(runtime.spawn(async { panics_in_its_drop() }));
        }
        drop(runtime.spawn(async move { ran.set(ran.get() + 1) }));
    }
    let panicked = catch_unwind(AssertUnwindSafe(|| runtime.run()));
    assert!(panicked.is_err(), "it unwinds out of the run, as a panic of the task");
    runtime.run().unwrap();
    assert_eq!(ran.get(), 9);
}

#[test]
fn an_output_whose_drop_panics_reaches_the_one_who_awaits_it_whole() {
    let runtime = runtime();
    let task = runtime.spawn(async { panics_in_its_drop() });
    let output = runtime.block_on(task).unwrap().unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(output))).is_err());
    // And one that is finished and never awaited unwinds where its handle is dropped.
    let task = runtime.spawn(async { panics_in_its_drop() });
    runtime.run().unwrap();
    assert!(task.is_finished());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(task))).is_err());
    runtime.block_on(async {}).unwrap();
}

#[test]
fn a_future_whose_drop_panics_after_its_output_is_a_task_that_panicked() {
    let _watchdog = Watchdog::new("a future's drop panics");
    let runtime = runtime();
    let task = runtime.spawn(async {
        let _last = panics_in_its_drop();
        7
    });
    assert!(catch_unwind(AssertUnwindSafe(|| runtime.run())).is_err());
    let error = runtime.block_on(task).unwrap().unwrap_err();
    assert_eq!(error.code(), ErrorCode::TaskPanicked);
}

#[test]
fn an_output_whose_drop_spawns_gets_its_tasks_run_wherever_it_is_dropped() {
    let _watchdog = Watchdog::new("an output's drop spawns");
    let runtime = runtime();
    let ran = Rc::new(Cell::new(0));
    let task = || {
        let (handle, ran) = (runtime.handle(), ran.clone());
        async move { spawns_in_its_drop(&handle, &ran) }
    };
    // Detached, taken and dropped by main, and finished but dropped unread.
    drop(runtime.spawn(task()));
    let taken = runtime.spawn(task());
    let unread = runtime.spawn(task());
    runtime
        .block_on(async {
            drop(taken.await.unwrap());
            while !unread.is_finished() {
                gpu_async_reactor::yield_now().await;
            }
            drop(unread);
        })
        .unwrap();
    runtime.run().unwrap();
    assert_eq!(ran.get(), 3);
}

#[test]
fn an_aborted_task_is_dropped_once_and_what_its_drop_spawns_is_not_aborted_with_it() {
    let _watchdog = Watchdog::new("an aborted task spawns");
    let runtime = runtime();
    let ran = Rc::new(Cell::new(0));
    let dropped = Rc::new(Cell::new(0));
    let task = {
        let (handle, ran, dropped) = (runtime.handle(), ran.clone(), dropped.clone());
        runtime.spawn(async move {
            let _spawning = spawns_in_its_drop(&handle, &ran);
            let _counting = OnDrop(|| dropped.set(dropped.get() + 1));
            std::future::pending::<()>().await;
        })
    };
    let aborted = runtime.block_on(async {
        gpu_async_reactor::yield_now().await;
        task.abort();
        task.abort();
        task.await
    });
    assert_eq!(aborted.unwrap().unwrap_err().code(), ErrorCode::Aborted);
    runtime.run().unwrap();
    assert_eq!((dropped.get(), ran.get()), (1, 1));
}

#[test]
fn tasks_left_in_a_dropped_runtime_are_dropped_once_and_spawn_nothing_more() {
    let runtime = runtime();
    let (ran, dropped) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let (handle, ran, dropped) = (runtime.handle(), ran.clone(), dropped.clone());
            runtime.spawn(async move {
                let _spawning = spawns_in_its_drop(&handle, &ran);
                let _counting = OnDrop(|| dropped.set(dropped.get() + 1));
                std::future::pending::<()>().await;
            })
        })
        .collect();
    runtime.block_on(gpu_async_reactor::yield_now()).unwrap();
    drop(runtime);
    assert_eq!((dropped.get(), ran.get()), (3, 0));
    for task in tasks {
        let error = gpu_async_reactor::run_inline(task).unwrap().unwrap_err();
        assert_eq!(error.code(), ErrorCode::Aborted);
    }
}
