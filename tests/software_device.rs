//! What the software device does where nothing goes wrong: order, time, and how streams come and go.
#![cfg(all(feature = "software", not(loom)))]

mod common;

use common::{descriptor, device, is_fault, seen, wait_for};
use gpu_async_reactor::backend::software::{Fault, Hang, SoftwareBuffer, StoreFault, Work};
use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{Clock, DeviceStream, Doorbell, DurNs, ErrorCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;

#[test]
fn work_runs_in_the_order_in_which_it_was_queued() {
    let device = device();
    let stream = device.stream().unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = |at: u32| {
        let order = order.clone();
        move || order.lock().unwrap().push(at)
    };
    let gate = Hang::new();
    let delay = DurNs::from_us(300);
    stream.queue(Work::new().hang(&gate).run(note(0)).delay(delay).run(note(1))).unwrap();
    for at in 2..200 {
        stream.run(note(at)).unwrap();
    }
    let number = stream.mark().unwrap();
    assert!(!stream.query_mark(number).unwrap());
    gate.release();
    stream.synchronize_mark(number).unwrap();
    assert!(stream.query().unwrap() && stream.query_mark(number).unwrap() && seen(&stream, number));
    assert_eq!(*order.lock().unwrap(), (0..200).collect::<Vec<u32>>());
}

#[test]
fn a_copy_has_been_made_once_the_mark_behind_it_is_seen() {
    let device = device();
    let stream = device.stream().unwrap();
    let from = SoftwareBuffer::from((0..100).collect::<Vec<u8>>());
    let to = SoftwareBuffer::new(10);
    stream.queue(Work::new().copy(&from, 40..45, &to, 2).copy(&to, 2..7, &to, 5)).unwrap();
    let number = stream.mark().unwrap();
    wait_for(|| seen(&stream, number));
    assert_eq!(to.read(<[u8]>::to_vec), [0, 0, 40, 41, 42, 40, 41, 42, 43, 44]);
}

#[test]
#[should_panic(expected = "it does not fit")]
fn a_copy_beyond_the_end_is_refused_when_it_is_asked_for() {
    let (from, to) = (SoftwareBuffer::new(8), SoftwareBuffer::new(8));
    let _ = Work::new().copy(&from, 0..8, &to, 1);
}

#[test]
fn a_number_that_was_never_issued_is_refused() {
    let device = device();
    let stream = device.stream().unwrap();
    let number = stream.mark().unwrap();
    assert_eq!(stream.query_mark(number + 1).unwrap_err().code(), ErrorCode::NeverIssued);
    assert_eq!(stream.synchronize_mark(number + 1).unwrap_err().code(), ErrorCode::NeverIssued);
    stream.synchronize_mark(number).unwrap();
    assert!(stream.query_mark(0).unwrap(), "0 names no work, so there is none to wait for");
}

#[test]
fn work_queued_behind_a_mark_does_not_keep_it_from_reading_done() {
    let device = device();
    let stream = device.stream().unwrap();
    let behind = Hang::new();
    let step = stream.mark().unwrap();
    stream.queue(Work::new().hang(&behind)).unwrap();
    let next = stream.mark().unwrap();
    stream.synchronize_mark(step).unwrap();
    assert!(stream.query_mark(step).unwrap());
    assert!(!stream.query().unwrap() && !stream.query_mark(next).unwrap());
    behind.release();
    stream.synchronize().unwrap();
    assert!(stream.query().unwrap() && seen(&stream, next));
}

#[test]
fn the_doorbell_is_rung_after_the_word() {
    let device = device();
    let bell = Doorbell::new();
    let stream = device.stream_on(&bell).unwrap();
    for _ in 0..500 {
        let quiet = bell.snapshot();
        let number = stream.mark().unwrap();
        wait_for(|| bell.changed_since(&quiet));
        assert!(seen(&stream, number));
    }
    assert_eq!(bell.snapshot()[0], 0, "the host's word is not a device's");
}

#[test]
fn calls_of_the_driver_are_counted_for_a_stream_and_for_its_device() {
    let device = device();
    let stream = device.stream().unwrap();
    let number = stream.mark().unwrap();
    stream.synchronize_mark(number).unwrap();
    stream.synchronize().unwrap();
    for _ in 0..3 {
        stream.query().unwrap();
        stream.query_mark(number).unwrap();
    }
    let calls = stream.calls();
    assert_eq!((calls.queries, calls.marks, calls.synchronizes, calls.total()), (6, 1, 2, 9));
    device.stream().unwrap().query().unwrap();
    assert_eq!(device.calls().queries, 7);
    drop(stream);
    // A worker may hold the stream for a moment longer.
    wait_for(|| device.calls().total() == 10);
}

#[test]
fn a_status_query_waits_for_no_lock() {
    let device = device();
    let stream = device.stream().unwrap();
    let number = stream.mark().unwrap();
    stream.synchronize().unwrap();
    let clock = StdClock::new();
    let rounds = (0..50).map(|_| {
        let began = clock.monotonic_ns();
        for _ in 0..1000 {
            stream.query_mark(number).unwrap();
        }
        clock.monotonic_ns().since(began).0
    });
    let best = rounds.min().unwrap();
    println!("a status query takes {} ns at best", best / 1000);
    assert!(best < 1_000_000, "{best} ns for 1,000");
}

#[test]
fn a_thousand_streams_run_on_two_workers_and_their_delays_overlap() {
    let device = device();
    let clock = StdClock::new();
    let streams: Vec<_> = (0..1000).map(|_| device.stream().unwrap()).collect();
    assert_eq!(device.slots().lines, 125);
    let began = clock.monotonic_ns();
    let marks: Vec<_> = streams
        .iter()
        .map(|stream| {
            stream.delay(DurNs::from_ms(10)).unwrap();
            stream.mark().unwrap()
        })
        .collect();
    for (stream, &number) in streams.iter().zip(&marks) {
        stream.synchronize_mark(number).unwrap();
        let landed = stream.stamp_of(number).unwrap();
        assert!(landed.since(began) >= DurNs::from_ms(10));
    }
    let took = clock.monotonic_ns().since(began);
    assert!(took < DurNs::from_ms(5_000), "{took:?}: one behind the other they take 10 s");
    assert_eq!(device.calls().marks, 1000);
}

#[test]
fn a_delay_never_ends_early_and_at_best_within_a_few_microseconds() {
    let device = device();
    let stream = device.stream().unwrap();
    let clock = StdClock::new();
    let mut lateness: Vec<u64> = [100, 300, 1000, 2000]
        .into_iter()
        .cycle()
        .take(200)
        .map(|us| {
            let queued = clock.monotonic_ns();
            stream.delay(DurNs::from_us(us)).unwrap();
            let number = stream.mark().unwrap();
            stream.synchronize_mark(number).unwrap();
            let after = stream.stamp_of(number).unwrap().since(queued);
            after.0.checked_sub(us * 1_000).expect("a delay never ends early")
        })
        .collect();
    lateness.sort_unstable();
    println!(
        "delay to store, lateness in ns: best {}, p50 {}, p90 {}, p99 {}",
        lateness[0], lateness[100], lateness[180], lateness[198]
    );
    assert!(lateness[0] < 20_000, "{} ns at best", lateness[0]);
}

#[test]
fn a_dropped_stream_runs_to_its_last_store_and_its_slot_comes_back() {
    let device = device();
    let gate = Hang::new();
    let stream = device.stream().unwrap();
    let (sent, ran) = mpsc::channel();
    stream.queue(Work::new().hang(&gate).run(move || sent.send(7).unwrap())).unwrap();
    let target = stream.mark().unwrap();
    let last = descriptor(&stream, target);
    drop(stream);
    assert_eq!(device.slots().leased, 1);
    gate.release();
    assert_eq!(ran.recv().unwrap(), 7);
    wait_for(|| last.is_complete() && device.slots().leased == 0);
    assert_eq!((device.slots().retired, device.slots().draining), (0, 0));

    let again = device.stream().unwrap();
    assert_eq!(again.slot(), last.slot);
    assert_eq!(again.mark().unwrap(), target + 1, "numbers go on");
}

#[test]
fn closing_faults_what_hangs_and_finishes_what_does_not() {
    let device = device();
    let (hung, busy) = (device.stream().unwrap(), device.stream().unwrap());
    let hang = Hang::new();
    hung.queue(Work::new().hang(&hang)).unwrap();
    let never = hung.mark().unwrap();
    busy.delay(DurNs::from_ms(3)).unwrap();
    busy.inject_store(StoreFault::Late(DurNs::from_ms(2)));
    let late = busy.mark().unwrap();
    device.close();
    assert!(is_fault(&hung.query_mark(never).unwrap_err(), "-2 DEVICE_CLOSED"));
    assert!(busy.query_mark(late).unwrap() && seen(&busy, late));
    assert!(is_fault(&busy.mark().unwrap_err(), "-2 DEVICE_CLOSED"));
    assert!(is_fault(&device.stream().unwrap_err(), "-2 DEVICE_CLOSED"));
    hang.release();
    device.close();
    assert!(!seen(&hung, never));
}

#[test]
fn a_closing_device_goes_through_hangs_that_are_released() {
    let device = device();
    let stream = device.stream().unwrap();
    let hang = Hang::new();
    hang.release();
    let of_device = device.clone();
    // The stream comes to the hang once the device is closing.
    let work = Work::new().run(move || wait_for(|| of_device.stream().is_err())).hang(&hang);
    stream.queue(work).unwrap();
    let number = stream.mark().unwrap();
    device.close();
    assert!(stream.query_mark(number).unwrap() && seen(&stream, number));
}

#[test]
fn a_device_whose_handles_are_all_gone_still_runs_what_is_queued() {
    let stream = device().stream().unwrap();
    stream.delay(DurNs::from_ms(1)).unwrap();
    let last = descriptor(&stream, stream.mark().unwrap());
    drop(stream);
    wait_for(|| last.is_complete());
}

#[test]
fn dropping_a_device_with_hung_work_does_not_block_and_frees_what_hung() {
    let owned = Arc::new(());
    let hang = Hang::new();
    let device = device();
    let (dropped, kept) = (device.stream().unwrap(), device.stream().unwrap());
    for stream in [&dropped, &kept] {
        let inside = owned.clone();
        let again = hang.clone();
        stream.queue(Work::new().hang(&again).run(move || drop(inside)).hang(&again)).unwrap();
    }
    drop(dropped);
    drop(device);
    drop(kept);
    wait_for(|| Arc::strong_count(&owned) == 1);
    hang.release();
}

#[test]
fn a_closure_may_queue_more_drop_streams_and_close_its_device() {
    let device = device();
    let stream = Arc::new(device.stream().unwrap());
    let other = device.stream().unwrap();
    let (sent, ran) = mpsc::channel();
    let (own, of_device) = (stream.clone(), device.clone());
    stream
        .run(move || {
            drop(other);
            own.run(move || {
                of_device.close();
                sent.send(()).unwrap();
            })
            .unwrap();
        })
        .unwrap();
    ran.recv().unwrap();
    wait_for(|| stream.query().unwrap());
    assert!(is_fault(&stream.mark().unwrap_err(), "-2 DEVICE_CLOSED"));
}

#[test]
fn streams_are_dropped_from_many_threads_with_work_in_flight() {
    let device = device();
    let bell = Doorbell::new();
    let marks = AtomicU64::new(0);
    let start = Barrier::new(4);
    thread::scope(|scope| {
        for of_thread in 0..4_u64 {
            let (device, bell, marks, start) = (device.clone(), &bell, &marks, &start);
            scope.spawn(move || {
                start.wait();
                for round in 0..300 {
                    let stream = device.stream_on(bell).unwrap();
                    let hang = Hang::new();
                    match (round + of_thread) % 6 {
                        0 => stream.delay(DurNs::from_us(30)).unwrap(),
                        1 => stream.queue(Work::new().fault(Fault::new(9, "NINE"))).unwrap(),
                        2 => stream.queue(Work::new().hang(&hang)).unwrap(),
                        3 => stream.inject_store(StoreFault::Late(DurNs::from_us(50))),
                        4 => stream.inject_store(StoreFault::Lost),
                        _ => stream.run(|| {}).unwrap(),
                    }
                    if let Ok(number) = stream.mark() {
                        marks.fetch_add(1, Ordering::Relaxed);
                        _ = stream.query_mark(number);
                    }
                    drop(stream);
                    if round % 12 == 2 {
                        hang.release();
                    }
                }
            });
        }
    });
    device.close();
    let slots = device.slots();
    assert_eq!((slots.leased, slots.draining), (0, 0), "{slots:?}");
    assert!(slots.retired >= 400, "a sixth faults and a sixth loses its store: {slots:?}");
    assert!(marks.load(Ordering::Relaxed) >= 1000);
}
