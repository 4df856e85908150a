//! Figures of the ring beside the other ways to sleep and to be woken:
//! `cargo test --release --features io-uring --test uring_figures -- --nocapture`.
//! They are asserted only at their best, since other programs run beside a test.
#![cfg(all(feature = "io-uring", target_os = "linux", not(loom)))]

use gpu_async_reactor::host::uring::{Kernel, RingNeed, SetupCalls};
use gpu_async_reactor::host::{ParkPolicy, StdClock, StdIdle, UringIdle};
use gpu_async_reactor::{Clock, DurNs, Idle, MonoNs};
use rustix::thread::{ClockId, clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::Timespec;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

const ROUNDS: usize = 400;

/// The tests here measure: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> MonoNs {
    StdClock::new().monotonic_ns()
}

/// A kernel without futex operations and absolute waits.
struct Older;

impl SetupCalls for Older {
    fn has(&self, need: RingNeed, found: bool) -> bool {
        found && !matches!(need, RingNeed::FutexWaits | RingNeed::InstantWaits)
    }
}

fn ring(calls: &dyn SetupCalls) -> Option<UringIdle> {
    match UringIdle::with_calls(StdClock::new(), ParkPolicy::default(), 64, calls) {
        Ok(idle) => Some(idle),
        Err(why) => {
            println!("skipped: no io_uring here: {why}");
            None
        }
    }
}

/// Prints a row and answers the best.
fn row(name: &str, mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    let us = |share: usize| all[(all.len() - 1) * share / 100] as f64 / 1e3;
    println!("{name:<34} best {:6.1}  p50 {:6.1}  p99 {:6.1} us", us(0), us(50), us(99));
    all[0]
}

fn nanosleep(at: MonoNs) {
    let (tv_sec, tv_nsec) = ((at.0 / 1_000_000_000) as i64, (at.0 % 1_000_000_000) as i64);
    while clock_nanosleep_absolute(ClockId::Monotonic, &Timespec { tv_sec, tv_nsec }).is_err() {}
}

/// A way to sleep: its name, itself, and how late it was each time.
type Way<'a> = (&'a str, &'a mut dyn FnMut(MonoNs), Vec<u64>);

#[test]
fn a_sleep_in_the_ring_ends_as_close_to_its_time_as_any_other() {
    let _machine = alone();
    let (Some(mut ring), Some(mut older)) = (ring(&Kernel), ring(&Older)) else { return };
    let mut idle = StdIdle::with(StdClock::keeping_timer_slack(), ParkPolicy::default());
    for (slack, ns) in [("50 us", 50_000), ("1 ns", 1)] {
        set_current_timer_slack(NonZeroU64::new(ns)).unwrap();
        for us in [200, 1_000] {
            let mut ways: [Way; 4] = [
                ("ring", &mut |at| ring.sleep_until(at), Vec::new()),
                ("ring of an older kernel", &mut |at| older.sleep_until(at), Vec::new()),
                ("StdIdle, futex", &mut |at| idle.sleep_until(at), Vec::new()),
                ("clock_nanosleep, absolute", &mut nanosleep, Vec::new()),
            ];
            // In turns, so that all see the same machine.
            for _ in 0..ROUNDS {
                for (_, sleep, late) in &mut ways {
                    let at = now().after(DurNs::from_us(us));
                    sleep(at);
                    let woke = now();
                    assert!(woke >= at);
                    late.push(woke.since(at).0);
                }
            }
            println!("overshoot of {us} us, timer slack {slack}");
            for (name, _, late) in ways {
                assert!(row(name, late) < 200_000);
            }
        }
    }
}

/// From a wake on another thread to the end of the sleep, and what the wake costs that thread.
fn wakes<I: Idle>(name: &str, idle: impl FnOnce() -> Option<I> + Send) {
    let (sent, woke) = (AtomicU64::new(0), AtomicU64::new(0));
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let (sent, woke) = (&sent, &woke);
        scope.spawn(move || {
            let Some(mut idle) = idle() else { return };
            tell.send(idle.unparker().unwrap()).unwrap();
            for _ in 0..ROUNDS {
                idle.sleep_until(MonoNs::MAX);
                woke.store(now().0, Ordering::Release);
            }
        });
        let Ok(unparker) = told.recv() else { return };
        let (mut took, mut cost) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            // Long asleep.
            nanosleep(now().after(DurNs::from_us(300)));
            woke.store(0, Ordering::Relaxed);
            sent.store(now().0, Ordering::Relaxed);
            unparker.wake_by_ref();
            cost.push(now().0 - sent.load(Ordering::Relaxed));
            while woke.load(Ordering::Acquire) == 0 {
                std::hint::spin_loop();
            }
            took.push(woke.load(Ordering::Acquire) - sent.load(Ordering::Relaxed));
        }
        assert!(row(name, took) < 500_000);
        row("  of it the waker's", cost);
    });
}

#[test]
fn a_wake_out_of_the_ring_is_as_quick_as_one_out_of_a_futex() {
    let _machine = alone();
    wakes("StdIdle, futex", || Some(StdIdle::with(StdClock::new(), ParkPolicy::default())));
    wakes("ring, futex operation", || ring(&Kernel));
    wakes("ring, event counter", || ring(&Older));
}
