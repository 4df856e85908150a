//! tokio's current-thread runtime: its own tasks, and a `LocalSet`'s.

use super::workload::{Countdown, Kind, Subject, yielding};
use crate::measure::Stopwatch;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

pub struct Tokio {
    runtime: Runtime,
    local: Option<LocalSet>,
}

impl Tokio {
    pub fn boxed(local: bool) -> Box<dyn Subject> {
        let runtime = Builder::new_current_thread().build().expect("a runtime without drivers");
        Box::new(Tokio { runtime, local: local.then(LocalSet::new) })
    }
}

impl Subject for Tokio {
    fn name(&self) -> &str {
        if self.local.is_some() { "tokio LocalSet" } else { "tokio current_thread" }
    }

    fn kind(&self) -> Kind {
        Kind::Peer
    }

    fn run(&mut self, tasks: usize, yields: usize) -> Duration {
        let done = Countdown::new(tasks);
        match &self.local {
            Some(local) => {
                for _ in 0..tasks {
                    drop(local.spawn_local(yielding(yields, done.clone())));
                }
                let start = Stopwatch::start();
                self.runtime.block_on(local.run_until(done.wait()));
                start.elapsed()
            }
            None => {
                for _ in 0..tasks {
                    drop(self.runtime.spawn(yielding(yields, done.clone())));
                }
                let start = Stopwatch::start();
                self.runtime.block_on(done.wait());
                start.elapsed()
            }
        }
    }
}
