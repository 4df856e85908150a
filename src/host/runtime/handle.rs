//! What tasks have of their runtime: waits by name, spawning, ports, statistics.

use super::events;
use super::idle::RuntimeIdle;
use super::inside::{Inside, RuntimeId};
use super::pending::{PendingWait, PendingWaits, RuntimeHealth};
use super::port::{Kind, RuntimePort};
use super::spawned::Spawned;
use super::stats::{Points, RuntimeStats};
use crate::core::doorbell::Doorbell;
use crate::core::error::{Error, Result};
use crate::core::executor::{LiveStats, Spawner};
use crate::core::plan::{ResolvedBands, StepRows, WaitPlan};
use crate::core::port::{
    CompletionPort, DeviceStream, ReactorPort, ThreadPort, WaitError, Waited, wait, wait_until,
};
use crate::core::reactor::Reactor;
use crate::core::setting::{ExecutorKind, Setting};
use crate::core::time::{Clock, DurNs, MonoNs, Timer};
use crate::host::{StdClock, StdIdle};
use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::pin::Pin;

/// A task of a runtime, its type erased.
pub(super) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// A task's part of a [`Runtime`](super::Runtime). Clones are handles of the same runtime; all stay
/// on its thread.
///
/// # Where its waits can be awaited
///
/// In tasks of the runtime and in the main future of its [`block_on`](super::Runtime::block_on):
/// only while the runtime runs does anything wake them. Polled elsewhere (by another runtime, nested
/// or not, by tokio, by hand, or after the runtime is gone) [`wait`](Self::wait),
/// [`wait_until`](Self::wait_until), [`sleep_until`](Self::sleep_until) and the parks of a
/// [`RuntimePort`] end at once with [`OutsideRuntime`](crate::ErrorCode::OutsideRuntime). They check
/// that at each poll, so a wait that was suspended inside and is polled elsewhere later ends too. For
/// tasks of other runtimes there is [`Watcher`](crate::host::Watcher).
///
/// With the `naive` executor a wait keeps the thread and needs nobody to wake it: it works anywhere.
///
/// Not seen is a foreign executor that blocks the thread *within* a task of this runtime (a nested
/// `block_on` of tokio): the runtime counts as running, and yet takes no turn until that returns.
///
/// What a handle of a runtime that is gone spawns is dropped.
#[derive(Clone)]
pub struct Handle(Rc<Shared>);

struct Shared {
    reactor: Reactor<'static, StdClock>,
    doorbell: Doorbell,
    plans: ResolvedBands,
    executor: Setting<ExecutorKind>,
    rows: StepRows,
    points: RefCell<Points>,
    spawner: Spawner<Task>,
    /// Whose like the ports of the `naive` executor park by.
    thread_idle: StdIdle,
    run: LiveStats,
    pending: PendingWaits,
    #[allow(dead_code, reason = "read where there are rings")]
    ring: Ring,
}

impl Handle {
    pub(super) fn new(
        clock: StdClock,
        doorbell: Doorbell,
        plans: ResolvedBands,
        executor: Setting<ExecutorKind>,
        thread_idle: StdIdle,
        idle: &RuntimeIdle,
        spawner: Spawner<Task>,
    ) -> Self {
        Handle(Rc::new(Shared {
            ring: ring_of(idle),
            reactor: Reactor::with_doorbell(clock, &doorbell),
            doorbell,
            plans,
            executor,
            rows: StepRows::new(),
            points: RefCell::default(),
            spawner,
            thread_idle,
            run: LiveStats::default(),
            pending: PendingWaits::default(),
        }))
    }

    fn id(&self) -> RuntimeId {
        RuntimeId::of(Rc::as_ptr(&self.0))
    }

    /// The runtime runs on this thread until the guard is dropped.
    pub(super) fn enter(&self) -> Inside {
        self.id().enter()
    }

    /// What the executor counts into while it runs.
    pub(super) fn run_stats(&self) -> &LiveStats {
        &self.0.run
    }

    /// Spawns a task behind what is ready; it runs while the runtime does. Costs four allocations, two
    /// where a finished task left its place.
    pub fn spawn<F>(&self, future: F) -> Spawned<F::Output>
    where
        F: Future + 'static,
    {
        let output = Rc::new(Cell::new(None));
        let of_task = output.clone();
        let join = self.0.spawner.spawn(Box::pin(async move { of_task.set(Some(future.await)) }));
        Spawned { join, output, runtime: self.id() }
    }

