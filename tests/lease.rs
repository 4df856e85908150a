//! Buffers that a device is using. Where a test is about a row of `docs/faults.md`, its name begins
//! with it.
#![cfg(feature = "software")]

mod common;
mod leases;

use common::{Watchdog, device, is_fault, seen, wait_for};
use gpu_async_reactor::backend::lease::{DeviceBuffer, LeaseStats, NotYetReason, PinnedBuffer};
use gpu_async_reactor::backend::software::{
    Fault, Hang, QueryFault, SoftwareBuffer, StoreFault, Work,
};
use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{
    Clock, DeviceStream, DurNs, End, Error, ErrorCode, Executor, Reactor, ReactorPort, ThreadPort,
    run_inline, yield_now,
};
use leases::{PATTERN, Rig, SPIN, idle, plan, stats, wait_for_lease};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[test]
fn a_buffer_comes_back_once_the_status_agrees_and_not_by_the_word_alone() {
    let _watchdog = Watchdog::new("status agrees");
    let rig = Rig::new();
    let gate = Hang::new();
    // The word is stored long before the status says done.
    rig.stream.inject_store(StoreFault::Early(DurNs::from_ms(500)));
    let lease = rig.lease(&gate);
    assert_eq!(rig.stats(), stats(1, 0, 0));
    let not_yet = lease.try_take().unwrap_err();
    assert_eq!(*not_yet.reason(), NotYetReason::Pending);
    gate.release();
    let lease = not_yet.into_lease();
    wait_for(|| lease.descriptor().is_complete());
    let early = lease.try_take().unwrap_err();
    assert_eq!(*early.reason(), NotYetReason::Pending, "the word is a hint");
    let lease = early.into_lease();
    let (buffer, waited) = wait_for_lease(lease, SPIN).unwrap();
    assert_eq!(waited.end, End::Spun);
    assert_eq!(buffer.as_slice::<u8>(), [PATTERN; 64]);
    assert_eq!(rig.stats(), LeaseStats::default());
}

#[test]
fn a_buffer_is_awaited_on_a_reactor_while_other_tasks_run_and_later_work_stands_behind_it() {
    let _watchdog = Watchdog::new("reactor");
    let rig = Rig::new();
    let gate = Hang::new();
    let lease = rig.lease(&gate);
    rig.stream.queue(Work::new().hang(&Hang::new())).unwrap();
    let reactor = Reactor::new(StdClock::new());
    let mut executor = Executor::<std::pin::Pin<Box<dyn Future<Output = ()>>>>::new();
    drop(executor.spawn(Box::pin(async move {
        yield_now().await;
        gate.release();
    })));
    let main = async {
        let port = ReactorPort::new(&rig.stream, &reactor);
        let ticket = lease.ticket();
        lease
            .wait(&plan("flag:park_us=100,backstop_us=2000"), None, &mut port.at(ticket), &reactor)
            .await
    };
    let bound = DurNs::from_us(100);
    let (taken, _) = executor.run_until(&reactor, &mut idle(), bound, main).unwrap();
    assert_eq!(taken.unwrap().0.as_slice::<u8>(), [PATTERN; 64]);
}

#[test]
fn a_lease_is_kept_by_a_wait_that_times_out_and_by_one_of_another_point() {
    let _watchdog = Watchdog::new("time-out");
    let rig = Rig::new();
    let gate = Hang::new();
    let before = rig.stream.mark().unwrap();
    let lease = rig.lease(&gate);
    let clock = StdClock::new();
    let ticket = lease.ticket();
    let soon = clock.monotonic_ns().after(DurNs::from_ms(2));
    let mut port = ThreadPort::new(&rig.stream, idle());
    let (mut at, spin) = (port.at(ticket), plan(SPIN));
    let waiting = lease.wait_until(&spin, None, &mut at, &clock, soon);
    let late = run_inline(waiting).unwrap().unwrap_err();
    assert!(matches!(late.reason(), NotYetReason::TimedOut(waited) if waited.end == End::TimedOut));
    let lease = late.into_lease();

    let other = rig.device.stream().unwrap();
    let mut wrong = ThreadPort::new(&other, idle());
    let waiting = lease.wait(&spin, None, &mut wrong, &clock);
    let wrong = run_inline(waiting).unwrap().unwrap_err();
    assert_eq!(*wrong.reason(), NotYetReason::Pending);
    rig.stream.synchronize_mark(before).unwrap();
    gate.release();
    wait_for_lease(wrong.into_lease(), "block").unwrap();
    assert_eq!(rig.stats(), LeaseStats::default());
}

