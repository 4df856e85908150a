//! The watcher: any runtime's tasks, faults, hangs, drops, its idleness and its wakes.

mod common;

use common::{Watchdog, descriptor, device, is_fault, wait_for};
use gpu_async_reactor::backend::software::{
    Fault, Hang, QueryFault, SoftwareStream, StoreFault, Work,
};
use gpu_async_reactor::host::{
    ParkPolicy, StdClock, WatchError, WatchOptions, WatchPolicy, WatchResult, Watcher,
};
use gpu_async_reactor::{
    Clock, CompletionLine, DeviceStream, DurNs, End, Error, ErrorCode, OwnedDescriptor, SharedLine,
    Slot, reached,
};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

const BACKSTOP: DurNs = DurNs::from_ms(2);
const OPTIONS: WatchOptions = WatchOptions::new(BACKSTOP);
/// Backstops that no test lives to see.
const NEVER: WatchOptions = WatchOptions::new(DurNs::from_ms(3_600_000));
const POLICIES: [WatchPolicy; 3] = [WatchPolicy::SPIN, WatchPolicy::BALANCED, WatchPolicy::SAVING];

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread: the smallest runtime there is.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Polls once, with a waker that does nothing.
fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn watcher(policy: WatchPolicy) -> Watcher {
    Watcher::new(policy).unwrap()
}

fn now() -> gpu_async_reactor::MonoNs {
    StdClock::new().monotonic_ns()
}

/// A slot of a line in host memory, stored by the test.
fn word(target: u64) -> OwnedDescriptor {
    OwnedDescriptor { line: CompletionLine::shared(), slot: Slot::ALL[0], target }
}

fn store(word: &OwnedDescriptor, number: u64) {
    (*word.line).as_ref().store(word.slot, number);
}

/// A status that is done with the word.
fn agreeing(
    word: &OwnedDescriptor,
) -> impl FnMut() -> Result<bool, Error> + Send + 'static + use<> {
    let word = word.clone();
    move || Ok(word.is_complete())
}

fn status_error(result: WatchResult) -> Error {
    match result {
        Err(WatchError::Status(error)) => error,
        other => panic!("not an error of the status: {other:?}"),
    }
}

fn watcher_error(result: WatchResult) -> ErrorCode {
    match result {
        Err(WatchError::Watcher(error)) => error.code(),
        other => panic!("not an error of the watcher: {other:?}"),
    }
}

fn shared_stream(
    device: &gpu_async_reactor::backend::software::SoftwareDevice,
) -> Arc<SoftwareStream> {
    Arc::new(device.stream().unwrap())
}

#[test]
fn a_word_wakes_a_task_of_a_plain_thread_and_says_when_it_came() {
    let _watchdog = Watchdog::new("plain thread");
    for policy in POLICIES {
        let watcher = watcher(policy);
        let stream = shared_stream(&device());
        stream.delay(DurNs::from_us(500)).unwrap();
        let number = stream.mark().unwrap();
        let waited = block_on(watcher.watch_stream(stream.clone(), number, OPTIONS)).unwrap();
        assert_eq!(waited.end, End::Parked, "{policy:?}");
        assert!(waited.outcome.is_some() && waited.queries >= 1 && waited.parks == 0);
        assert!(stream.query_mark(number).unwrap());
        assert_eq!(watcher.stats().completed, 1);
    }
}

