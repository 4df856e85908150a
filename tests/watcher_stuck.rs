//! The watcher beside statuses and wakers that hang, panic or come back.

mod common;

use common::watching::*;
use common::{Watchdog, device, wait_for};
use gpu_async_reactor::backend::software::{Fault, Hang, QueryFault, Work};
use gpu_async_reactor::host::{WatchError, WatchPolicy, WatchResult};
use gpu_async_reactor::{DeviceStream, DurNs, End, ErrorCode};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Context;
use std::thread;

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
        // Those of other devices go on: words, errors, time-outs.
        let others = common::device();
        let (other, failing) = (shared_stream(&others), shared_stream(&others));
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
        assert!(stats.abandoned > stats.returned, "{stats:?}");
        hang.release();
        wait_for(|| watcher.stats().returned == watcher.stats().abandoned);
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
    wait_for(|| watcher.stats().abandoned >= 1);
    hang.release();
    assert_eq!(waiting.join().unwrap().unwrap().end, End::Parked);
    wait_for(|| watcher.stats().returned >= 1);
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
    // Of one device a second one would not be asked.
    let hangs: Vec<_> = (0..2)
        .map(|_| {
            let (stream, hang) = (shared_stream(&device()), Hang::new());
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
    // One thread back is enough. It wakes the task before it is there for others.
    let mut hangs = hangs.into_iter();
    let (hang, watch) = hangs.next().unwrap();
    hang.release();
    block_on(watch).unwrap();
    wait_for(|| watcher.stats().returned == 1);
    wait_for(|| match block_on(watcher.watch(word(1), OPTIONS, || Ok(true))) {
        Ok(_) => true,
        refused => {
            assert_eq!(watcher_error(refused), ErrorCode::StatusStuck);
            false
        }
    });
    for (hang, watch) in hangs {
        hang.release();
        block_on(watch).unwrap();
    }
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
fn a_waker_that_hangs_stops_nobody_else() {
    let _watchdog = Watchdog::new("hanging waker");
    for policy in POLICIES {
        let watcher = watcher(policy);
        let (word, hang) = (word(1), Arc::new(Mutex::new(())));
        let held = hang.lock().unwrap();
        let mut watch = watcher.watch(word.clone(), NEVER, agreeing(&word));
        let waker = {
            let hang = hang.clone();
            running(move || drop(hang.lock().unwrap()))
        };
        assert!(Pin::new(&mut watch).poll(&mut Context::from_waker(&waker)).is_pending());
        store(&word, 1);
        wait_for(|| watcher.stats().abandoned >= 1);
        block_on(watcher.watch(word.clone(), NEVER, agreeing(&word))).unwrap();
        block_on(watch).unwrap();
        drop(held);
        wait_for(|| watcher.stats().returned == watcher.stats().abandoned);
    }
}
