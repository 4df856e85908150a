//! async-executor's `LocalExecutor`.

use super::workload::{Countdown, Kind, Subject, yielding};
use crate::measure::Stopwatch;
use async_executor::LocalExecutor;
use std::time::Duration;

#[derive(Default)]
pub struct Smol {
    executor: LocalExecutor<'static>,
}

impl Subject for Smol {
    fn name(&self) -> &str {
        "async-executor LocalExecutor"
    }

    fn kind(&self) -> Kind {
        Kind::Peer
    }

    fn run(&mut self, tasks: usize, yields: usize) -> Duration {
        let done = Countdown::new(tasks);
        for _ in 0..tasks {
            self.executor.spawn(yielding(yields, done.clone())).detach();
        }
        let start = Stopwatch::start();
        futures_executor::block_on(self.executor.run(done.wait()));
        start.elapsed()
    }
}
