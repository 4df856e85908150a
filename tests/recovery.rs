//! A device that is lost, as a CUDA context is: what every call answers from then on, and how a program
//! goes on. Where a test is about a row of `docs/faults.md`, its name begins with it.
#![cfg(all(feature = "software", not(loom)))]

mod common;
mod leases;

use common::{Watchdog, assert_faulted, is_fault, seen, wait_for};
use gpu_async_reactor::backend::lease::{NotYetReason, PinnedBuffer};
use gpu_async_reactor::backend::software::{
    Fault, Hang, SoftwareBuffer, SoftwareDevice, SoftwareStream, Work,
};
use gpu_async_reactor::{DeviceStream, Error};
use leases::{PATTERN, Rig};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

const STATUS: &str = "700 ILLEGAL_ADDRESS";

fn fault() -> Fault {
    Fault::new(700, "ILLEGAL_ADDRESS").of_the_device()
}

/// Loses the device by work of a stream of its own, and returns once that stream's status says so.
fn lose(device: &SoftwareDevice) {
    let bad = device.stream().unwrap();
    bad.queue(Work::new().fault(fault())).unwrap();
    assert!(is_fault(&bad.synchronize().unwrap_err(), STATUS));
}

#[test]
fn f12_a_fault_of_the_device_is_the_answer_of_every_stream_and_later_call() {
    let _watchdog = Watchdog::new("every stream");
    let device = SoftwareDevice::new().unwrap();
    let (idle, busy, done) =
        (device.stream().unwrap(), device.stream().unwrap(), device.stream().unwrap());
    let number = done.mark().unwrap();
    done.synchronize_mark(number).unwrap();
    let hang = Hang::new();
    busy.queue(Work::new().hang(&hang)).unwrap();
    let behind = busy.mark().unwrap();
    assert_eq!(device.lost(), None);
    lose(&device);
    assert_eq!(device.lost(), Some(fault()));
    for stream in [&idle, &busy, &done] {
        assert_faulted(stream, STATUS);
    }
    assert!(is_fault(&done.query_mark(number).unwrap_err(), STATUS), "done before, unknown now");
    assert!(is_fault(&device.stream().unwrap_err(), STATUS));
    assert!(device.caps().store.unwrap_err().contains(STATUS));
    hang.release();
    device.close();
    assert!(!seen(&busy, behind), "nothing runs behind the loss");
    assert_faulted(&idle, STATUS);
}

#[test]
fn f1_f4_no_lease_hands_its_buffer_back_after_the_loss_be_its_work_done_or_not() {
    let _watchdog = Watchdog::new("leases");
    let rig = Rig::new();
    let (open, shut) = (Hang::new(), Hang::new());
    open.release();
    let finished = rig.lease(&open);
    rig.stream.synchronize().unwrap();
    assert!(finished.descriptor().is_complete(), "the word is there");
    let unfinished = rig.lease(&shut);
    let dropped = rig.lease(&shut);
    lose(&rig.device);
    let error = |reason: &NotYetReason| match reason {
        NotYetReason::Error(error) => is_fault(error, STATUS),
        _ => false,
    };
    let finished = finished.try_take().unwrap_err();
    let unfinished = unfinished.try_take().unwrap_err();
    assert!(error(finished.reason()) && error(unfinished.reason()));
    drop((finished, unfinished, dropped));
    assert_eq!(rig.stream.sweep(), 0);
    shut.release();
    // A lease that is asked for now is refused, and its buffer given up as well.
    let from = SoftwareBuffer::from(vec![PATTERN; 64]);
    let refused = rig.stream.read_back::<u8, _>(&from, 0..64, rig.buffer()).unwrap_err();
    assert!(is_fault(&refused, STATUS));
    let stats = rig.device.lease_stats();
    assert_eq!((stats.leaked, stats.waiting), (4, 0), "{stats:?}");
    rig.device.close();
    assert_eq!(rig.dropped.load(Ordering::SeqCst), 0, "freed while the device may still write it");
}

