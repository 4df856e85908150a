//! Two threads that store and park in turn, many times: no store is lost, and no park that had one
//! lasts to its bound.
//!
//! The full numbers run in release builds (`cargo test --release --test stress`), a hundredth in others.
//! One test, so that the two threads have the two cores of a small machine.

use gpu_async_reactor::host::{ParkPolicy, StdClock, StdIdle};
use gpu_async_reactor::{Clock, CompletionLine, DurNs, Idle, Slot, reached};
use std::sync::Arc;

/// Longer than a store may take on a machine whose cores are taken; a lost one lasts as long.
const BOUND: DurNs = DurNs::from_ms(5_000);

/// What ends a park.
#[derive(Clone, Copy, PartialEq)]
enum By {
    /// The store, which the parked thread looks for.
    Looking,
    /// The other thread's unparker, in the kernel.
    Unparker,
}

/// `cycles` stores each way, each awaited by a park. Says what the longest park took.
fn cycle(name: &str, cycles: u64, policy: ParkPolicy, by: By) {
    let clock = StdClock::new();
    let lines: Arc<[CompletionLine; 2]> = Arc::default();
    let slot = Slot::ALL[3];
    let began = clock.monotonic_ns();
    let (to_first, to_second) = (StdIdle::with(clock, policy), StdIdle::with(clock, policy));
    let wakers = [to_first.unparker().unwrap(), to_second.unparker().unwrap()];
    let threads = [(0, to_first, wakers[1].clone()), (1, to_second, wakers[0].clone())].map(
        |(own, mut idle, other)| {
            let lines = lines.clone();
            std::thread::spawn(move || {
                let mut longest = DurNs::ZERO;
                for number in 1..=cycles {
                    if own == 0 {
                        lines[1].store(slot, number);
                        if by == By::Unparker {
                            other.wake_by_ref();
                        }
                    }
                    let timed = number % 1_000 == 0 || by == By::Unparker;
                    let start = timed.then(|| clock.monotonic_ns());
                    // A park may end early: by a notification that was meant for the one before.
                    let end = start.map(|start| start.after(BOUND));
                    while !idle.park_line(&lines[own], |line| reached(line, slot, number), BOUND) {
                        let late = end.is_some_and(|end| clock.monotonic_ns() >= end);
                        assert!(!late, "store {number} was lost");
                        assert!(
                            by == By::Unparker,
                            "a park lasted to its bound: {number} was lost"
                        );
                    }
                    longest =
                        longest.max(start.map_or(longest, |at| clock.monotonic_ns().since(at)));
                    if own == 1 {
                        lines[0].store(slot, number);
                        if by == By::Unparker {
                            other.wake_by_ref();
                        }
                    }
                }
                longest
            })
        },
    );
    let longest = threads.map(|thread| thread.join().unwrap()).into_iter().max().unwrap();
    let took = clock.monotonic_ns().since(began);
    println!(
        "{name}: {cycles} cycles in {took}, {} each, the longest park seen {longest}",
        DurNs(took.0 / cycles)
    );
    assert!(longest < BOUND);
}

#[test]
fn no_store_is_lost_in_millions_of_parks() {
    let scale = if cfg!(debug_assertions) { 100 } else { 1 };
    cycle("spinning parks", 10_000_000 / scale, ParkPolicy::SPIN, By::Looking);
    // Asleep at once, for as long as the bound: only the unparker's system call ends it.
    let in_kernel = ParkPolicy {
        spin: DurNs::ZERO,
        yielding: DurNs::ZERO,
        min_slice: BOUND,
        max_slice: BOUND,
        share_permille: 0,
    };
    cycle("parks in the kernel", 100_000 / scale, in_kernel, By::Unparker);
}