#[test]
fn f4_a_lease_dropped_before_its_store_waits_for_it_and_is_swept_by_the_next_lease() {
    let _watchdog = Watchdog::new("f4 before");
    let rig = Rig::new();
    let gate = Hang::new();
    drop(rig.lease(&gate));
    assert_eq!((rig.dropped(), rig.stats()), (0, stats(1, 1, 0)));
    assert_eq!(rig.stream.sweep(), 0, "not done");
    let next = rig.lease(&gate);
    assert_eq!((rig.dropped(), rig.stats()), (0, stats(2, 1, 0)), "not done");
    gate.release();
    rig.stream.synchronize().unwrap();
    assert_eq!(rig.dropped(), 0, "nobody has swept");
    let queries = rig.stream.calls().queries;
    let last = rig.lease(&gate);
    assert_eq!((rig.dropped(), rig.stats()), (1, stats(2, 0, 0)));
    assert_eq!(rig.stream.calls().queries, queries + 1, "one status query for one buffer");
    drop((next, last));
    rig.stream.synchronize().unwrap();
    assert_eq!(rig.stream.sweep(), 2);
    assert_eq!((rig.dropped(), rig.stats()), (3, LeaseStats::default()));
}

#[test]
fn f4_a_lease_dropped_while_its_word_is_stored_and_its_status_pending_waits_for_the_status() {
    let _watchdog = Watchdog::new("f4 during");
    let rig = Rig::new();
    let gate = Hang::new();
    // The word long before the status.
    rig.stream.inject_store(StoreFault::Early(DurNs::from_ms(500)));
    let lease = rig.lease(&gate);
    let descriptor = lease.descriptor();
    gate.release();
    wait_for(|| descriptor.is_complete());
    drop(lease);
    let shut = Hang::new();
    let next = rig.lease(&shut);
    assert_eq!((rig.dropped(), rig.stats()), (0, stats(2, 1, 0)), "the word is a hint");
    wait_for(|| rig.stream.query_mark(descriptor.target).unwrap());
    assert_eq!(rig.stream.sweep(), 1);
    assert_eq!((rig.dropped(), rig.stats()), (1, stats(1, 0, 0)));
    drop(next);
    shut.release();
}

#[test]
fn f4_a_lease_dropped_behind_its_store_is_swept_from_any_thread() {
    let _watchdog = Watchdog::new("f4 after");
    let rig = Rig::new();
    let gate = Hang::new();
    gate.release();
    let lease = rig.lease(&gate);
    rig.stream.synchronize().unwrap();
    let any = lease.stream().clone();
    drop(lease);
    assert_eq!(rig.dropped(), 0, "a dropped lease frees nothing");
    assert_eq!(std::thread::spawn(move || any.sweep()).join().unwrap(), 1);
    assert_eq!((rig.dropped(), rig.stats()), (1, LeaseStats::default()));
}

#[test]
fn f4_behind_a_fault_nothing_is_handed_back_and_what_is_dropped_is_leaked_and_counted() {
    let _watchdog = Watchdog::new("f4 faulted");
    for storing in [false, true] {
        let rig = Rig::new();
        let gate = Hang::new();
        let fault = Fault::new(700, "ILLEGAL_ADDRESS");
        let fault = if storing { fault.storing_words() } else { fault };
        rig.stream.queue(Work::new().hang(&gate).fault(fault)).unwrap();
        let (kept, dropped) = (rig.lease(&gate), rig.lease(&gate));
        drop(dropped);
        gate.release();
        wait_for(|| rig.stream.query().is_err());
        wait_for(|| !storing || kept.descriptor().is_complete());
        let failed = wait_for_lease(kept, SPIN).unwrap_err();
        assert!(is_fault(failed.error().unwrap(), "700 ILLEGAL_ADDRESS"));
        let again = failed.into_lease().try_take().unwrap_err();
        assert!(is_fault(again.error().unwrap(), "700 ILLEGAL_ADDRESS"), "and it stays so");
        assert_eq!(rig.stats(), stats(2, 1, 0));
        assert_eq!(rig.stream.sweep(), 0);
        assert_eq!(rig.stats(), stats(1, 0, 1));
        drop(again);
        let Rig { device, stream, dropped } = rig;
        drop(stream);
        wait_for(|| device.lease_stats() == stats(0, 0, 2));
        assert_eq!(dropped.load(Ordering::SeqCst), 0, "never freed");
    }
}