#[test]
fn f2_threads_that_block_on_any_stream_are_woken_by_the_loss() {
    let _watchdog = Watchdog::new("blocked");
    let device = SoftwareDevice::new().unwrap();
    let streams: Vec<_> = (0..4).map(|_| device.stream().unwrap()).collect();
    let hang = Hang::new();
    for stream in &streams {
        stream.queue(Work::new().hang(&hang)).unwrap();
    }
    thread::scope(|scope| {
        let blocked: Vec<_> =
            streams.iter().map(|stream| scope.spawn(|| stream.synchronize())).collect();
        wait_for(|| streams.iter().all(|stream| stream.calls().synchronizes == 1));
        wait_for(|| hang.holding() == streams.len());
        lose(&device);
        for blocked in blocked {
            assert!(is_fault(&blocked.join().unwrap().unwrap_err(), STATUS));
        }
    });
}

#[test]
fn no_call_of_one_stream_succeeds_after_a_call_of_another_answered_the_loss() {
    let _watchdog = Watchdog::new("order");
    for _ in 0..20 {
        let device = SoftwareDevice::new().unwrap();
        // So many that they cannot all be told before one of them is asked.
        let streams: Vec<SoftwareStream> = (0..2000).map(|_| device.stream().unwrap()).collect();
        let asking = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while streams[1000].query().is_ok() {
                    asking.store(true, Ordering::Relaxed);
                }
                let good = streams.iter().filter(|stream| stream.query().is_ok()).count();
                assert_eq!(good, 0, "another stream has answered the loss");
            });
            wait_for(|| asking.load(Ordering::Relaxed));
            device.lose(fault());
        });
    }
}

#[test]
fn a_fault_of_one_stream_leaves_the_device_and_the_first_loss_stays() {
    let _watchdog = Watchdog::new("one stream");
    let device = SoftwareDevice::new().unwrap();
    let (bad, good) = (device.stream().unwrap(), device.stream().unwrap());
    bad.queue(Work::new().fault(Fault::new(2, "MINE"))).unwrap();
    assert!(is_fault(&bad.synchronize().unwrap_err(), "2 MINE"));
    assert_eq!(device.lost(), None);
    let number = good.mark().unwrap();
    good.synchronize_mark(number).unwrap();
    lose(&device);
    device.lose(Fault::new(1, "LATER"));
    assert_faulted(&good, STATUS);
    assert_faulted(&bad, "2 MINE");
}

#[test]
fn a_lost_device_that_stores_the_words_behind_the_fault_stores_those_of_every_stream() {
    let _watchdog = Watchdog::new("words");
    let device = SoftwareDevice::new().unwrap();
    let (bad, other, hang) = (device.stream().unwrap(), device.stream().unwrap(), Hang::new());
    other.queue(Work::new().hang(&hang)).unwrap();
    let behind = other.mark().unwrap();
    bad.queue(Work::new().fault(fault().storing_words())).unwrap();
    wait_for(|| seen(&other, behind));
    assert!(is_fault(&other.query_mark(behind).unwrap_err(), STATUS), "a word is no status");
}

#[test]
fn a_program_goes_on_with_another_device_and_the_lost_one_stays_lost() {
    let _watchdog = Watchdog::new("goes on");
    let host: Vec<u8> = (0..=255).collect();
    let step = |device: &SoftwareDevice, fails: bool| -> Result<Vec<u8>, Error> {
        let stream = device.stream()?;
        if fails {
            stream.queue(Work::new().fault(fault()))?;
        }
        let from = SoftwareBuffer::from(host.clone());
        let copy = stream.read_back::<u8, _>(&from, 0..host.len(), PinnedBuffer::new(256))?;
        stream.synchronize()?;
        Ok(copy.try_read().unwrap().to_vec())
    };
    let lost = SoftwareDevice::new().unwrap();
    // Something of the old device is held all the time, as by a program that cannot find all of it.
    let held = lost.stream().unwrap();
    assert!(is_fault(&step(&lost, true).unwrap_err(), STATUS));
    assert!(is_fault(&step(&lost, false).unwrap_err(), STATUS), "nothing of it works any more");
    lost.close();
    let ran = Arc::new(AtomicU64::new(0));
    let next = SoftwareDevice::new().unwrap();
    assert_eq!(step(&next, false).unwrap(), host);
    let counter = ran.clone();
    let stream = next.stream().unwrap();
    stream.run(move || _ = counter.fetch_add(1, Ordering::Relaxed)).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    assert_eq!((next.lost(), lost.lost()), (None, Some(fault())));
    assert_eq!(next.lease_stats().leaked, 0);
    assert_faulted(&held, STATUS);
}
