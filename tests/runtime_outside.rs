//! A wait of a runtime's handle that is polled where that runtime does not run is an error at once.
//! Nothing there would wake it: without the check most of these tests hang.
#![cfg(not(loom))]

mod common;

use common::{Watchdog, device};
use gpu_async_reactor::backend::software::{Hang, SoftwareStream, Work};
use gpu_async_reactor::host::{Handle, Runtime};
use gpu_async_reactor::{
    Clock, CompletionPort, DurNs, Error, ErrorCode, MonoNs, WaitError, Waited, run_inline,
    yield_now,
};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The last falls back where the kernel or the build has no ring.
const EXECUTORS: [&str; 2] = ["gpu-reactor", "io-uring"];
/// Each suspends in another way: in a yield, in a registration, and in a predicted sleep. Where the
/// host cannot park in hardware, `flag` runs as `poll`; a port's own park registers everywhere.
const PLANS: [&str; 4] = [
    "poll",
    "spin:backstop_us=1000",
    "flag:park_us=100,backstop_us=1000",
    "flag:park_us=100,backstop_us=1000+predict:margin_us=80,min_sleep_us=50,max_sleep_us=50000,window=4",
];

/// A runtime, its handle, and a stream of it whose work hangs.
struct Hung {
    runtime: Option<Runtime>,
    handle: Handle,
    stream: SoftwareStream,
    hang: Hang,
}

impl Hung {
    fn new(plan: &str, executor: &str) -> Self {
        let runtime = Runtime::new(plan, executor).unwrap();
        let stream = device().stream_on(runtime.doorbell()).unwrap();
        // Waits of some time first, so that a plan that predicts has a prediction.
        runtime
            .block_on(async {
                let mut port = runtime.port(&stream);
                for _ in 0..2 {
                    stream.delay(DurNs::from_ms(2)).unwrap();
                    runtime.wait("step", &mut port).await.unwrap();
                }
            })
            .unwrap();
        let hang = Hang::new();
        stream.queue(Work::new().hang(&hang)).unwrap();
        Hung { handle: runtime.handle(), runtime: Some(runtime), stream, hang }
    }

    /// Everything that a handle can wait by, polled where the runtime does not run.
    async fn assert_refused(&self) {
        let mut port = self.handle.port(&self.stream);
        let errors = self.handle.stats().points[0].errors;
        assert_outside(&self.handle.wait("step", &mut port).await.unwrap_err());
        let deadline = self.handle.clock().monotonic_ns().after(DurNs::from_ms(100));
        assert_refused(self.handle.wait_until("step", &mut port, deadline).await);
        assert_eq!(self.handle.stats().points[0].errors, errors + 2, "both are counted");
        assert_outside(&self.handle.sleep_until(MonoNs::MAX).await.unwrap_err());
        let number = port.mark().unwrap();
        assert_outside(&port.at(number).park(DurNs::MAX).await.unwrap_err());
        assert_eq!(self.handle.reactor().pending(), (0, 0), "nothing is left registered");
        assert_eq!(self.handle.stats().pending, 0);
    }

    /// And where it does run, all is well.
    fn assert_usable(self) {
        let runtime = self.runtime.expect("a test that dropped it does not ask");
        self.hang.release();
        let ended = runtime.block_on(runtime.wait("step", &mut runtime.port(&self.stream)));
        ended.unwrap().unwrap();
    }
}

fn assert_outside(error: &Error) {
    assert_eq!(error.code(), ErrorCode::OutsideRuntime, "{error}");
    let text = error.to_string();
    assert!(text.contains("block_on") && text.contains("Watcher"), "it says what to do: {text}");
}

fn assert_refused(ended: Result<Waited, WaitError<Error>>) {
    match ended {
        Err(WaitError::Refused(error)) => assert_outside(&error),
        other => panic!("not refused: {other:?}"),
    }
}

fn for_each_setting(test: impl Fn(Hung)) {
    for executor in EXECUTORS {
        for plan in PLANS {
            test(Hung::new(plan, executor));
        }
    }
}

