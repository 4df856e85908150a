//! The futures crate: `LocalPool`, and `FuturesUnordered` under `block_on`.

use super::workload::{Countdown, Kind, Subject, yielding};
use crate::measure::cpu_time;
use futures_executor::LocalPool;
use futures_util::stream::{FuturesUnordered, StreamExt};
use futures_util::task::LocalSpawnExt;
use std::time::Duration;

#[derive(Default)]
pub struct Pool {
    pool: LocalPool,
}

impl Subject for Pool {
    fn name(&self) -> &str {
        "futures LocalPool"
    }

    fn kind(&self) -> Kind {
        Kind::Peer
    }

    fn run(&mut self, tasks: usize, yields: usize) -> Duration {
        let done = Countdown::new(tasks);
        let spawner = self.pool.spawner();
        for _ in 0..tasks {
            spawner.spawn_local(yielding(yields, done.clone())).expect("the pool is there");
        }
        cpu_time(|| self.pool.run())
    }
}

/// A set of tasks of one type.
pub struct Unordered;

impl Subject for Unordered {
    fn name(&self) -> &str {
        "FuturesUnordered"
    }

    fn kind(&self) -> Kind {
        Kind::Peer
    }

    fn run(&mut self, tasks: usize, yields: usize) -> Duration {
        let done = Countdown::new(tasks);
        let mut set: FuturesUnordered<_> =
            (0..tasks).map(|_| yielding(yields, done.clone())).collect();
        cpu_time(|| futures_executor::block_on(async { while set.next().await.is_some() {} }))
    }
}