#[test]
fn f4_a_lost_store_is_made_up_for_by_the_status() {
    let _watchdog = Watchdog::new("f4 lost");
    let rig = Rig::new();
    let gate = Hang::new();
    rig.stream.inject_store(StoreFault::Lost);
    rig.stream.inject_store(StoreFault::Lost);
    let (awaited, dropped) = (rig.lease(&gate), rig.lease(&gate));
    drop(dropped);
    gate.release();
    let number = awaited.ticket().number();
    let (buffer, waited) = wait_for_lease(awaited, SPIN).unwrap();
    assert!(matches!(waited.end, End::Backstop | End::Immediate), "not by the word: {waited:?}");
    rig.stream.synchronize().unwrap();
    assert!(!seen(&rig.stream, number));
    assert_eq!(rig.stream.sweep(), 1);
    drop(buffer);
    assert_eq!((rig.dropped(), rig.stats()), (2, LeaseStats::default()));
}

#[test]
fn f4_a_stream_dropped_first_runs_to_its_end_and_its_leases_too() {
    let _watchdog = Watchdog::new("f4 stream first");
    let rig = Rig::new();
    let gate = Hang::new();
    let (awaited, dropped) = (rig.lease(&gate), rig.lease(&gate));
    let Rig { device, stream, dropped: count } = rig;
    drop(stream);
    drop(dropped);
    assert_eq!(device.lease_stats(), stats(2, 1, 0));
    let of_lease = awaited.stream().clone();
    assert_eq!(of_lease.mark().unwrap_err().code(), ErrorCode::Closed, "it has no handle");
    gate.release();
    let (buffer, _) = wait_for_lease(awaited, SPIN).unwrap();
    assert_eq!(buffer.as_slice::<u8>(), [PATTERN; 64]);
    drop((buffer, of_lease));
    // The last handle of the stream is the worker's, which ends its piece of work.
    wait_for(|| device.lease_stats() == LeaseStats::default());
    assert_eq!(count.load(Ordering::SeqCst), 2);
    wait_for(|| device.slots().leased == 0);
}

#[test]
fn f4_a_stream_that_ends_unfinished_leaks_and_counts_what_waits() {
    let _watchdog = Watchdog::new("f4 unfinished");
    let rig = Rig::new();
    let lease = rig.lease(&Hang::new());
    let Rig { device, stream, dropped } = rig;
    device.close();
    drop(stream);
    assert_eq!(lease.try_take().unwrap_err().error().unwrap().args()[1], "-2 DEVICE_CLOSED");
    wait_for(|| device.lease_stats() == stats(0, 0, 1));
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
}

#[test]
fn f4_a_closure_that_fails_or_panics_has_queued_work_and_its_buffer_waits_for_it() {
    let _watchdog = Watchdog::new("f4 closure");
    for panics in [false, true] {
        let rig = Rig::new();
        let gate = Hang::new();
        let stream = &rig.stream;
        let made = catch_unwind(AssertUnwindSafe(|| {
            stream.lease(rig.buffer(), |side| -> Result<(), Error> {
                stream.queue(Work::new().hang(&gate).run(move || {
                    // SAFETY: within the leased memory, which this work has to itself.
                    unsafe { side.address().as_ptr().write_bytes(PATTERN, side.bytes()) };
                }))?;
                assert!(!panics, "the closure panics");
                Err(Error::backend("the second launch", "no memory"))
            })
        }));
        match made {
            Ok(failed) => assert_eq!(failed.unwrap_err().args()[0], "the second launch"),
            Err(_) => assert!(panics),
        }
        assert_eq!((rig.dropped(), rig.stats()), (0, stats(1, 1, 0)), "half of it is queued");
        gate.release();
        stream.synchronize().unwrap();
        assert_eq!(stream.sweep(), 1);
        assert_eq!((rig.dropped(), rig.stats()), (1, LeaseStats::default()));
    }
}

#[test]
fn f4_where_the_mark_is_refused_the_buffer_is_leaked_and_counted() {
    let _watchdog = Watchdog::new("f4 no mark");
    let rig = Rig::new();
    let device = rig.device.clone();
    let refused = rig.stream.lease(rig.buffer(), |_| {
        device.lose(Fault::new(46, "DEVICE_LOST"));
        Ok(())
    });
    assert!(is_fault(&refused.unwrap_err(), "46 DEVICE_LOST"));
    let refused = catch_unwind(AssertUnwindSafe(|| {
        rig.stream.lease(rig.buffer(), |_| -> Result<(), Error> { panic!("the closure panics") })
    }));
    assert!(refused.is_err());
    assert_eq!((rig.dropped(), rig.stats()), (0, stats(0, 0, 2)));
}

#[test]
fn f4_a_forgotten_lease_frees_nothing() {
    let _watchdog = Watchdog::new("f4 forgotten");
    let rig = Rig::new();
    let gate = Hang::new();
    let forgotten = rig.lease(&gate);
    let stream = Arc::downgrade(forgotten.stream());
    std::mem::forget(forgotten);
    gate.release();
    rig.stream.synchronize().unwrap();
    assert_eq!(rig.stream.sweep(), 0);
    assert_eq!((rig.dropped(), rig.stats()), (0, stats(1, 0, 0)));
    let Rig { stream: handle, .. } = rig;
    drop(handle);
    assert!(stream.upgrade().is_some(), "and keeps its stream");
}

