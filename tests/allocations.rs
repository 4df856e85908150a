//! What the executor and the reactor allocate: two blocks a task, and nothing after that.

mod manual;

use gpu_async_reactor::{
    CompletionLine, DurNs, Executor, ManualClock, MemoryDescriptor, MonoNs, Reactor, Slot,
    yield_now,
};
use manual::TraceIdle;

const TASKS: u64 = 1_000;

/// Yields, waits for a word with a deadline until another task stores it, and waits for time.
async fn work<'l>(reactor: &Reactor<'l, &'l ManualClock>, line: &'l CompletionLine, number: u64) {
    for round in 0..10 {
        yield_now().await;
        let descriptor = MemoryDescriptor::new(line, Slot::ALL[round % 8], number);
        reactor.ready(descriptor, Some(MonoNs(number * 10))).await;
        reactor.alarm(MonoNs(number * 20)).await;
    }
}

#[test]
fn two_allocations_a_task_none_in_a_finished_ones_place_and_none_for_polls_wakes_and_waits() {
    let clock = ManualClock::new();
    let line = CompletionLine::default();
    let reactor = Reactor::new(&clock);
    let mut idle = TraceIdle::new(&clock);
    idle.trace.reserve(1_000_000);
    idle.forbid_endless = false;
    let mut executor = Executor::new();
    // The tables grow by doubling: some allocations altogether, not some for each task.
    const GROWTH: u64 = 150;

    let fresh = allocation_counter::measure(|| {
        for number in 1..=TASKS {
            drop(executor.spawn(work(&reactor, &line, number)));
        }
        executor.run(&reactor, &mut idle, DurNs::from_us(50)).unwrap();
    });
    assert!(fresh.count_total >= 2 * TASKS, "the counter counts");
    assert!(fresh.count_total <= 2 * TASKS + GROWTH, "{} for new tasks", fresh.count_total);

    let reused = allocation_counter::measure(|| {
        for number in 1..=TASKS {
            drop(executor.spawn(work(&reactor, &line, 3_000 + number)));
        }
        let stats = executor.run(&reactor, &mut idle, DurNs::from_us(50)).unwrap();
        assert!(stats.polls > 10 * TASKS && stats.parked + stats.slept > 0, "{stats:?}");
    });
    assert_eq!(reused.count_total, 0, "for tasks in finished ones' places, their polls and waits");
}
