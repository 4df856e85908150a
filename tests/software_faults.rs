//! How the software device fails when it is told to.
#![cfg(all(feature = "software", not(loom)))]

mod common;

use common::{assert_faulted, device, is_fault, seen, wait_for};
use gpu_async_reactor::backend::software::{
    Fault, Hang, QueryFault, SoftwareDevice, StoreFault, Work,
};
use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{Clock, DeviceStream, Doorbell, DurNs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

#[test]
fn a_fault_is_sticky_and_stores_no_word_behind_it() {
    let device = device();
    let stream = device.stream().unwrap();
    let gate = Hang::new();
    let before = stream.mark().unwrap();
    let ran = Arc::new(AtomicU64::new(0));
    let counter = ran.clone();
    stream.queue(Work::new().hang(&gate).fault(Fault::new(700, "ILLEGAL_ADDRESS"))).unwrap();
    stream.run(move || _ = counter.fetch_add(1, Ordering::Relaxed)).unwrap();
    let behind = stream.mark().unwrap();
    stream.synchronize_mark(before).unwrap();
    gate.release();
    assert!(is_fault(&stream.synchronize_mark(behind).unwrap_err(), "700 ILLEGAL_ADDRESS"));
    assert_faulted(&stream, "700 ILLEGAL_ADDRESS");
    device.close();
    assert!(seen(&stream, before) && !seen(&stream, behind));
    assert_eq!(ran.load(Ordering::Relaxed), 0, "work behind a fault is discarded");
    assert_eq!(Arc::strong_count(&ran), 1, "and dropped");
}

#[test]
fn a_word_stored_behind_a_fault_does_not_make_its_work_done() {
    let device = device();
    let stream = device.stream().unwrap();
    let gate = Hang::new();
    let fault = Fault::new(719, "LAUNCH_FAILED").storing_words();
    stream.queue(Work::new().hang(&gate).fault(fault).delay(DurNs::MAX)).unwrap();
    let number = stream.mark().unwrap();
    gate.release();
    wait_for(|| seen(&stream, number));
    assert!(is_fault(&stream.query_mark(number).unwrap_err(), "719 LAUNCH_FAILED"));
    assert_faulted(&stream, "719 LAUNCH_FAILED");
}

#[test]
fn a_thread_blocked_in_synchronize_gets_the_fault() {
    let device = device();
    let stream = device.stream().unwrap();
    let gate = Hang::new();
    stream.queue(Work::new().hang(&gate).fault(Fault::new(1, "LATE"))).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| stream.synchronize());
        wait_for(|| gate.holding() == 1 && stream.calls().synchronizes == 1);
        gate.release();
        assert!(is_fault(&waiter.join().unwrap().unwrap_err(), "1 LATE"));
    });
}

#[test]
fn a_fault_of_one_stream_spares_the_others_and_a_lost_device_none() {
    let device = device();
    let (bad, good) = (device.stream().unwrap(), device.stream().unwrap());
    bad.queue(Work::new().fault(Fault::new(2, "MINE"))).unwrap();
    assert!(is_fault(&bad.synchronize().unwrap_err(), "2 MINE"));
    good.mark().unwrap();
    good.synchronize().unwrap();

    let hang = Hang::new();
    good.queue(Work::new().hang(&hang)).unwrap();
    device.lose(Fault::new(46, "DEVICE_LOST"));
    assert_faulted(&good, "46 DEVICE_LOST");
    assert_faulted(&bad, "2 MINE");
    assert!(is_fault(&device.stream().unwrap_err(), "46 DEVICE_LOST"));
}

#[test]
fn a_closure_that_panics_faults_its_stream_and_spares_the_worker() {
    let device = SoftwareDevice::builder().workers(1).build().unwrap();
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    stream.run(|| std::panic::resume_unwind(Box::new("on the device"))).unwrap();
    assert!(is_fault(&stream.synchronize().unwrap_err(), "-1 CLOSURE_PANICKED"));
    other.mark().unwrap();
    other.synchronize().unwrap();
}

#[test]
fn a_failing_query_is_an_error_once_and_not_a_pending_status() {
    let device = device();
    let stream = device.stream().unwrap();
    let number = stream.mark().unwrap();
    stream.synchronize().unwrap();
    stream.inject_query(QueryFault::Fail(Fault::new(30, "TRY_AGAIN")));
    stream.inject_query(QueryFault::Fail(Fault::new(31, "AND_AGAIN")));
    assert!(is_fault(&stream.query_mark(number).unwrap_err(), "30 TRY_AGAIN"));
    assert!(is_fault(&stream.query().unwrap_err(), "31 AND_AGAIN"));
    assert!(stream.query().unwrap() && stream.query_mark(number).unwrap());
}