#[test]
fn f31_in_another_runtime() {
    let _watchdog = Watchdog::new("in another runtime");
    for_each_setting(|hung| {
        let other = Runtime::new("poll", "gpu-reactor").unwrap();
        other.block_on(hung.assert_refused()).unwrap();
        hung.assert_usable();
    });
}

#[test]
fn f31_in_another_runtime_after_its_own_is_gone() {
    let _watchdog = Watchdog::new("after its own is gone");
    for_each_setting(|mut hung| {
        drop(hung.runtime.take());
        let other = Runtime::new("poll", "gpu-reactor").unwrap();
        other.block_on(hung.assert_refused()).unwrap();
        hung.hang.release();
    });
}

#[test]
fn f31_in_a_runtime_nested_in_its_own_and_afterwards_in_its_own_again() {
    let _watchdog = Watchdog::new("nested runtimes");
    for_each_setting(|hung| {
        let other = Runtime::new("poll", "gpu-reactor").unwrap();
        let stream = device().stream_on(hung.handle.doorbell()).unwrap();
        let own = hung.runtime.as_ref().unwrap();
        let waited = own.block_on(async {
            other.block_on(hung.assert_refused()).unwrap();
            // The other's own waits are fine there.
            let inner = device().stream_on(other.doorbell()).unwrap();
            inner.delay(DurNs::from_us(200)).unwrap();
            let nested = other.block_on(other.wait("inner", &mut other.port(&inner)));
            nested.unwrap().unwrap();
            // Neither the end of the nested run nor a panic in it leaves the wrong one in place.
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                other.block_on(async { std::panic::resume_unwind(Box::new("inside")) })
            }));
            assert!(panicked.is_err());
            stream.delay(DurNs::from_us(200)).unwrap();
            own.wait("outer", &mut own.port(&stream)).await
        });
        waited.unwrap().unwrap();
        hung.assert_usable();
    });
}

#[test]
fn f31_after_a_panic_went_through_its_own_run() {
    let _watchdog = Watchdog::new("after a panic");
    for_each_setting(|hung| {
        let own = hung.runtime.as_ref().unwrap();
        own.spawn(async { std::panic::resume_unwind(Box::new("a task panics")) });
        let panicked = catch_unwind(AssertUnwindSafe(|| own.run()));
        assert!(panicked.is_err());
        run_inline(hung.assert_refused()).unwrap();
        hung.assert_usable();
    });
}

#[test]
fn f31_in_tokio() {
    let _watchdog = Watchdog::new("in tokio");
    let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for_each_setting(|hung| {
        tokio.block_on(hung.assert_refused());
        let hung = Rc::new(hung);
        let of_task = hung.clone();
        let local = tokio::task::LocalSet::new();
        let task = local.spawn_local(async move { of_task.assert_refused().await });
        tokio.block_on(local.run_until(task)).unwrap();
        Rc::into_inner(hung).expect("the task is over").assert_usable();
    });
}

#[test]
fn f31_a_wait_that_was_suspended_inside_is_refused_when_it_is_polled_elsewhere_later() {
    let _watchdog = Watchdog::new("suspended inside");
    for_each_setting(|hung| {
        let (own, handle) = (hung.runtime.as_ref().unwrap(), &hung.handle);
        let other = Runtime::new("poll", "gpu-reactor").unwrap();
        let (mut port, mut port_until) = (handle.port(&hung.stream), handle.port(&hung.stream));
        let deadline = handle.clock().monotonic_ns().after(DurNs::from_ms(60_000));
        let mut waiting = pin!(handle.wait("step", &mut port));
        let mut waiting_until = pin!(handle.wait_until("step", &mut port_until, deadline));
        let mut sleeping = pin!(handle.sleep_until(deadline));
        // Polled once each inside, by a main that then gives them up.
        own.block_on(poll_fn(|_| {
            let mut cx = Context::from_waker(Waker::noop());
            assert!(waiting.as_mut().poll(&mut cx).is_pending());
            assert!(waiting_until.as_mut().poll(&mut cx).is_pending());
            assert!(sleeping.as_mut().poll(&mut cx).is_pending());
            Poll::Ready(())
        }))
        .unwrap();
        assert_eq!(handle.stats().pending, 2);
        other
            .block_on(async {
                assert_outside(&waiting.as_mut().await.unwrap_err());
                assert_refused(waiting_until.as_mut().await);
                assert_outside(&sleeping.as_mut().await.unwrap_err());
            })
            .unwrap();
        assert_eq!(handle.stats().pending, 0);
        assert_eq!(handle.reactor().pending(), (0, 0), "an end unregisters");
        // Futures of `handle` are over; the runtime is usable.
        hung.hang.release();
        own.block_on(own.wait("step", &mut own.port(&hung.stream))).unwrap().unwrap();
    });
}

