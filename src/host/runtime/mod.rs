//! The runtime: one object that gives a program all of it from two strings.
//!
//! A [`Runtime`] is built from the text of a wait plan (or of bands) and the name of an executor. It
//! probes the host, resolves both once, keeps the warnings, and owns clock, idle, reactor, doorbell,
//! executor and points. Nothing later chooses.
//!
//! ```text
//! texts --parse--> plans --probe, resolve--> running plans, warnings      builder.rs
//! wait(point): estimator -> sleep -> core's wait -> outcome -> estimator  handle.rs
//!                                               \-> statistics            stats.rs
//! ```
//!
//! The [`Runtime`] owns the tasks and runs them; a [`Handle`], of which every task may have a clone,
//! waits, spawns and makes ports. A handle does not own tasks, so that tasks that hold one are no
//! cycle.

mod builder;
mod events;
mod handle;
mod idle;
mod inside;
mod pending;
mod port;
mod spawned;
mod stats;

pub use builder::RuntimeBuilder;
pub use handle::Handle;
pub use idle::executor_caps;
pub use pending::RuntimeHealth;
pub use port::RuntimePort;
pub use spawned::Spawned;
pub use stats::{PointStats, RuntimeStats};

use crate::core::error::{Error, ErrorCode, Result};
use crate::core::executor::Executor;
use crate::core::time::DurNs;
use core::cell::RefCell;
use core::fmt;
use core::ops::Deref;
use handle::Task;
use idle::RuntimeIdle;

/// The shortest park bound that a runtime uses; see [`RuntimeBuilder::park_bound`]. With none at all
/// a runtime that waits would only read the clock and its words, at the whole of a core.
const SHORTEST_PARK_BOUND: DurNs = DurNs::from_us(20);

/// Runs one thread's tasks and their waits for devices.
///
/// # Park bound
///
/// A [`park_bound`](RuntimeBuilder::park_bound) below 20 us counts as 20 us: a shorter sleep costs
/// the kernel more time than it lasts.
///
/// ```
/// use gpu_async_reactor::backend::software::SoftwareDevice;
/// use gpu_async_reactor::host::Runtime;
/// use gpu_async_reactor::DurNs;
///
/// let runtime = Runtime::new("spin:backstop_us=1000", "gpu-reactor")?;
/// let device = SoftwareDevice::new()?;
/// let stream = device.stream_on(runtime.doorbell())?;
/// let handle = runtime.handle();
/// let waited = runtime.block_on(async move {
///     stream.delay(DurNs::from_us(300))?;
///     let mut port = handle.port(&stream);
///     handle.wait("decode", &mut port).await
/// })??;
/// println!("{:?}, {}", waited.end, runtime.stats().points[0]);
/// # Ok::<(), gpu_async_reactor::Error>(())
/// ```
pub struct Runtime {
    handle: Handle,
    /// Borrowed while the runtime runs.
    running: RefCell<Running>,
    park_bound: DurNs,
}

struct Running {
    executor: Executor<Task>,
    idle: RuntimeIdle,
}

impl Runtime {
    /// A runtime of `plan`, the text of a wait plan or of bands, and `executor`, the name of one; what
    /// the host lacks falls back, with a warning in [`Handle::warnings`].
    ///
    /// # Errors
    ///
    /// [`InvalidPlan`](ErrorCode::InvalidPlan) and [`InvalidExecutor`](ErrorCode::InvalidExecutor).
    pub fn new(plan: &str, executor: &str) -> Result<Self> {
        Runtime::builder(plan, executor).build()
    }

    /// Sets a runtime up.
    #[must_use]
    pub fn builder(plan: &str, executor: &str) -> RuntimeBuilder {
        RuntimeBuilder::new(plan, executor)
    }

    /// A handle for tasks.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs until `main` has finished, and the spawned tasks meanwhile. Those that have not finished
    /// stay for the next call.
    ///
    /// # Errors
    ///
    /// [`Stalled`](ErrorCode::Stalled), and [`RunningAlready`](ErrorCode::RunningAlready) from within
    /// a task of this runtime.
    ///
    /// # Panics
    ///
    /// Where `main` or a task panics; the runtime can be used again.
    pub fn block_on<M: Future>(&self, main: M) -> Result<M::Output> {
        let mut running = self.try_run()?;
        let Running { executor, idle } = &mut *running;
        let _inside = self.handle.enter();
        let (reactor, stats) = (self.handle.reactor(), self.handle.run_stats());
        executor.run_until_counting(reactor, idle, self.park_bound(), main, stats)
    }

    /// Runs until no task is left.
    ///
    /// # Errors
    ///
    /// As [`block_on`](Self::block_on).
    ///
    /// # Panics
    ///
    /// Where a task panics; the runtime can be used again.
    pub fn run(&self) -> Result<()> {
        let mut running = self.try_run()?;
        let Running { executor, idle } = &mut *running;
        let _inside = self.handle.enter();
        let (reactor, stats) = (self.handle.reactor(), self.handle.run_stats());
        executor.run_counting(reactor, idle, self.park_bound(), stats)
    }

    fn park_bound(&self) -> DurNs {
        self.park_bound.max(SHORTEST_PARK_BOUND)
    }

    fn try_run(&self) -> Result<core::cell::RefMut<'_, Running>> {
        self.running.try_borrow_mut().map_err(|_| Error::plain(ErrorCode::RunningAlready))
    }
}

impl Deref for Runtime {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("handle", &self.handle).finish_non_exhaustive()
    }
}