#[test]
fn a_query_that_hangs_answers_once_released() {
    let device = device();
    let stream = device.stream().unwrap();
    let stuck = Hang::new();
    stream.inject_query(QueryFault::Hang(stuck.clone()));
    thread::scope(|scope| {
        let query = scope.spawn(|| stream.query());
        wait_for(|| stuck.holding() == 1);
        assert!(stream.query().unwrap(), "other threads' queries go on");
        stuck.release();
        assert!(query.join().unwrap().unwrap());
    });
}

#[test]
fn hung_work_stays_pending_until_released_and_blocks_no_other_stream() {
    let device = device();
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    let hang = Hang::new();
    stream.queue(Work::new().hang(&hang)).unwrap();
    let number = stream.mark().unwrap();
    wait_for(|| hang.holding() == 1);
    for _ in 0..100 {
        other.mark().unwrap();
        other.synchronize().unwrap();
    }
    assert!(!stream.query().unwrap() && !stream.query_mark(number).unwrap());
    hang.release();
    stream.synchronize_mark(number).unwrap();
    stream.queue(Work::new().hang(&hang)).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn a_lost_store_reads_done_and_the_next_one_lands() {
    let device = device();
    let bell = Doorbell::new();
    let stream = device.stream_on(&bell).unwrap();
    let quiet = bell.snapshot();
    stream.inject_store(StoreFault::Lost);
    let lost = stream.mark().unwrap();
    stream.synchronize_mark(lost).unwrap();
    assert!(stream.query_mark(lost).unwrap());
    assert!(!seen(&stream, lost) && !bell.changed_since(&quiet));
    assert_eq!(stream.stamp_of(lost), None);
    let next = stream.mark().unwrap();
    stream.synchronize_mark(next).unwrap();
    assert!(seen(&stream, next) && bell.changed_since(&quiet));
}

#[test]
fn a_late_store_holds_no_work_up_and_never_takes_a_later_one_back() {
    let device = device();
    let stream = device.stream().unwrap();
    stream.inject_store(StoreFault::Late(DurNs::from_ms(300)));
    let late = stream.mark().unwrap();
    stream.synchronize_mark(late).unwrap();
    assert!(stream.query_mark(late).unwrap());
    assert!(!seen(&stream, late));
    let next = stream.mark().unwrap();
    stream.synchronize_mark(next).unwrap();
    assert!(seen(&stream, next), "work behind it does not wait for it");
    assert_eq!(stream.stamp_of(late), None);
    device.close();
    assert!(stream.stamp_of(late) > stream.stamp_of(next), "closing waits for it");
    assert!(seen(&stream, next), "the late number is smaller than what stands there");
}

#[test]
fn an_early_word_comes_its_time_before_the_status() {
    let device = device();
    let stream = device.stream().unwrap();
    let early_by = DurNs::from_ms(3);
    stream.inject_store(StoreFault::Early(early_by));
    let number = stream.mark().unwrap();
    wait_for(|| seen(&stream, number));
    let pending = !stream.query_mark(number).unwrap();
    let clock = StdClock::new();
    let landed = stream.stamp_of(number).unwrap();
    assert!(pending || clock.monotonic_ns().since(landed) >= early_by);
    stream.synchronize_mark(number).unwrap();
    assert!(clock.monotonic_ns().since(landed) >= early_by);
}

#[test]
fn a_silent_store_writes_the_word_and_leaves_the_doorbell() {
    let device = device();
    let bell = Doorbell::new();
    let stream = device.stream_on(&bell).unwrap();
    let quiet = bell.snapshot();
    stream.inject_store(StoreFault::Silent);
    let number = stream.mark().unwrap();
    stream.synchronize_mark(number).unwrap();
    assert!(seen(&stream, number) && !bell.changed_since(&quiet));
}

#[test]
fn the_slot_of_a_faulted_lost_or_hung_stream_is_retired() {
    let device = device();
    let (faulted, lost) = (device.stream().unwrap(), device.stream().unwrap());
    faulted.queue(Work::new().fault(Fault::new(1, "FAULT"))).unwrap();
    faulted.synchronize().unwrap_err();
    lost.inject_store(StoreFault::Lost);
    lost.mark().unwrap();
    lost.synchronize().unwrap();
    drop((faulted, lost));
    wait_for(|| device.slots().retired == 2);

    let hang = Hang::new();
    let hung = device.stream().unwrap();
    hung.queue(Work::new().hang(&hang)).unwrap();
    drop((hung, hang));
    wait_for(|| device.slots().retired == 3);
    assert_eq!(device.slots().leased, 0);
}

#[test]
fn the_slot_of_a_stream_with_a_late_store_drains() {
    let device = device();
    let stream = device.stream().unwrap();
    stream.inject_store(StoreFault::Late(DurNs::from_ms(300)));
    stream.mark().unwrap();
    stream.synchronize().unwrap();
    drop(stream);
    wait_for(|| device.slots().leased == 0);
    assert_eq!((device.slots().draining, device.slots().retired), (1, 0));
}