#[test]
fn f31_the_handle_of_a_task_is_refused_outside_until_the_task_has_finished() {
    let _watchdog = Watchdog::new("the handle of a task");
    let own = Runtime::new("poll", "gpu-reactor").unwrap();
    let other = Runtime::new("poll", "gpu-reactor").unwrap();
    let mut task = own.spawn(async {
        yield_now().await;
        7
    });
    assert_outside(&other.block_on(&mut task).unwrap().unwrap_err());
    own.block_on(async {
        other.block_on(async { assert_outside(&(&mut task).await.unwrap_err()) })
    })
    .unwrap()
    .unwrap();
    own.run().unwrap();
    assert_eq!(other.block_on(&mut task).unwrap().unwrap(), 7);
}

#[test]
fn with_the_naive_executor_waits_work_anywhere_as_they_keep_the_thread() {
    let _watchdog = Watchdog::new("naive, anywhere");
    for plan in PLANS {
        let own = Runtime::new(plan, "naive").unwrap();
        let other = Runtime::new("poll", "gpu-reactor").unwrap();
        let stream = device().stream().unwrap();
        let waiting = async {
            let mut port = own.port(&stream);
            stream.delay(DurNs::from_us(500)).unwrap();
            own.wait("step", &mut port).await.unwrap();
            let at = own.clock().monotonic_ns().after(DurNs::from_us(100));
            own.sleep_until(at).await.unwrap();
            own.clock().monotonic_ns() >= at
        };
        assert!(other.block_on(waiting).unwrap(), "{plan}");
        stream.delay(DurNs::from_us(500)).unwrap();
        run_inline(own.wait("step", &mut own.port(&stream))).unwrap().unwrap();
        assert_eq!(own.stats().points[0].errors, 0);
    }
}

/// A program's own port, whose error is its own type too.
struct OwnPort(u32);

#[derive(Debug, PartialEq)]
enum OwnError {
    Device(&'static str),
    Crate(ErrorCode),
}

impl From<Error> for OwnError {
    fn from(error: Error) -> Self {
        OwnError::Crate(error.code())
    }
}

impl CompletionPort for OwnPort {
    type Error = OwnError;

    fn query(&mut self) -> Result<bool, OwnError> {
        self.0 = self.0.checked_sub(1).ok_or(OwnError::Device("asked once too often"))?;
        Ok(self.0 == 0)
    }
    async fn block(&mut self) -> Result<(), OwnError> {
        self.poll().await
    }
    async fn poll(&mut self) -> Result<(), OwnError> {
        while !self.query()? {
            yield_now().await;
        }
        Ok(())
    }
    fn arm(&mut self) -> Result<(), OwnError> {
        Ok(())
    }
    async fn park(&mut self, _: DurNs) -> Result<bool, OwnError> {
        yield_now().await;
        Ok(false)
    }
}

#[test]
fn a_port_with_an_error_type_of_its_own_gets_both_kinds_of_error_in_one_result() {
    let runtime = Runtime::new("poll", "gpu-reactor").unwrap();
    let mut port = OwnPort(3);
    let outside = run_inline(runtime.wait("own", &mut port)).unwrap();
    assert_eq!(outside.unwrap_err(), OwnError::Crate(ErrorCode::OutsideRuntime));
    assert_eq!(port.0, 3, "a refused wait asks nothing of the port");
    runtime.block_on(runtime.wait("own", &mut port)).unwrap().unwrap();
    let device = runtime.block_on(runtime.wait("own", &mut port)).unwrap();
    assert_eq!(device.unwrap_err(), OwnError::Device("asked once too often"));
}
