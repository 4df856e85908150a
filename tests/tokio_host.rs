//! Waiting in tasks of tokio: by its clock, whose time a test may pause, and by the precise timer.
#![cfg(all(feature = "tokio", feature = "software", not(loom)))]

mod common;

use common::{Watchdog, device};
use gpu_async_reactor::host::{ParkPolicy, PreciseTimer, StdClock, StdIdle, TokioClock};
use gpu_async_reactor::{
    Clock, CompletionPort, DurNs, End, Error, MonoNs, ThreadPort, Timer, WaitPlan, wait,
};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// What is meant by "not a millisecond late". Best of many: others use the cores as well.
const CLOSE: DurNs = DurNs::from_us(300);

fn now() -> MonoNs {
    StdClock::new().monotonic_ns()
}

fn runtimes() -> [(&'static str, Runtime); 2] {
    let current = Builder::new_current_thread().enable_time().build().unwrap();
    let multi = Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    [("current_thread", current), ("multi_thread", multi)]
}

/// Sorted lateness of `rounds` sleeps of `time` in a spawned task; none may be early.
async fn lateness<T>(timer: T, time: DurNs, rounds: usize) -> Vec<u64>
where
    T: Fn(MonoNs) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> + Send + 'static,
{
    let sleeps = tokio::spawn(async move {
        let mut all = Vec::new();
        for _ in 0..rounds {
            let at = now().after(time);
            timer(at).await;
            let woke = now();
            assert!(woke >= at, "{} ns early", at.since(woke).0);
            all.push(woke.since(at).0);
        }
        all
    });
    let mut all = sleeps.await.unwrap();
    all.sort_unstable();
    all
}

#[test]
fn a_sleep_of_200_us_never_ends_early_and_at_best_close_to_its_time_on_both_runtimes() {
    let _watchdog = Watchdog::new("a sleep of 200 us on tokio");
    for (name, runtime) in runtimes() {
        let timer = PreciseTimer::new().unwrap();
        for us in [5, 50, 200, 1_000, 2_500] {
            let timer = timer.clone();
            let sleep = {
                let timer = timer.clone();
                move |at| Box::pin(timer.sleep(at)) as _
            };
            let all = runtime.block_on(lateness(sleep, DurNs::from_us(us), 100));
            let (best, p50, p99, lead) = (all[0], all[50], all[98], timer.lead());
            println!("{name}, {us} us: ns late, best {best} p50 {p50} p99 {p99}; lead {lead}");
            assert!(best < CLOSE.0, "{name}, {us} us: {best} ns at best");
        }
    }
}

#[test]
fn the_clock_of_tokio_is_a_timer_that_is_never_early() {
    for (name, runtime) in runtimes() {
        let clock = TokioClock::new();
        let sleep = move |at| Box::pin(async move { clock.sleep_until(at).await }) as _;
        let all = runtime.block_on(lateness(sleep, DurNs::from_us(200), 10));
        println!("{name}, 200 us by tokio's clock: ns late, best {}", all[0]);
        let sleep = move |at| Box::pin(clock.sleep(at)) as _;
        runtime.block_on(lateness(sleep, DurNs::from_us(200), 10));
    }
}

#[test]
fn the_clock_of_tokio_tells_the_time_of_the_standard_clock_and_is_never_ahead() {
    let (clock, mut closest) = (TokioClock::new(), u64::MAX);
    for _ in 0..1_000 {
        let before = now();
        let tokio = clock.monotonic_ns();
        let after = now();
        assert!(tokio <= after, "{} ns ahead", tokio.since(after).0);
        assert!(clock.monotonic_ns() >= tokio, "a clock never goes back");
        closest = closest.min(before.since(tokio).0);
    }
    assert!(closest < 1_000, "{closest} ns behind at best");
    for at in [now(), MonoNs(now().0 + 5_000_000_000), MonoNs(now().0 - 1_000)] {
        let instant = clock.instant(at).unwrap();
        let ahead = instant.into_std().saturating_duration_since(std::time::Instant::now());
        assert!(DurNs::from(ahead).0 <= at.since(now()).0 + 1_000_000_000);
    }
}

#[test]
fn under_paused_time_the_clock_of_tokio_stands_still_and_its_sleeps_take_none() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (began, clock) = (now(), TokioClock::new());
    runtime.block_on(async {
        let start = clock.monotonic_ns();
        assert_eq!(clock.monotonic_ns(), start, "time stands still");
        tokio::time::advance(Duration::from_micros(1_500)).await;
        assert_eq!(clock.monotonic_ns().since(start), DurNs::from_us(1_500));

        // The runtime has nothing else to do, and goes on to the next timer.
        let hour = DurNs(3_600_000_000_000);
        let at = clock.monotonic_ns().after(hour);
        clock.sleep_until(at).await;
        let late = clock.monotonic_ns().since(at);
        assert!(clock.monotonic_ns() >= at && late < DurNs::from_ms(2), "{late} late");
        clock.sleep_until(MonoNs(0)).await;
    });
    assert!(now().since(began) < DurNs(60_000_000_000), "an hour took less than a minute");
}