    /// The doorbell that this runtime's thread parks on: make streams ring it.
    #[must_use]
    pub fn doorbell(&self) -> &Doorbell {
        &self.0.doorbell
    }

    /// The reactor. Its futures are the core's, which knows nothing of runtimes: `ready_owned` and
    /// `alarm` are not checked as the waits of the handle are. Polled where this runtime does not
    /// run, they are pending until it runs again.
    #[must_use]
    pub fn reactor(&self) -> &Reactor<'static, StdClock> {
        &self.0.reactor
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> StdClock {
        *self.0.reactor.clock()
    }

    /// The row count of the present step, by which bands are selected. An engine sets it once a step.
    #[must_use]
    pub fn rows(&self) -> &StepRows {
        &self.0.rows
    }

    /// The plans: as requested and as they run.
    #[must_use]
    pub fn plans(&self) -> &ResolvedBands {
        &self.0.plans
    }

    /// The executor: as requested and as it runs.
    #[must_use]
    pub fn executor(&self) -> &Setting<ExecutorKind> {
        &self.0.executor
    }

    /// What fell back when the runtime was built, the plans' first.
    pub fn warnings(&self) -> impl Iterator<Item = &Error> {
        self.0.plans.warnings.iter().chain(&self.0.executor.warning)
    }

