//! What the precise timer costs, and what becomes of its sleeps in a forked child.
#![cfg(all(feature = "software", not(loom)))]

mod common;

use common::Watchdog;
use gpu_async_reactor::host::{PreciseSleep, PreciseTimer, thread_cpu_time};
use gpu_async_reactor::{Clock, DurNs, MonoNs};
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tokio::runtime::Builder;

const HOUR: DurNs = DurNs::from_ms(3_600_000);

fn timer() -> PreciseTimer {
    PreciseTimer::new().unwrap()
}

fn poll(sleep: &mut PreciseSleep) -> Poll<()> {
    Pin::new(sleep).poll(&mut Context::from_waker(Waker::noop()))
}

/// Sets sleeps of `time` one after the other for `span` of time; never early. The shares of the
/// time that was spun and that the thread was on a CPU, in percent.
async fn back_to_back(timer: &PreciseTimer, time: DurNs, span: DurNs) -> (f64, f64) {
    let (began, spun) = (timer.monotonic_ns(), timer.spun());
    let cpu = thread_cpu_time().unwrap_or(DurNs::ZERO);
    let end = began.after(span);
    while timer.monotonic_ns() < end {
        let at = timer.monotonic_ns().after(time);
        timer.sleep(at).await;
        assert!(timer.monotonic_ns() >= at, "early");
    }
    let elapsed = timer.monotonic_ns().since(began).0 as f64;
    let cpu = thread_cpu_time().unwrap_or(DurNs::ZERO).0 - cpu.0;
    ((timer.spun().0 - spun.0) as f64 / elapsed * 100.0, cpu as f64 / elapsed * 100.0)
}

#[test]
fn f28_sleeps_shorter_than_the_lead_spin_for_less_than_a_quarter_of_a_core() {
    let _watchdog = Watchdog::new("short precise sleeps");
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let timer = timer();
        // A lead that was learned from long sleeps.
        back_to_back(&timer, DurNs::from_us(1_500), DurNs::from_ms(100)).await;
        let below = DurNs(timer.lead().0.saturating_sub(3_000)).max(DurNs::from_us(5));
        for time in [DurNs::from_us(20), DurNs::from_us(28), below] {
            let span = DurNs::from_ms(300);
            let mut least_cpu = f64::MAX;
            for _ in 0..3 {
                let (spun, cpu) = back_to_back(&timer, time, span).await;
                println!(
                    "sleeps of {time}: {spun:.1} % spun, {cpu:.1} % of CPU, lead {}",
                    timer.lead()
                );
                // Taken out of a budget before it is spun, so this is sure however busy the machine
                // is.
                assert!(spun < 25.0, "sleeps of {time}: {spun} % spun");
                least_cpu = least_cpu.min(cpu);
            }
            // What is not spun is slept by two threads that wake each other.
            assert!(least_cpu < 85.0, "sleeps of {time}: {least_cpu} % of CPU");
        }
    });
}

#[test]
fn with_as_many_sleeps_at_a_time_as_before_nothing_is_allocated() {
    let timer = timer();
    let far = timer.monotonic_ns().after(HOUR);
    let sleep = |number: u64| {
        // In a scattered order.
        let mut sleep = timer.sleep(far.after(DurNs(number * 7_919 % 10_007 * 1_000)));
        assert!(poll(&mut sleep).is_pending());
        sleep
    };
    let mut sleeps: VecDeque<_> = (0..200).map(sleep).collect();
    sleeps.reserve(1);
    let allocations = allocation_counter::measure(|| {
        for number in 200..10_200 {
            drop(sleeps.pop_front());
            sleeps.push_back(sleep(number));
        }
    });
    assert_eq!(allocations.count_total, 0);
    assert_eq!(timer.pending(), 200);
}