#[test]
fn sleeps_set_in_any_order_end_in_the_order_of_their_deadlines() {
    let _watchdog = Watchdog::new("sleeps set in any order");
    const SLEEPS: u64 = 500;
    let runtime = Builder::new_current_thread().build().unwrap();
    let timer = PreciseTimer::new().unwrap();
    let start = now().after(DurNs::from_ms(20));
    let ended = runtime.block_on(async {
        let (sender, mut ended) = tokio::sync::mpsc::unbounded_channel();
        for turn in 0..SLEEPS {
            // 211 and 500 have no common divisor: every instant once, in a scattered order.
            let at = start.after(DurNs::from_us(turn * 211 % SLEEPS * 200));
            let (sender, sleep) = (sender.clone(), timer.sleep(at));
            tokio::spawn(async move {
                sleep.await;
                assert!(now() >= at, "early");
                sender.send(at).unwrap();
            });
        }
        drop(sender);
        let mut all = Vec::new();
        while let Some(at) = ended.recv().await {
            all.push(at);
        }
        all
    });
    assert_eq!(ended.len() as u64, SLEEPS);
    assert!(ended.is_sorted());
    assert_eq!(timer.pending(), 0);
}

#[test]
fn a_dropped_sleep_is_taken_back_and_an_earlier_one_is_not_missed() {
    let _watchdog = Watchdog::new("a dropped sleep");
    for (_, runtime) in runtimes() {
        let timer = PreciseTimer::new().unwrap();
        runtime.block_on(async {
            let far = now().after(DurNs(3_600_000_000_000));
            let long = tokio::spawn(timer.sleep(far));
            while timer.pending() == 0 {
                tokio::task::yield_now().await;
            }
            // The thread sleeps for an hour. Each of these is the earliest when it is set.
            for _ in 0..20 {
                tokio::spawn(timer.sleep(now().after(DurNs::from_us(300)))).await.unwrap();
            }
            assert_eq!(timer.pending(), 1);
            long.abort();
            assert!(long.await.unwrap_err().is_cancelled());
            assert_eq!(timer.pending(), 0);

            let mut lost = Box::pin(timer.sleep(far));
            tokio::select! {
                () = &mut lost => panic!("an hour has not passed"),
                () = timer.sleep(now().after(DurNs::from_ms(1))) => {}
            }
            assert_eq!(timer.pending(), 1);
            drop(lost);
            assert_eq!(timer.pending(), 0);
        });
    }
}

#[test]
fn a_sleep_that_moves_to_another_task_wakes_that_one() {
    let _watchdog = Watchdog::new("a sleep that moves");
    let (_, runtime) = runtimes().into_iter().last().unwrap();
    let timer = PreciseTimer::new().unwrap();
    runtime.block_on(async {
        for _ in 0..20 {
            let mut sleep = Box::pin(timer.sleep(now().after(DurNs::from_ms(2))));
            let first = std::future::poll_fn(|cx| {
                std::task::Poll::Ready(sleep.as_mut().poll(cx).is_ready())
            });
            assert!(!first.await);
            tokio::spawn(sleep).await.unwrap();
        }
    });
}