    /// A port of everything queued on `stream`: on the reactor, or, with the `naive` executor, on the
    /// calling thread.
    pub fn port<S: DeviceStream>(&self, stream: S) -> RuntimePort<'_, S> {
        let kind = match self.0.executor.running {
            ExecutorKind::Naive => {
                Kind::Thread(ThreadPort::new(stream, self.0.thread_idle.another()))
            }
            ExecutorKind::GpuReactor | ExecutorKind::IoUring => {
                Kind::Reactor(ReactorPort::new(stream, &self.0.reactor))
            }
        };
        RuntimePort { kind, handle: self }
    }

    /// Waits at `point`, the caller's name for this call site: asks the estimator how long to sleep,
    /// waits by the plan of the present row count, and records the outcome.
    ///
    /// # Errors
    ///
    /// The port's error, at once and unchanged;
    /// [`OutsideRuntime`](crate::ErrorCode::OutsideRuntime) at the first poll outside the running
    /// runtime. A port with another error type than [`Error`] states how it becomes one of those.
    /// Each is counted at the point.
    pub async fn wait<P>(&self, point: &'static str, port: &mut P) -> Result<Waited, P::Error>
    where
        P: CompletionPort,
        P::Error: From<Error>,
    {
        let (plan, time) = (self.plan(), self.time());
        let (sleep, pending) = self.begin(point, &plan);
        let waiting = wait(&plan, sleep, port, &time);
        let ended = self.within("a wait", waiting).await.unwrap_or_else(|error| Err(error.into()));
        drop(pending);
        self.record(point, &plan, ended.as_ref().ok());
        ended
    }

    /// Waits at `point` like [`wait`](Self::wait), but not beyond `deadline`.
    ///
    /// # Errors
    ///
    /// As [`wait_until`](crate::wait_until()), and [`Refused`](WaitError::Refused) with
    /// [`OutsideRuntime`](crate::ErrorCode::OutsideRuntime) at the first poll outside the running
    /// runtime; each is counted at the point.
    pub async fn wait_until<P: CompletionPort>(
        &self,
        point: &'static str,
        port: &mut P,
        deadline: MonoNs,
    ) -> Result<Waited, WaitError<P::Error>> {
        let (plan, time) = (self.plan(), self.time());
        let (sleep, pending) = self.begin(point, &plan);
        let waiting = wait_until(&plan, sleep, port, &time, deadline);
        let ended = self.within("a wait", waiting).await;
        let ended = ended.unwrap_or_else(|error| Err(WaitError::Refused(error)));
        drop(pending);
        let waited = match &ended {
            Ok(waited) | Err(WaitError::TimedOut(waited)) => Some(waited),
            Err(WaitError::Port(_) | WaitError::Refused(_)) => None,
        };
        self.record(point, &plan, waited);
        ended
    }

    /// Sleeps until `at`, and lets other tasks run, except with the `naive` executor.
    ///
    /// # Errors
    ///
    /// [`OutsideRuntime`](crate::ErrorCode::OutsideRuntime) at the first poll outside the running
    /// runtime; never with the `naive` executor.
    pub async fn sleep_until(&self, at: MonoNs) -> Result<()> {
        let time = self.time();
        self.within("a sleep", time.sleep_until(at)).await
    }

    /// What was waited for, and how, since the runtime was built. It is live: a task may read it
    /// while the runtime runs, and neither an error nor a panic of a run loses what was counted.
    /// Costs a step for each pending wait and the quantiles of each point.
    ///
    /// Handles stay on the runtime's thread; for other threads there is [`health`](Self::health).
    #[must_use]
    pub fn stats(&self) -> RuntimeStats {
        let now = self.clock().monotonic_ns();
        let pending = self.0.pending.by_point();
        let points = self.0.points.borrow().snapshot(&pending, now);
        RuntimeStats {
            pending: pending.values().map(|at| at.count).sum(),
            oldest_pending: self.0.pending.oldest().map(|since| now.since(since)),
            plan: self.0.plans.label(),
            executor: self.0.executor.label(),
            warnings: self.warnings().map(alloc::string::ToString::to_string).collect(),
            run: self.0.run.get(),
            points,
        }
    }

    /// What a health check on any thread reads: the number of pending waits and the age of the
    /// oldest one, also while this thread is stuck in a driver call.
    #[must_use]
    pub fn health(&self) -> RuntimeHealth {
        self.0.pending.health(self.clock())
    }

    /// A wait at `point` begins: its predicted sleep, and its place among the pending waits.
    fn begin(&self, point: &'static str, plan: &WaitPlan) -> (Option<DurNs>, PendingWait<'_>) {
        let sleep = self.0.points.borrow_mut().begin(point, plan);
        (sleep, self.0.pending.begin(point, self.clock().monotonic_ns()))
    }

    /// Awaits `future`, `what` by name; outside the running runtime it is an error, except with the
    /// `naive` executor, whose futures need no turn of a reactor.
    pub(super) async fn within<F: Future>(&self, what: &str, future: F) -> Result<F::Output> {
        match self.0.executor.running {
            ExecutorKind::Naive => Ok(future.await),
            ExecutorKind::GpuReactor | ExecutorKind::IoUring => {
                self.id().within(what, future).await
            }
        }
    }

    fn plan(&self) -> WaitPlan {
        *self.0.plans.select(self.0.rows.get())
    }

    fn time(&self) -> Time<'_> {
        match self.0.executor.running {
            ExecutorKind::Naive => Time::Thread(self.clock()),
            ExecutorKind::GpuReactor | ExecutorKind::IoUring => Time::Reactor(&self.0.reactor),
        }
    }

    fn record(&self, point: &'static str, plan: &WaitPlan, waited: Option<&Waited>) {
        events::wait_ended(point, waited);
        self.0.points.borrow_mut().record(point, plan, waited);
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("plan", &self.0.plans.label())
            .field("executor", &self.0.executor.label())
            .finish_non_exhaustive()
    }
}

/// The time that waits sleep by.
enum Time<'h> {
    Thread(StdClock),
    Reactor(&'h Reactor<'static, StdClock>),
}

impl Clock for Time<'_> {
    fn monotonic_ns(&self) -> MonoNs {
        match self {
            Time::Thread(clock) => clock.monotonic_ns(),
            Time::Reactor(reactor) => reactor.monotonic_ns(),
        }
    }
}

impl Timer for Time<'_> {
    async fn sleep_until(&self, at: MonoNs) {
        match self {
            Time::Thread(clock) => clock.sleep_until(at).await,
            Time::Reactor(reactor) => reactor.sleep_until(at).await,
        }
    }
}

where_io_uring! {
    type Ring = Option<crate::host::UringHandle>;

    fn ring_of(idle: &RuntimeIdle) -> Ring {
        idle.ring_handle()
    }

    impl Handle {
        /// What starts I/O on the ring that the thread idles in; none unless the `io-uring` executor
        /// runs.
        #[must_use]
        pub fn uring(&self) -> Option<&crate::host::UringHandle> {
            self.0.ring.as_ref()
        }
    }
}

where_no_io_uring! {
    type Ring = ();

    fn ring_of(_: &RuntimeIdle) -> Ring {}
}
