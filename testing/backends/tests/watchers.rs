//! Streams of each vendor under the watcher: faults, and driver calls that do not return.
#![cfg(target_os = "linux")]

use backend_tests::{Bench, Vendor, assert_fault, for_each_vendor, seen, wait_for};
use gpu_async_reactor::backend::mapped::Stream;
use gpu_async_reactor::host::{StdClock, WatchError, WatchOptions, WatchPolicy, Watcher};
use gpu_async_reactor::{
    Clock, CompletionLine, DeviceStream, DurNs, End, OwnedDescriptor, Slot, Waited,
};
use std::sync::Arc;

const BACKSTOP: DurNs = DurNs::from_ms(2);
const OPTIONS: WatchOptions = WatchOptions::new(BACKSTOP);
/// A backstop that no test lives to see.
const NEVER: WatchOptions = WatchOptions::new(DurNs::from_ms(3_600_000));

for_each_vendor! {
    a_task_of_tokio_is_woken_by_the_device;
    f2_a_status_call_that_hangs_stalls_neither_other_watches_nor_time_outs_nor_streams;
    f1_f12_a_fault_is_the_error_of_every_task_that_awaits;
    f13_a_watch_of_work_that_hangs_times_out_and_can_be_watched_again;
    f4_a_dropped_watch_leaves_its_stream_in_order;
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn shared<V: Vendor>(bench: &Bench<V>) -> Arc<Stream<V::Interface>> {
    Arc::new(bench.device().stream().unwrap())
}

fn a_task_of_tokio_is_woken_by_the_device<V: Vendor>() {
    let bench = Bench::<V>::new();
    for policy in [WatchPolicy::SPIN, WatchPolicy::BALANCED, WatchPolicy::SAVING] {
        let watcher = Watcher::new(policy).unwrap();
        let stream = shared(&bench);
        bench.hold(&stream);
        let number = stream.mark().unwrap();
        let waited = block_on(async {
            let watch = watcher.watch_stream(stream.clone(), number, OPTIONS);
            let releasing = async { bench.control.release() };
            tokio::join!(watch, releasing).0.unwrap()
        });
        assert!([End::Parked, End::Backstop].contains(&waited.end), "{waited:?}");
        assert!(seen(&stream, number));
    }
    bench.assert_clean();
}

fn f2_a_status_call_that_hangs_stalls_neither_other_watches_nor_time_outs_nor_streams<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let watcher = Watcher::new(WatchPolicy::default()).unwrap();
    let stuck = shared(&bench);
    bench.hold(&stuck);
    let number = stuck.mark().unwrap();
    // Made before: a new stream asks whether an old one can be used again, and would hang itself.
    // Two, since each is asked about at its deadline, which hangs a thread of the watcher's.
    let silents: Vec<_> = (0..2).map(|_| shared(&bench)).collect();
    bench.control.hang_queries(true);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let stuck_watch = watcher.watch_stream(stuck.clone(), number, OPTIONS);
    let local = tokio::task::LocalSet::new();
    let error = local.block_on(&runtime, async {
        let stuck_watch = tokio::task::spawn_local(stuck_watch);
        tokio::task::yield_now().await;
        wait_for(|| bench.control.hung() == 1);
        for silent in silents {
            // Another watch, whose word comes and whose status is not this driver's.
            let line = CompletionLine::shared();
            let word = OwnedDescriptor { line: line.clone(), slot: Slot::ALL[0], target: 1 };
            let other = watcher.watch(word.clone(), OPTIONS, move || Ok(word.is_complete()));
            (*line).as_ref().store(Slot::ALL[0], 1);
            other.await.unwrap();
            // A time-out of a silent word of this driver's.
            bench.hold(&silent);
            let silent_number = silent.mark().unwrap();
            let deadline = StdClock::new().monotonic_ns().after(DurNs::from_ms(1));
            let options = NEVER.deadline(deadline);
            let late = watcher.watch_stream(silent.clone(), silent_number, options).await;
            assert!(matches!(late, Err(WatchError::TimedOut(Waited { end: End::TimedOut, .. }))));
            assert!(StdClock::new().monotonic_ns() >= deadline);
            // Marks, memory, drops and figures wait for no status call.
            stuck.mark().unwrap();
            drop((silent, device.doorbell().unwrap(), device.pinned(1).unwrap()));
            assert!(device.stats().streams > 0);
        }
        assert!(bench.control.hung() >= 1, "the call hangs all the while");
        assert!(!stuck_watch.is_finished());
        bench.fault();
        bench.control.hang_queries(false);
        stuck_watch.await.unwrap().unwrap_err()
    });
    let WatchError::Status(error) = error else { panic!("{error:?}") };
    assert_fault::<V>(&error);
    assert!(!seen(&stuck, number));
    bench.control.release();
}

fn f1_f12_a_fault_is_the_error_of_every_task_that_awaits<V: Vendor>() {
    let bench = Bench::<V>::new();
    let watcher = Watcher::new(WatchPolicy::default()).unwrap();
    let streams: Vec<_> = (0..4).map(|_| shared(&bench)).collect();
    // The words of the first two are there, and the others' never come.
    for stream in &streams[2..] {
        bench.hold(stream);
    }
    let numbers: Vec<_> = streams.iter().map(|stream| stream.mark().unwrap()).collect();
    wait_for(|| seen(&streams[0], numbers[0]) && seen(&streams[1], numbers[1]));
    bench.fault();
    block_on(async {
        for (stream, number) in streams.iter().zip(numbers) {
            let ended = watcher.watch_stream(stream.clone(), number, OPTIONS).await;
            let Err(WatchError::Status(error)) = ended else { panic!("{ended:?}") };
            assert_fault::<V>(&error);
        }
    });
    bench.control.release();
}

fn f13_a_watch_of_work_that_hangs_times_out_and_can_be_watched_again<V: Vendor>() {
    let bench = Bench::<V>::new();
    let watcher = Watcher::new(WatchPolicy::default()).unwrap();
    let stream = shared(&bench);
    bench.hold(&stream);
    let number = stream.mark().unwrap();
    let deadline = StdClock::new().monotonic_ns().after(DurNs::from_ms(3));
    let late = block_on(watcher.watch_stream(stream.clone(), number, OPTIONS.deadline(deadline)));
    assert!(matches!(late, Err(WatchError::TimedOut(_))), "{late:?}");
    bench.control.release();
    block_on(watcher.watch_stream(stream.clone(), number, OPTIONS)).unwrap();
    bench.assert_clean();
}

fn f4_a_dropped_watch_leaves_its_stream_in_order<V: Vendor>() {
    let bench = Bench::<V>::new();
    let watcher = Watcher::new(WatchPolicy::default()).unwrap();
    let device = bench.device();
    let stream = shared(&bench);
    bench.hold(&stream);
    let number = stream.mark().unwrap();
    let mut watch = Box::pin(watcher.watch_stream(stream.clone(), number, OPTIONS));
    block_on(async {
        tokio::select! {
            biased;
            ended = &mut watch => panic!("{ended:?}"),
            () = tokio::task::yield_now() => {}
        }
    });
    drop(watch);
    drop(stream);
    // The watcher lets go of the stream by itself.
    wait_for(|| device.stats().streams == 0);
    bench.control.release();
    wait_for(|| {
        let report = device.close().unwrap();
        assert!(report.unsettled.is_none());
        report.released
    });
    bench.assert_clean();
}