#[test]
fn f59_a_waker_whose_panic_panics_once_more_costs_no_other_sleep_its_wake() {
    struct Payload;
    impl Drop for Payload {
        fn drop(&mut self) {
            panic!("a payload of the test");
        }
    }
    struct Panics;
    impl std::task::Wake for Panics {
        fn wake(self: std::sync::Arc<Self>) {
            std::panic::panic_any(Payload);
        }
    }
    let _watchdog = Watchdog::new("a waker of the timer that panics");
    let timer = timer();
    let at = timer.monotonic_ns().after(DurNs::from_ms(20));
    let waker = Waker::from(std::sync::Arc::new(Panics));
    let mut first = timer.sleep(at);
    assert!(Pin::new(&mut first).poll(&mut Context::from_waker(&waker)).is_pending());
    common::watching::block_on(timer.sleep(at));
    common::watching::block_on(timer.sleep(timer.monotonic_ns().after(DurNs::from_ms(1))));
    assert!(poll(&mut first).is_ready());
}

#[cfg(target_os = "linux")]
#[test]
fn f29_a_waker_on_the_timers_thread_finds_the_slack_that_the_thread_began_with() {
    struct Slack(std::sync::mpsc::Sender<u64>);
    impl std::task::Wake for Slack {
        fn wake(self: std::sync::Arc<Self>) {
            let _ = self.0.send(rustix::thread::current_timer_slack().unwrap());
        }
    }
    let own = rustix::thread::current_timer_slack().unwrap();
    let timer = timer();
    for _ in 0..3 {
        let (sender, slack) = std::sync::mpsc::channel();
        let waker = Waker::from(std::sync::Arc::new(Slack(sender)));
        let mut sleep = timer.sleep(timer.monotonic_ns().after(DurNs::from_ms(2)));
        assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(slack.recv().unwrap(), own);
    }
}

#[cfg(unix)]
mod forked {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    const FORKS: usize = 300;

    /// Runs `code` in a forked child, which an alarm ends. Whether it came to its end.
    fn in_child(code: impl FnOnce()) -> bool {
        // SAFETY: the child runs `code` and ends by `_exit`; what it calls takes no lock that
        // another thread may have held, which is what is tested, or it is ended by the alarm.
        unsafe {
            match libc::fork() {
                0 => {
                    libc::alarm(15);
                    code();
                    libc::_exit(7)
                }
                child => {
                    assert!(child > 0, "fork");
                    let mut status = 0;
                    assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7
                }
            }
        }
    }

    /// Sets sleeps and takes them back, and so has the board's lock most of the time.
    fn busily(timer: &PreciseTimer, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let mut sleep = timer.sleep(timer.monotonic_ns().after(HOUR));
            assert!(poll(&mut sleep).is_pending());
        }
    }

    #[test]
    fn f43_a_forked_child_drops_sleeps_and_timers_and_sleeps_by_them_without_a_lock() {
        let _watchdog = Watchdog::new("forks beside a timer");
        let timer = timer();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| busily(&timer, &stop));
            for fork in 0..FORKS {
                let mut set = timer.sleep(timer.monotonic_ns().after(HOUR));
                assert!(poll(&mut set).is_pending());
                let at = timer.monotonic_ns().after(DurNs::from_ms(2));
                let mut short = timer.sleep(at);
                assert!(poll(&mut short).is_pending());
                let own = (set, short, timer.clone());
                let ended = in_child(|| {
                    let (set, mut short, timer) = own;
                    drop(set);
                    let mut fresh = timer.sleep(at);
                    let mut never = timer.sleep(MonoNs::MAX);
                    let never = poll(&mut never).is_pending();
                    let blocked = poll(&mut short).is_ready() && timer.monotonic_ns() >= at;
                    let ready = poll(&mut fresh).is_ready();
                    drop((short, fresh));
                    if !(never && blocked && ready && timer.pending() == 0) {
                        // SAFETY: ends the child at once, whatever it holds.
                        unsafe { libc::_exit(1) }
                    }
                });
                assert!(ended, "fork {fork} hung, or ended a sleep early");
            }
            stop.store(true, Ordering::Relaxed);
        });
        // The parent's timer has gone on.
        common::watching::block_on(timer.sleep(timer.monotonic_ns().after(DurNs::from_ms(1))));
    }
}
