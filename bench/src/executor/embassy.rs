//! embassy-executor, polled by hand: its tasks stand in memory that is never freed.
//!
//! The program's own pender does nothing, which is the fastest that this executor can be run: a loop
//! polls it until every task has finished.

use super::workload::{Countdown, Kind, Subject, yielding};
use crate::measure::cpu_time;
use embassy_executor::raw::{Executor, TaskStorage};
use std::time::Duration;

/// What the executor calls when work comes in.
// SAFETY: embassy-executor asks its user for exactly one function of this name and signature, and
// nothing else in this program defines it (no platform feature is enabled).
#[unsafe(export_name = "__pender")]
fn pender(_context: *mut ()) {}

pub fn boxed() -> Box<dyn Subject> {
    let executor = Box::leak(Box::new(Executor::new(std::ptr::null_mut())));
    Box::new(Embassy { executor, storage: Vec::new(), make: yielding })
}

struct Embassy<F: Future<Output = ()> + 'static, M> {
    executor: &'static Executor,
    storage: Vec<&'static TaskStorage<F>>,
    make: M,
}

impl<F, M> Subject for Embassy<F, M>
where
    F: Future<Output = ()> + 'static,
    M: Fn(usize, Countdown) -> F,
{
    fn name(&self) -> &str {
        "embassy-executor (raw)"
    }

    fn kind(&self) -> Kind {
        Kind::Peer
    }

    fn run(&mut self, tasks: usize, yields: usize) -> Duration {
        let done = Countdown::new(tasks);
        let spawner = self.executor.spawner();
        while self.storage.len() < tasks {
            self.storage.push(Box::leak(Box::new(TaskStorage::new())));
        }
        for storage in &self.storage[..tasks] {
            let token = storage.spawn(|| (self.make)(yields, done.clone()));
            spawner.spawn(token.expect("every task of the last run has finished"));
        }
        cpu_time(|| {
            while !done.is_done() {
                // SAFETY: not reentrant: tasks here do not call it, and the pender does nothing.
                // The executor was made on the only thread that uses it.
                unsafe { self.executor.poll() };
            }
        })
    }
}
