//! A fixed number of operations and nothing else, for `scripts/count-instructions`. The clock is a
//! manual one, so that what is counted is this crate's and not the system's.

use crate::host;
use clap::ValueEnum;
use gpu_async_reactor::{
    CompletionLine, Doorbell, DurNs, Executor, ManualClock, MemoryDescriptor, Reactor, Slot,
    yield_now,
};
use std::pin::Pin;
use std::task::{Context, Waker};

#[derive(Clone, Copy, ValueEnum)]
pub enum Operation {
    /// One poll of a task to the next, among 64.
    Switch,
    /// Register a descriptor, store its number, fire, resolve: in batches of 64.
    Register,
    /// A look without a doorbell at 64 words of which none was reached.
    Fire,
    /// The same with a doorbell that was not rung.
    FireDoorbell,
}

pub fn run(operation: Operation, times: u64) {
    match operation {
        Operation::Switch => switch(times),
        Operation::Register => register(times),
        Operation::Fire => idle_fire(&Reactor::new(ManualClock::new()), times),
        Operation::FireDoorbell => {
            let doorbell = Doorbell::new();
            idle_fire(&Reactor::with_doorbell(ManualClock::new(), &doorbell), times);
        }
    }
}

const BATCH: usize = 64;

fn switch(times: u64) {
    let reactor = Reactor::new(ManualClock::new());
    let mut executor = Executor::new();
    for _ in 0..BATCH {
        let yields = times / BATCH as u64;
        drop(executor.spawn(async move {
            for _ in 0..yields {
                yield_now().await;
            }
        }));
    }
    let mut idle = host::idle();
    executor.run(&reactor, &mut idle, DurNs::from_ms(1)).expect("yielding tasks do not stall");
}

fn descriptors(
    lines: &[CompletionLine],
    target: u64,
) -> impl Iterator<Item = MemoryDescriptor<'_>> {
    lines
        .iter()
        .flat_map(move |line| Slot::ALL.map(|slot| MemoryDescriptor::new(line, slot, target)))
}

fn register(times: u64) {
    let lines: [CompletionLine; BATCH / 8] = Default::default();
    let reactor = Reactor::new(ManualClock::new());
    let mut context = Context::from_waker(Waker::noop());
    let mut waits = Vec::with_capacity(BATCH);
    for target in 1..=times / BATCH as u64 {
        waits.extend(descriptors(&lines, target).map(|wait| reactor.ready(wait, None)));
        for wait in &mut waits {
            assert!(Pin::new(wait).poll(&mut context).is_pending());
        }
        for line in &lines {
            Slot::ALL.iter().for_each(|&slot| line.store(slot, target));
        }
        reactor.fire();
        for wait in &mut waits {
            assert!(Pin::new(wait).poll(&mut context).is_ready());
        }
        waits.clear();
    }
}

fn idle_fire(reactor: &Reactor<'static, ManualClock>, times: u64) {
    let lines: &'static [CompletionLine] =
        Box::leak(Box::new(<[CompletionLine; BATCH / 8]>::default()));
    let mut context = Context::from_waker(Waker::noop());
    let mut waits: Vec<_> = descriptors(lines, 1).map(|wait| reactor.ready(wait, None)).collect();
    for wait in &mut waits {
        assert!(Pin::new(wait).poll(&mut context).is_pending());
    }
    // The first look covers what the doorbell showed before.
    reactor.fire();
    for _ in 0..times {
        assert!(!reactor.fire());
    }
}
