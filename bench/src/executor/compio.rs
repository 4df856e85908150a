//! compio: its runtime, which polls its I/O driver every 61 switches, and its executor alone.

use super::workload::{Countdown, Kind, Subject, yielding};
use crate::measure::{Stopwatch, cpu_time};
use std::time::Duration;

pub struct Runtime {
    runtime: compio_runtime::Runtime,
}

impl Runtime {
    /// None where the system refuses what its driver needs.
    pub fn boxed() -> Option<Box<dyn Subject>> {
        let runtime = compio_runtime::Runtime::new().ok()?;
        Some(Box::new(Runtime { runtime }))
    }
}

impl Subject for Runtime {
    fn name(&self) -> &str {
        "compio-runtime"
    }

    fn kind(&self) -> Kind {
        Kind::Peer
    }

    fn run(&mut self, tasks: usize, yields: usize) -> Duration {
        let done = Countdown::new(tasks);
        self.runtime.enter(|| {
            for _ in 0..tasks {
                self.runtime.spawn(yielding(yields, done.clone())).detach();
            }
        });
        let start = Stopwatch::start();
        self.runtime.block_on(done.wait());
        start.elapsed()
    }
}

#[derive(Default)]
pub struct Bare {
    executor: compio_executor::Executor,
}

impl Subject for Bare {
    fn name(&self) -> &str {
        "compio-executor (bare)"
    }

    fn kind(&self) -> Kind {
        Kind::Peer
    }

    fn run(&mut self, tasks: usize, yields: usize) -> Duration {
        let done = Countdown::new(tasks);
        for _ in 0..tasks {
            self.executor.spawn(yielding(yields, done.clone())).detach();
        }
        cpu_time(|| while self.executor.tick() {})
    }
}