#[test]
fn a_destructor_that_panics_in_a_sweep_is_counted_and_the_others_are_swept() {
    let _watchdog = Watchdog::new("panicking destructor");
    let rig = Rig::new();
    let gate = Hang::new();
    for at in 0..5 {
        let panics = at % 2 == 1;
        drop(rig.lease_with(rig.buffer_that(panics), &gate));
    }
    gate.release();
    rig.stream.synchronize().unwrap();
    assert_eq!(rig.stream.sweep(), 5);
    assert_eq!(rig.dropped(), 5);
    assert_eq!(rig.stats(), LeaseStats { panicked: 2, ..LeaseStats::default() });
}

#[test]
fn a_sweep_asks_only_for_the_bound_between_done_and_pending() {
    let _watchdog = Watchdog::new("sweep queries");
    let rig = Rig::new();
    let (open, shut) = (Hang::new(), Hang::new());
    open.release();
    let done: Vec<_> = (0..100).map(|_| rig.lease(&open)).collect();
    rig.stream.synchronize().unwrap();
    let pending: Vec<_> = (0..100).map(|_| rig.lease(&shut)).collect();
    drop(done);
    drop(pending);
    let queries = rig.stream.calls().queries;
    assert_eq!(rig.stream.sweep(), 100);
    let asked = rig.stream.calls().queries - queries;
    assert!(asked <= 9, "{asked} queries for a bound among 200 numbers");
    assert_eq!(rig.stats(), stats(100, 100, 0));
    let queries = rig.stream.calls().queries;
    assert_eq!((rig.stream.sweep(), rig.stream.calls().queries - queries <= 8), (0, true));
    shut.release();
    rig.stream.synchronize().unwrap();
    let queries = rig.stream.calls().queries;
    assert_eq!((rig.stream.sweep(), rig.stream.calls().queries - queries), (100, 1));
}

#[test]
fn a_status_that_fails_once_leaks_what_was_asked_about_and_nothing_else() {
    let _watchdog = Watchdog::new("one failure");
    let rig = Rig::new();
    let gate = Hang::new();
    gate.release();
    let leases = [rig.lease(&gate), rig.lease(&gate)];
    rig.stream.synchronize().unwrap();
    rig.stream.inject_query(QueryFault::Fail(Fault::new(999, "UNKNOWN")));
    drop(leases);
    assert_eq!(rig.stream.sweep(), 1);
    assert_eq!(rig.stats(), stats(0, 0, 1));
}

#[test]
fn a_readback_is_read_as_a_slice_of_what_was_copied() {
    let _watchdog = Watchdog::new("readback");
    let device = device();
    let stream = device.stream().unwrap();
    let words: Vec<u32> = (0..100).collect();
    let source =
        SoftwareBuffer::from(words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>());
    let readback = stream.read_back::<u32, _>(&source, 40..240, PinnedBuffer::new(4096)).unwrap();
    let ticket = readback.ticket();
    let mut port = ThreadPort::new(&stream, idle());
    let (mut at, spin, clock) = (port.at(ticket), plan(SPIN), StdClock::new());
    let waiting = readback.wait(&spin, None, &mut at, &clock);
    let (landed, _) = run_inline(waiting).unwrap().unwrap();
    assert_eq!(*landed, words[10..60]);
    let again = stream.read_back::<u8, _>(&source, 0..4, landed.into_buffer()).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(*again.try_read().unwrap(), [0, 0, 0, 0]);

    let small = PinnedBuffer::new(3);
    let unfit = catch_unwind(AssertUnwindSafe(|| stream.read_back::<u8, _>(&source, 0..4, small)));
    assert!(unfit.is_err());
    assert_eq!(device.lease_stats(), LeaseStats::default());
}

#[test]
fn an_upload_copies_the_leased_bytes() {
    let _watchdog = Watchdog::new("upload");
    let device = device();
    let stream = device.stream().unwrap();
    let target = SoftwareBuffer::new(8);
    let mut buffer = PinnedBuffer::new(4);
    buffer.as_mut_slice::<u8>().copy_from_slice(&[1, 2, 3, 4]);
    let lease = stream.upload(buffer, &target, 2).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(lease.try_take().unwrap().as_slice::<u8>(), [1, 2, 3, 4]);
    target.read(|bytes| assert_eq!(bytes, [0, 0, 1, 2, 3, 4, 0, 0]));
}