#[test]
fn a_sleep_outlives_the_last_handle_and_a_timer_without_either_ends_its_thread() {
    let _watchdog = Watchdog::new("a sleep without a handle");
    let (_, runtime) = runtimes().into_iter().next().unwrap();
    for _ in 0..20 {
        let timer = PreciseTimer::new().unwrap();
        let sleep = timer.sleep(now().after(DurNs::from_us(500)));
        drop(timer);
        runtime.block_on(sleep);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_timer_without_sleeps_or_with_a_far_one_costs_next_to_no_cpu() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let timer = PreciseTimer::new().unwrap();
    let mut far = Box::pin(timer.sleep(now().after(DurNs(3_600_000_000_000))));
    for set in [false, true] {
        if set {
            let poll = std::future::poll_fn(|cx| {
                assert!(far.as_mut().poll(cx).is_pending());
                std::task::Poll::Ready(())
            });
            runtime.block_on(poll);
        }
        // Other tests of this process run beside this one: only the timer's threads are looked at.
        let before = cpu_ticks_of("precise-timer");
        std::thread::sleep(Duration::from_millis(300));
        let best = cpu_ticks_of("precise-timer")
            .into_iter()
            .filter_map(|(id, ticks)| Some(ticks - before.iter().find(|old| old.0 == id)?.1))
            .min();
        assert!(best.is_none_or(|ticks| ticks <= 1), "{best:?} ticks of 10 ms in 300 ms");
    }
}

/// Thread ids and CPU ticks, user and system, of this process's threads of that name.
#[cfg(target_os = "linux")]
fn cpu_ticks_of(name: &str) -> Vec<(u64, u64)> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let of_thread = |entry: std::fs::DirEntry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let (head, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?;
        head.ends_with(name).then_some((id, ticks))
    };
    threads.filter_map(|entry| of_thread(entry.ok()?)).collect()
}

/// A port for tasks of tokio: between two looks at the word it gives way to other tasks.
struct TaskPort<P>(P);

impl<P: CompletionPort<Error = Error> + Send> CompletionPort for TaskPort<P> {
    type Error = Error;
    fn begin(&mut self) {
        self.0.begin();
    }
    fn query(&mut self) -> Result<bool, Error> {
        self.0.query()
    }
    async fn block(&mut self) -> Result<(), Error> {
        self.0.block().await
    }
    async fn poll(&mut self) -> Result<(), Error> {
        while !self.0.query()? {
            tokio::task::yield_now().await;
        }
        Ok(())
    }
    fn arm(&mut self) -> Result<(), Error> {
        self.0.arm()
    }
    async fn park(&mut self, bound: DurNs) -> Result<bool, Error> {
        self.0.park(bound).await
    }
    fn seen(&mut self) -> bool {
        self.0.seen()
    }
    async fn pause(&mut self) {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_predicted_wait_in_a_spawned_task_is_not_late_by_a_rounded_timer() {
    let _watchdog = Watchdog::new("a predicted wait on tokio");
    let text =
        "spin:backstop_us=1000+predict:margin_us=200,min_sleep_us=50,max_sleep_us=9000,window=4";
    let plan = WaitPlan::parse(text).unwrap();
    let device = device();
    for (name, runtime) in runtimes() {
        let timer = PreciseTimer::new().unwrap();
        let late = runtime.block_on(async {
            let mut late = Vec::new();
            for _ in 0..40 {
                let stream = device.stream().unwrap();
                let timer = timer.clone();
                let one = tokio::spawn(async move {
                    stream.delay(DurNs::from_us(500)).unwrap();
                    // 300 us of sleep: what the estimator says of work of 500 us.
                    let sleep = Some(DurNs::from_us(300));
                    let idle = StdIdle::with(StdClock::new(), ParkPolicy::default());
                    let mut port = ThreadPort::new(stream, idle);
                    let ticket = port.mark().unwrap();
                    let mut point = TaskPort(port.at(ticket));
                    let waited = wait(&plan, sleep, &mut point, &timer).await.unwrap();
                    let woke = now();
                    let landed = port.stream().stamp_of(ticket.number());
                    let landed = landed.expect("the store landed");
                    assert!(woke >= landed, "{waited:?}: before the work's end");
                    (waited, woke.since(landed).0)
                });
                let (waited, lateness) = one.await.unwrap();
                if waited.end == End::Spun {
                    assert!(waited.slept > DurNs::ZERO, "{waited:?}: it slept");
                    late.push(lateness);
                }
            }
            late.sort_unstable();
            late
        });
        let best = *late.first().expect("of 40 sleeps one ends before the work");
        println!(
            "{name}: {} of 40 spun; ns late, best {best} p50 {}",
            late.len(),
            late[late.len() / 2]
        );
        assert!(best < CLOSE.0, "{name}: {best} ns late at best");
    }
}