#[test]
fn tasks_of_tokio_await_streams_on_both_of_its_schedulers() {
    let _watchdog = Watchdog::new("tokio");
    let single = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let multi = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    for runtime in [single, multi] {
        let watcher = watcher(WatchPolicy::default());
        let device = device();
        runtime.block_on(async {
            let mut tasks = Vec::new();
            for at in 0..50 {
                let (watcher, stream) = (watcher.clone(), shared_stream(&device));
                tasks.push(tokio::spawn(async move {
                    for _ in 0..5 {
                        stream.delay(DurNs::from_us(10 * at)).unwrap();
                        let number = stream.mark().unwrap();
                        watcher.watch_stream(stream.clone(), number, OPTIONS).await.unwrap();
                        assert!(stream.query_mark(number).unwrap());
                    }
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!(watcher.stats().completed, 250);
    }
}

#[test]
fn f1_after_a_sticky_fault_a_watch_ends_with_it_whether_or_not_its_word_was_stored() {
    let _watchdog = Watchdog::new("f1");
    let watcher = watcher(WatchPolicy::default());
    for storing in [false, true] {
        let stream = shared_stream(&device());
        let fault = Fault::new(700, "ILLEGAL_ADDRESS");
        let fault = if storing { fault.storing_words() } else { fault };
        let work = Work::new().delay(DurNs::from_us(500)).fault(fault);
        stream.queue(work).unwrap();
        let number = stream.mark().unwrap();
        for _ in 0..2 {
            let result = block_on(watcher.watch_stream(stream.clone(), number, OPTIONS));
            assert!(is_fault(&status_error(result), "700 ILLEGAL_ADDRESS"), "{storing}");
        }
        let seen = reached((**stream.line()).as_ref(), stream.slot(), number);
        assert_eq!(seen, storing, "the word says nothing of it");
    }
    assert_eq!(watcher.stats().errors, 4);
}

#[test]
fn f2_a_silent_word_and_a_failing_status_end_the_watch_within_one_backstop() {
    let _watchdog = Watchdog::new("f2");
    for policy in POLICIES {
        let watcher = watcher(policy);
        let best = (0..10)
            .map(|_| {
                let device = device();
                let stream = shared_stream(&device);
                let hang = Hang::new();
                stream.queue(Work::new().hang(&hang)).unwrap();
                let number = stream.mark().unwrap();
                let losing = thread::spawn(move || {
                    wait_for(|| hang.holding() == 1);
                    thread::sleep(Duration::from_micros(300));
                    device.lose(Fault::new(4, "DEVICE_LOST"));
                    now()
                });
                let result = block_on(watcher.watch_stream(stream, number, OPTIONS));
                let ended = now();
                assert!(is_fault(&status_error(result), "4 DEVICE_LOST"));
                ended.since(losing.join().unwrap())
            })
            .min()
            .unwrap();
        println!("{policy:?}: {best} after the loss at best");
        assert!(best <= DurNs(BACKSTOP.0 + 500_000), "{policy:?}: {best} at best");
    }
}

#[test]
fn a_lost_store_is_seen_by_the_backstop_and_counted() {
    let _watchdog = Watchdog::new("lost store");
    let watcher = watcher(WatchPolicy::default());
    let stream = shared_stream(&device());
    stream.inject_store(StoreFault::Lost);
    stream.delay(DurNs::from_us(300)).unwrap();
    let number = stream.mark().unwrap();
    let waited = block_on(watcher.watch_stream(stream, number, OPTIONS)).unwrap();
    assert_eq!((waited.end, waited.outcome), (End::Backstop, None));
    assert!(waited.elapsed >= BACKSTOP);
    assert_eq!(watcher.stats().backstop_completions, 1);
}

#[test]
fn a_word_that_comes_before_the_status_is_held_until_the_status_agrees() {
    let _watchdog = Watchdog::new("early word");
    for policy in POLICIES {
        let watcher = watcher(policy);
        let word = word(1);
        store(&word, 1);
        // The device's status catches up with its word at the third question.
        let mut asked = 0;
        let status = move || {
            asked += 1;
            Ok(asked == 3)
        };
        let waited = block_on(watcher.watch(word, NEVER, status)).unwrap();
        assert_eq!((waited.end, waited.queries), (End::Parked, 3));
    }
}

#[test]
fn f13_a_deadline_ends_the_watch_and_the_work_can_be_watched_again() {
    let _watchdog = Watchdog::new("f13");
    for policy in POLICIES {
        let watcher = watcher(policy);
        let (stream, hang) = (shared_stream(&device()), Hang::new());
        stream.queue(Work::new().hang(&hang)).unwrap();
        let number = stream.mark().unwrap();
        let deadline = now().after(DurNs::from_ms(3));
        let watch = watcher.watch_stream(stream.clone(), number, OPTIONS.deadline(deadline));
        let Err(WatchError::TimedOut(waited)) = block_on(watch) else { panic!("no time-out") };
        assert!(now() >= deadline && waited.end == End::TimedOut && waited.outcome.is_none());
        hang.release();
        let waited = block_on(watcher.watch_stream(stream, number, OPTIONS)).unwrap();
        assert_ne!(waited.end, End::TimedOut);
        let stats = watcher.stats();
        assert_eq!((stats.timed_out, stats.completed, stats.errors), (1, 1, 0));
    }
}

#[test]
fn what_is_done_at_its_deadline_is_done() {
    let _watchdog = Watchdog::new("deadline tie");
    let watcher = watcher(WatchPolicy::default());
    // The word is silent; only the look after the deadline can tell.
    let watch = watcher.watch(word(1), NEVER.deadline(now()), || Ok(true));
    assert_eq!(block_on(watch).unwrap().end, End::Backstop);
}

#[test]
fn a_status_that_hangs_for_ever_stops_neither_others_nor_errors_nor_its_own_deadline() {
    let _watchdog = Watchdog::new("hanging status");
    for policy in POLICIES {
        let watcher = watcher(policy);
        let device = device();
        let (stuck, hang) = (shared_stream(&device), Hang::new());
        let never = Hang::new();
        stuck.queue(Work::new().hang(&never)).unwrap();
        let number = stuck.mark().unwrap();
        stuck.inject_query(QueryFault::Hang(hang.clone()));
        let deadline = now().after(DurNs::from_ms(60));
        let hung = {
            let watcher = watcher.clone();
            let options = OPTIONS.deadline(deadline);
            thread::spawn(move || block_on(watcher.watch_stream(stuck, number, options)))
        };
        wait_for(|| hang.holding() == 1);
        // Others go on: words, errors, time-outs.
        let (other, failing) = (shared_stream(&device), shared_stream(&device));
        for _ in 0..20 {
            let number = other.mark().unwrap();
            let waited = block_on(watcher.watch_stream(other.clone(), number, OPTIONS));
            assert_eq!(waited.unwrap().end, End::Parked);
        }
        failing.queue(Work::new().fault(Fault::new(700, "ILLEGAL_ADDRESS"))).unwrap();
        let result = block_on(watcher.watch_stream(failing, 1, OPTIONS));
        status_error(result);
        let short = OPTIONS.deadline(now().after(DurNs::from_ms(1)));
        let result = block_on(watcher.watch(word(1), short, || Ok(false)));
        assert!(matches!(result, Err(WatchError::TimedOut(_))));
        let Err(WatchError::TimedOut(_)) = hung.join().unwrap() else { panic!("no time-out") };
        let late = now().since(deadline);
        println!("{policy:?}: timed out {late} after its deadline");
        assert!(hang.holding() == 1, "it hangs still");
        let stats = watcher.stats();
        assert_eq!((stats.abandoned, stats.returned), (1, 0), "{stats:?}");
        hang.release();
        wait_for(|| watcher.stats().returned == 1);
        never.release();
    }
}

#[test]
fn a_late_answer_counts_where_the_watch_still_waits() {
    let _watchdog = Watchdog::new("late answer");
    let watcher = watcher(WatchPolicy::SPIN);
    let hang = Hang::new();
    let stream = shared_stream(&device());
    stream.inject_query(QueryFault::Hang(hang.clone()));
    let number = stream.mark().unwrap();
    let waiting = {
        let (watcher, stream) = (watcher.clone(), stream.clone());
        thread::spawn(move || block_on(watcher.watch_stream(stream, number, OPTIONS)))
    };
    wait_for(|| watcher.stats().abandoned == 1);
    hang.release();
    assert_eq!(waiting.join().unwrap().unwrap().end, End::Parked);
    wait_for(|| watcher.stats().returned == 1);
    // The thread that was late is the crew's again: three more hangs one after the other.
    for _ in 0..3 {
        let hang = Hang::new();
        stream.inject_query(QueryFault::Hang(hang.clone()));
        let number = stream.mark().unwrap();
        let mut watch = watcher.watch_stream(stream.clone(), number, OPTIONS);
        assert!(poll(&mut watch).is_pending());
        wait_for(|| hang.holding() == 1);
        hang.release();
        block_on(watch).unwrap();
    }
}

#[test]
fn with_too_many_threads_stuck_time_outs_go_on_and_what_cannot_be_asked_ends_with_an_error() {
    let _watchdog = Watchdog::new("all stuck");
    let policy = WatchPolicy { stuck_max: 2, ..WatchPolicy::SPIN };
    let watcher = watcher(policy);
    let device = device();
    let hangs: Vec<_> = (0..2)
        .map(|_| {
            let (stream, hang) = (shared_stream(&device), Hang::new());
            stream.inject_query(QueryFault::Hang(hang.clone()));
            let number = stream.mark().unwrap();
            let mut watch = watcher.watch_stream(stream, number, OPTIONS);
            assert!(poll(&mut watch).is_pending());
            wait_for(|| hang.holding() == 1);
            (hang, watch)
        })
        .collect();
    wait_for(|| watcher.stats().abandoned == 2);
    let deadline = OPTIONS.deadline(now().after(DurNs::from_ms(3)));
    let timed_out = block_on(watcher.watch(word(1), deadline, || Ok(true)));
    assert!(matches!(timed_out, Err(WatchError::TimedOut(_))), "{timed_out:?}");
    let silent = block_on(watcher.watch(word(1), OPTIONS, || Ok(true)));
    assert_eq!(watcher_error(silent), ErrorCode::StatusStuck);
    let there = word(1);
    store(&there, 1);
    let there = block_on(watcher.watch(there, OPTIONS, || Ok(true)));
    assert_eq!(watcher_error(there), ErrorCode::StatusStuck);
    // One thread back is enough.
    let mut hangs = hangs.into_iter();
    let (hang, watch) = hangs.next().unwrap();
    hang.release();
    block_on(watch).unwrap();
    wait_for(|| watcher.stats().returned == 1);
    block_on(watcher.watch(word(1), OPTIONS, || Ok(true))).unwrap();
    for (hang, watch) in hangs {
        hang.release();
        block_on(watch).unwrap();
    }
}

#[test]
fn ten_thousand_watches_from_eight_threads_all_end() {
    let _watchdog = Watchdog::new("ten thousand");
    const THREADS: usize = 8;
    const EACH: usize = 1_250;
    let watcher = watcher(WatchPolicy::default());
    let lines: Arc<Vec<SharedLine>> =
        Arc::new((0..EACH).map(|_| CompletionLine::shared()).collect());
    let storing = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (watcher, lines, storing) = (watcher.clone(), lines.clone(), storing.clone());
            thread::spawn(move || {
                let slot = Slot::ALL[thread];
                let watches: Vec<_> = lines
                    .iter()
                    .map(|line| {
                        let word = OwnedDescriptor { line: line.clone(), slot, target: 1 };
                        let mut watch = watcher.watch(word.clone(), NEVER, agreeing(&word));
                        assert!(poll(&mut watch).is_pending());
                        watch
                    })
                    .collect();
                storing.store(true, Ordering::Relaxed);
                for line in lines.iter() {
                    (**line).as_ref().store(slot, 1);
                }
                for watch in watches {
                    assert_eq!(block_on(watch).unwrap().end, End::Parked);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let stats = watcher.stats();
    assert_eq!((stats.registered, stats.completed), (10_000, 10_000), "{stats:?}");
}

/// A line that says when it is dropped.
struct Told(CompletionLine, Arc<AtomicU64>);

impl AsRef<CompletionLine> for Told {
    fn as_ref(&self) -> &CompletionLine {
        &self.0
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_watch_dropped_before_during_or_after_its_end_leaves_nothing_behind() {
    let _watchdog = Watchdog::new("drops");
    for policy in POLICIES {
        let watcher = watcher(policy);
        let dropped = Arc::new(AtomicU64::new(0));
        let line = || -> SharedLine { Arc::new(Told(CompletionLine::default(), dropped.clone())) };
        let word = |line| OwnedDescriptor { line, slot: Slot::ALL[0], target: 1 };
        // Never polled.
        drop(watcher.watch(word(line()), NEVER, || Ok(false)));
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        // While it waits; and while one keeps the thread from sleeping for good.
        let mut other = watcher.watch(word(line()), NEVER, || Ok(false));
        assert!(poll(&mut other).is_pending());
        let mut watch = watcher.watch(word(line()), NEVER, || Ok(false));
        assert!(poll(&mut watch).is_pending());
        wait_for(|| watcher.stats().registered == 2);
        let wakes = watcher.stats().wakes;
        drop(watch);
        assert_eq!(watcher.stats().wakes, wakes, "a drop wakes nobody");
        wait_for(|| dropped.load(Ordering::Relaxed) == 2);
        // At once after its registration.
        let mut watch = watcher.watch(word(line()), NEVER, || Ok(false));
        assert!(poll(&mut watch).is_pending());
        drop(watch);
        wait_for(|| dropped.load(Ordering::Relaxed) == 3);
        // After its end, with the result never taken.
        let shared = line();
        let mut watch = watcher.watch(word(shared.clone()), NEVER, || Ok(true));
        assert!(poll(&mut watch).is_pending());
        (*shared).as_ref().store(Slot::ALL[0], 1);
        drop(shared);
        wait_for(|| watcher.stats().completed == 1);
        drop(watch);
        wait_for(|| dropped.load(Ordering::Relaxed) == 4);
        drop(other);
        wait_for(|| dropped.load(Ordering::Relaxed) == 5);
        wait_for(|| watcher.stats().dropped == 3);
    }
}

#[test]
fn a_watch_dropped_while_its_status_is_asked_is_let_go_once_it_was_answered() {
    let _watchdog = Watchdog::new("drop in call");
    let watcher = watcher(WatchPolicy::SPIN);
    let (stream, hang) = (shared_stream(&device()), Hang::new());
    stream.inject_query(QueryFault::Hang(hang.clone()));
    let number = stream.mark().unwrap();
    let mut watch = watcher.watch_stream(stream.clone(), number, OPTIONS);
    assert!(poll(&mut watch).is_pending());
    wait_for(|| hang.holding() == 1);
    drop(watch);
    hang.release();
    wait_for(|| Arc::strong_count(&stream) == 1);
    assert_eq!(watcher.stats().completed, 0);
}

#[test]
fn a_forgotten_watch_keeps_its_line_until_its_number_is_reached() {
    let _watchdog = Watchdog::new("forgotten");
    let watcher = watcher(WatchPolicy::default());
    let device = device();
    let (stream, hang) = (shared_stream(&device), Hang::new());
    stream.queue(Work::new().hang(&hang)).unwrap();
    let number = stream.mark().unwrap();
    let word = descriptor(&stream, number);
    let mut watch = watcher.watch(word.clone(), OPTIONS, agreeing(&word));
    assert!(poll(&mut watch).is_pending());
    std::mem::forget(watch);
    drop((stream, word));
    thread::sleep(Duration::from_millis(5));
    hang.release();
    wait_for(|| watcher.stats().completed == 1);
}

#[test]
fn a_forgotten_watch_of_a_line_that_nobody_stores_into_keeps_it_until_the_watcher_ends() {
    let _watchdog = Watchdog::new("forgotten, silent");
    let watcher = watcher(WatchPolicy::default());
    let dropped = Arc::new(AtomicU64::new(0));
    let line: SharedLine = Arc::new(Told(CompletionLine::default(), dropped.clone()));
    let word = OwnedDescriptor { line, slot: Slot::ALL[0], target: 1 };
    let mut watch = watcher.watch(word, OPTIONS, || Ok(false));
    assert!(poll(&mut watch).is_pending());
    std::mem::forget(watch);
    wait_for(|| watcher.stats().queries >= 2);
    assert_eq!(dropped.load(Ordering::Relaxed), 0, "a device may still store into it");
    drop(watcher);
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}

#[test]
fn dropping_the_watcher_ends_what_is_left_with_an_error_also_behind_a_hanging_status() {
    let _watchdog = Watchdog::new("watcher dropped");
    for policy in POLICIES {
        let watcher = watcher(policy);
        let (stream, hang) = (shared_stream(&device()), Hang::new());
        stream.inject_query(QueryFault::Hang(hang.clone()));
        let number = stream.mark().unwrap();
        let start = |watch: Pin<Box<dyn Future<Output = WatchResult> + Send>>| {
            thread::spawn(move || block_on(watch))
        };
        let waiting = [
            start(Box::pin(watcher.watch(word(1), NEVER, || Ok(false)))),
            start(Box::pin(watcher.watch_stream(stream, number, NEVER))),
        ];
        wait_for(|| hang.holding() == 1 && watcher.stats().registered == 2);
        let unpolled = watcher.watch(word(1), NEVER, || Ok(true));
        let began = now();
        drop(watcher);
        let took = now().since(began);
        println!("{policy:?}: dropped in {took}");
        for waiting in waiting {
            assert_eq!(watcher_error(waiting.join().unwrap()), ErrorCode::WatcherClosed);
        }
        assert_eq!(watcher_error(block_on(unpolled)), ErrorCode::WatcherClosed);
        assert!(hang.holding() == 1, "the call hangs still, and nobody waits for it");
        hang.release();
    }
}

/// A waker that runs code.
struct Run<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Run<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn running(code: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Run(code)))
}

#[test]
fn a_waker_may_register_drop_and_ask_the_watcher_and_even_be_its_last_handle() {
    let _watchdog = Watchdog::new("wakers come back");
    type Held = Mutex<Option<Pin<Box<dyn Future<Output = WatchResult> + Send>>>>;
    let watcher = watcher(WatchPolicy::default());
    let dropped: Arc<Held> = Arc::default();
    let registered: Arc<Held> = Arc::default();
    let mut other = watcher.watch(word(1), NEVER, || Ok(false));
    assert!(poll(&mut other).is_pending());
    *dropped.lock().unwrap() = Some(Box::pin(other));
    let first = word(1);
    let next = word(1);
    let mut watch = watcher.watch(first.clone(), NEVER, agreeing(&first));
    let waker = {
        let (watcher, dropped, registered) = (watcher.clone(), dropped.clone(), registered.clone());
        let next = next.clone();
        running(move || {
            drop(dropped.lock().unwrap().take());
            let mut watch = Box::pin(watcher.watch(next.clone(), NEVER, agreeing(&next)));
            assert!(poll(&mut watch).is_pending());
            assert!(watcher.stats().registered >= 2);
            *registered.lock().unwrap() = Some(watch);
        })
    };
    assert!(Pin::new(&mut watch).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    store(&first, 1);
    wait_for(|| registered.lock().unwrap().is_some());
    store(&next, 1);
    let watch = registered.lock().unwrap().take().unwrap();
    block_on(watch).unwrap();
    wait_for(|| watcher.stats().dropped == 1);
    // The last handle is dropped by a waker, on the watcher's own thread.
    let last = word(1);
    let mut watch = watcher.watch(last.clone(), NEVER, agreeing(&last));
    let holder = Arc::new(Mutex::new(Some(watcher)));
    let waker = {
        let holder = holder.clone();
        running(move || drop(holder.lock().unwrap().take()))
    };
    assert!(Pin::new(&mut watch).poll(&mut Context::from_waker(&waker)).is_pending());
    store(&last, 1);
    wait_for(|| holder.lock().unwrap().is_none());
}

#[test]
fn a_waker_or_a_status_that_panics_harms_nobody_else() {
    let _watchdog = Watchdog::new("panics");
    let watcher = watcher(WatchPolicy::default());
    let (first, second) = (word(1), word(1));
    let mut watch = watcher.watch(first.clone(), NEVER, agreeing(&first));
    let waker = running(|| panic!("a waker of the test"));
    assert!(Pin::new(&mut watch).poll(&mut Context::from_waker(&waker)).is_pending());
    store(&first, 1);
    wait_for(|| watcher.stats().panics == 1);
    assert!(block_on(watch).is_ok(), "the result is there all the same");
    let result = block_on(watcher.watch(word(1), OPTIONS, || panic!("a status of the test")));
    assert_eq!(status_error(result).code(), ErrorCode::Backend);
    store(&second, 1);
    block_on(watcher.watch(second.clone(), NEVER, agreeing(&second))).unwrap();
}

#[test]
fn f22_registering_wakes_the_thread_only_from_empty_or_for_an_earlier_event() {
    let _watchdog = Watchdog::new("f22");
    // Slices so long that only a wake can end one within this test.
    let asleep = DurNs::from_ms(600_000);
    let park = ParkPolicy {
        spin: DurNs::ZERO,
        yielding: DurNs::ZERO,
        min_slice: asleep,
        max_slice: asleep,
    };
    let watcher = watcher(WatchPolicy { park, linger: DurNs::ZERO, ..WatchPolicy::SAVING });
    let mut watches = Vec::new();
    let mut register = |options: WatchOptions| {
        // Until the thread has gone to sleep again.
        thread::sleep(Duration::from_millis(20));
        let mut watch = watcher.watch(word(1), options, || Ok(false));
        assert!(poll(&mut watch).is_pending());
        watches.push(watch);
        thread::sleep(Duration::from_millis(20));
        watcher.stats().wakes
    };
    let seconds = |seconds: u64| WatchOptions::new(DurNs::from_ms(1_000 * seconds));
    assert_eq!(register(seconds(100)), 1, "from empty");
    for _ in 0..5 {
        assert_eq!(register(seconds(100)), 1, "its backstop is the later one");
    }
    assert_eq!(register(seconds(50)), 2, "its backstop is the earliest");
    assert_eq!(register(seconds(70)), 2);
    let deadline = now().after(DurNs::from_ms(30_000));
    assert_eq!(register(seconds(70).deadline(deadline)), 3, "its deadline is the earliest");
    assert_eq!(register(seconds(100)), 3);
    drop(watches);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(watcher.stats().wakes, 3, "drops wake nobody");
}
