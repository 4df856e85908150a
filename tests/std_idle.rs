//! How a thread idles on the standard library's systems: precisely, cheaply, and interruptible.
#![cfg(all(feature = "std", not(loom)))]

use gpu_async_reactor::host::{ParkPolicy, StdClock, StdIdle, thread_cpu_time};
use gpu_async_reactor::{
    Clock, CompletionLine, DurNs, Idle, MonoNs, SharedLine, Slot, Timer, WaitPlan, reached,
    run_inline,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

const SLOT: Slot = Slot::ALL[3];

fn idle() -> StdIdle {
    StdIdle::with(StdClock::new(), ParkPolicy::default())
}

fn now() -> MonoNs {
    StdClock::new().monotonic_ns()
}

/// Sorted lateness of `rounds` sleeps of `time`; none may be early.
fn lateness(clock: StdClock, time: DurNs, rounds: usize) -> Vec<u64> {
    let mut idle = StdIdle::with(clock, ParkPolicy::default());
    let mut all: Vec<u64> = (0..rounds)
        .map(|_| {
            let at = now().after(time);
            idle.sleep_until(at);
            let woke = now();
            assert!(woke >= at, "{} ns early", at.since(woke).0);
            woke.since(at).0
        })
        .collect();
    all.sort_unstable();
    all
}

#[test]
fn clocks_tell_one_time_and_never_go_back() {
    let (a, b) = (StdClock::new(), StdClock::keeping_timer_slack());
    for _ in 0..1000 {
        let first = a.monotonic_ns();
        let second = b.monotonic_ns();
        assert!(first <= second && second <= a.monotonic_ns());
    }
}

#[test]
fn a_sleep_never_ends_early_and_at_best_close_to_its_time_at_both_slacks() {
    for (name, clock) in [("1 ns", StdClock::new()), ("inherited", StdClock::keeping_timer_slack())]
    {
        for us in [20, 100, 200, 1000] {
            let sleeps = move || lateness(clock, DurNs::from_us(us), 100);
            let all = thread::spawn(sleeps).join().unwrap();
            let (best, p50, p99) = (all[0], all[50], all[98]);
            println!("slack {name}, sleep {us} us: lateness ns best {best} p50 {p50} p99 {p99}");
            assert!(best < 200_000, "{best} ns at best");
        }
    }
}

#[test]
fn a_sleep_whose_time_has_come_returns_at_once() {
    let mut idle = idle();
    let before = now();
    idle.sleep_until(MonoNs(0));
    idle.sleep_until(before);
    for _ in 0..1000 {
        idle.sleep_until(now().after(DurNs(1)));
    }
    run_inline(StdClock::new().sleep_until(before)).unwrap();
}

#[test]
fn the_clock_is_a_timer_that_blocks_within_its_first_poll() {
    let at = now().after(DurNs::from_us(500));
    run_inline(StdClock::new().sleep_until(at)).unwrap();
    assert!(now() >= at);
}

#[cfg(target_os = "linux")]
fn slack() -> u64 {
    rustix::thread::current_timer_slack().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn f29_after_a_sleep_or_a_park_the_slack_of_the_thread_its_later_threads_and_children_is_as_before()
{
    const OWN: u64 = 40_000;
    for clock in [StdClock::new(), StdClock::keeping_timer_slack()] {
        // A thread of its own, whose slack no other test knows.
        let thread = thread::spawn(move || {
            rustix::thread::set_current_timer_slack(OWN.try_into().ok()).unwrap();
            let mut idle = StdIdle::with(clock, ParkPolicy::SAVING);
            idle.sleep_until(now().after(DurNs::from_us(50)));
            assert_eq!(slack(), OWN, "after a sleep");
            let line = CompletionLine::default();
            assert!(!idle.park_line(&line, |_| false, DurNs::from_ms(1)));
            assert_eq!(slack(), OWN, "after a park");
            run_inline(clock.sleep_until(now().after(DurNs::from_us(50)))).unwrap();
            assert_eq!(slack(), OWN, "after a sleep by the clock");
            assert_eq!(thread::spawn(slack).join().unwrap(), OWN, "a later thread");
            let child = std::process::Command::new("cat").arg("/proc/self/timerslack_ns").output();
            let child = String::from_utf8(child.unwrap().stdout).unwrap();
            assert_eq!(child.trim(), OWN.to_string(), "a child process");
            // What is set between two sleeps stays.
            rustix::thread::set_current_timer_slack((2 * OWN).try_into().ok()).unwrap();
            idle.sleep_until(now().after(DurNs::from_us(50)));
            assert_eq!(slack(), 2 * OWN);
        });
        thread.join().unwrap();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn f29_while_it_sleeps_a_thread_has_a_slack_of_a_nanosecond_and_an_endless_sleep_keeps_its_own() {
    for (at, expected) in [(now().after(DurNs::from_ms(60_000)), 1), (MonoNs::MAX, 50_000)] {
        let mut idle = idle();
        let unparker = idle.unparker().unwrap();
        let (sender, id) = std::sync::mpsc::channel();
        let asleep = thread::spawn(move || {
            rustix::thread::set_current_timer_slack(50_000.try_into().ok()).unwrap();
            sender.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
            idle.sleep_until(at);
        });
        let thread = format!("/proc/self/task/{}/stat", id.recv().unwrap());
        let sleeps = || std::fs::read_to_string(&thread).unwrap().contains(") S ");
        while !sleeps() {
            thread::yield_now();
        }
        let id = thread.split('/').nth(4).unwrap().to_string();
        // Of another thread the kernel reports it under the thread's own number.
        let file = std::fs::read_to_string(format!("/proc/{id}/timerslack_ns"));
        if let Ok(slack) = file {
            assert_eq!(slack.trim(), expected.to_string());
        } else {
            println!("skipped: this system does not report the slack of another thread");
        }
        unparker.wake();
        asleep.join().unwrap();
    }
}

/// What [`StdClock`] says that a sleep's change of the slack costs.
#[cfg(target_os = "linux")]
#[test]
fn f29_lowering_the_slack_and_setting_it_back_costs_little_beside_a_sleep() {
    let changes = || {
        let began = now();
        for _ in 0..1_000 {
            let before = slack();
            rustix::thread::set_current_timer_slack(1.try_into().ok()).unwrap();
            rustix::thread::set_current_timer_slack(before.try_into().ok()).unwrap();
        }
        now().since(began).0 / 1_000
    };
    let best = (0..20).map(|_| changes()).min().unwrap();
    println!("the three calls take {best} ns");
    assert!(best < 3_000, "{best} ns");
}

#[test]
fn a_notification_sticks_until_one_sleep_or_park_has_used_it() {
    let mut idle = idle();
    let line = CompletionLine::default();
    let waker = idle.unparker().unwrap();
    waker.wake_by_ref();
    waker.wake_by_ref();
    idle.sleep_until(MonoNs::MAX);
    waker.wake_by_ref();
    assert!(!idle.park_line(&line, |_| false, DurNs::MAX));
    waker.wake();
    idle.sleep_until(MonoNs::MAX);
    let at = now().after(DurNs::from_us(300));
    idle.sleep_until(at);
    assert!(now() >= at, "nothing is left of the notifications");
}

/// Wakes and sleeps or parks hand a counter to and fro; a lost wake hangs the test.
fn ping_pong(mut idle: StdIdle, rounds: u64, idle_once: impl Fn(&mut StdIdle) + Send) {
    let unparker = idle.unparker().unwrap();
    let (asked, answered) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let (asked, answered) = (&asked, &answered);
        scope.spawn(move || {
            for round in 1..=rounds {
                while asked.load(Ordering::Acquire) < round {
                    idle_once(&mut idle);
                }
                answered.store(round, Ordering::Release);
            }
        });
        for round in 1..=rounds {
            // Before, around and after the moment at which the other thread falls asleep.
            let from = now().after(DurNs((round % 64) * 1_000));
            while now() < from {
                std::hint::spin_loop();
            }
            asked.store(round, Ordering::Release);
            unparker.wake_by_ref();
            while answered.load(Ordering::Acquire) < round {
                thread::yield_now();
            }
        }
    });
}

#[test]
fn a_wake_from_another_thread_ends_a_sleep_whenever_it_comes() {
    ping_pong(idle(), 2_000, |idle| idle.sleep_until(MonoNs::MAX));
}

#[test]
fn a_wake_from_another_thread_ends_a_park_whenever_it_comes() {
    let line = CompletionLine::default();
    let sleepy = ParkPolicy {
        spin: DurNs::ZERO,
        yielding: DurNs::ZERO,
        min_slice: DurNs::MAX,
        max_slice: DurNs::MAX,
        share_permille: 1_000,
    };
    for policy in [sleepy, ParkPolicy::SPIN, ParkPolicy::BALANCED, ParkPolicy::SAVING] {
        ping_pong(StdIdle::with(StdClock::new(), policy), 1_000, |idle| {
            assert!(!idle.park_line(&line, |_| false, DurNs::MAX));
        });
    }
}

#[test]
fn idles_of_two_threads_do_not_wake_each_other() {
    let (mut first, second) = (idle(), idle());
    second.unparker().unwrap().wake();
    let at = now().after(DurNs::from_ms(1));
    first.sleep_until(at);
    assert!(now() >= at);
}

#[test]
fn a_park_ends_by_a_store_under_every_policy() {
    for policy in [ParkPolicy::SPIN, ParkPolicy::BALANCED, ParkPolicy::SAVING] {
        let line: SharedLine = CompletionLine::shared();
        let device = line.clone();
        let parked = Arc::new(AtomicBool::new(false));
        let begun = parked.clone();
        let store = thread::spawn(move || {
            while !parked.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            let at = now().after(DurNs::from_ms(2));
            while now() < at {
                thread::yield_now();
            }
            (*device).as_ref().store(SLOT, 1);
        });
        let mut idle = StdIdle::with(StdClock::new(), policy);
        let ready = |line: &CompletionLine| {
            begun.store(true, Ordering::Relaxed);
            reached(line, SLOT, 1)
        };
        assert!(idle.park_line((*line).as_ref(), ready, DurNs::MAX));
        store.join().unwrap();
    }
}

#[test]
fn a_park_looks_before_it_waits_and_never_ends_before_its_bound_without_reason() {
    let mut idle = idle();
    let line = CompletionLine::default();
    assert!(!idle.park_line(&line, |_| false, DurNs::ZERO));
    for us in [1, 50, 300, 1_500, 3_000] {
        let end = now().after(DurNs::from_us(us));
        assert!(!idle.park_line(&line, |line| reached(line, SLOT, 1), DurNs::from_us(us)));
        assert!(now() >= end);
    }
    line.store(SLOT, 1);
    assert!(idle.park_line(&line, |line| reached(line, SLOT, 1), DurNs::ZERO));
}

#[test]
fn a_wait_of_50_ms_costs_a_bounded_share_of_a_core_however_it_is_cut_into_parks() {
    for (name, policy) in [("balanced", ParkPolicy::BALANCED), ("saving", ParkPolicy::SAVING)] {
        for bound in [DurNs::from_us(100), DurNs::from_ms(1), DurNs::MAX] {
            let shares = (0..5).map(|_| thread::spawn(move || cpu_share(policy, bound)));
            let shares: Vec<f64> = shares.filter_map(|share| share.join().unwrap()).collect();
            let Some(best) = shares.iter().copied().reduce(f64::min) else { return };
            println!("{name}, parks of {} us: CPU {best:.1} % of 50 ms", bound.0 / 1_000);
            assert!(best < 25.0, "{best} %");
        }
    }
}

/// The CPU share in percent of one wait of 50 ms for a store, in parks of `bound`.
fn cpu_share(policy: ParkPolicy, bound: DurNs) -> Option<f64> {
    let line = CompletionLine::default();
    let mut idle = StdIdle::with(StdClock::new(), policy);
    let began = now();
    let before = thread_cpu_time()?;
    let end = began.after(DurNs::from_ms(50));
    let ready = |_: &CompletionLine| now() >= end;
    while !idle.park_line(&line, ready, bound) {}
    let used = thread_cpu_time()?.0 - before.0;
    Some(used as f64 / now().since(began).0 as f64 * 100.0)
}

#[test]
fn nothing_to_wait_for_costs_next_to_no_cpu() {
    let mut idle = idle();
    let Some(before) = thread_cpu_time() else { return };
    idle.sleep_until(now().after(DurNs::from_ms(200)));
    let used = thread_cpu_time().unwrap().0 - before.0;
    println!("a sleep of 200 ms used {} us of CPU", used / 1_000);
    assert!(used < 2_000_000);
}

#[test]
fn a_probed_host_parks_in_hardware_or_says_why_it_cannot() {
    let (idle, caps) = StdIdle::probe(StdClock::new());
    assert_eq!(idle.parks_in_hardware(), caps.device_word_wait.is_ok());
    let plan = WaitPlan::parse("flag:park_us=100,backstop_us=1000").unwrap();
    let resolved = plan.resolve(&caps);
    match &caps.device_word_wait {
        Ok(()) => assert_eq!(resolved.plan, plan),
        Err(why) => {
            println!("no hardware park: {why}");
            assert_eq!(resolved.plan.label(), "poll");
            assert!(resolved.warning.unwrap().to_string().contains(why.as_str()));
        }
    }
}

#[test]
fn threads_have_tokens_that_tell_them_apart() {
    let token = idle().thread_token().unwrap();
    assert_eq!(token(), token());
    let all_alive = Barrier::new(8);
    let mut tokens: Vec<usize> = thread::scope(|scope| {
        let ask = || {
            let mine = token();
            all_alive.wait();
            mine
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    tokens.push(token());
    tokens.sort_unstable();
    tokens.dedup();
    assert!(tokens.len() == 9 && tokens[0] != 0);
}
