//! Every entry point of each test driver failing in turn, at each of its calls: what was asked for ends with
//! that named error, a failure that nobody awaits is counted, nothing hangs, nothing is freed under a pending
//! store, and what was leaked is counted.
#![cfg(target_os = "linux")]

use backend_tests::{
    Bench, OfCuda, OfHip, OpenDevice, Vendor, Watchdog, copy_of, plan, thread_port, wait_by,
};
use driver_core::{Control, Live};
use gpu_async_reactor::backend::lease::DeviceBuffer;
use gpu_async_reactor::backend::mapped::HostFunctionPort;
use gpu_async_reactor::host::TokioClock;
use gpu_async_reactor::{CompletionPort, DeviceStream, DurNs, Error, ErrorCode, Result, wait};
use std::path::Path;

/// A status that does not stay, and that no call of the backend expects.
const CODE: i32 = 46;
const BYTES: usize = 5_000;

/// A program's life: everything that a backend can do, once or a few times. Stops at the first error.
fn life<V: Vendor>(
    path: &Path,
    control: &Control,
    memory: u64,
    device: &mut Option<OpenDevice<V>>,
) -> Result<()> {
    let driver = V::load(path)?;
    let device = device.insert(V::device(&driver, 0)?);
    let bell = device.doorbell()?;
    let stream = device.stream_on(&bell)?;
    let mut port = thread_port(&stream);
    for text in ["poll", "spin:backstop_us=1000", "block"] {
        let ticket = port.mark()?;
        wait_by(text, &mut port.at(ticket))?;
        wait_by(text, &mut port)?;
    }
    // SAFETY: the stream outlives this one.
    let same = unsafe { device.stream_from_raw(stream.handle(), None) }?;
    let number = same.mark()?;
    same.synchronize_mark(number)?;
    drop(same);
    let held = device.stream()?;
    let buffer = device.pinned(BYTES)?;
    // SAFETY: the device memory is that long, is never freed, and written by nobody.
    let dropped = unsafe { held.read_back::<u8, _>(memory, BYTES, buffer) }?;
    let buffer = device.pinned(BYTES)?;
    // SAFETY: as above.
    let kept = unsafe { held.read_back::<u8, _>(memory, BYTES, buffer) }?;
    drop(dropped);
    held.synchronize()?;
    held.sweep();
    kept.try_read().map_err(|not_yet| not_yet.error().unwrap().clone())?;
    let of_device = device.memory(BYTES)?;
    held.fill(&of_device, 5, 2)?;
    let mut uploaded = device.pinned(BYTES)?;
    uploaded.as_mut_slice::<u8>().fill(3);
    let uploaded = held.upload(uploaded, &of_device, 0)?;
    let copied = held.copy_back::<u8, _>(&of_device, 0..BYTES, device.pinned(BYTES)?)?;
    drop((uploaded, of_device));
    held.synchronize()?;
    let landed = copied.try_read().map_err(|not_yet| not_yet.error().unwrap().clone())?;
    assert!(landed.iter().all(|byte| *byte == 3), "what was uploaded comes back");
    drop(landed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let clock = TokioClock::new();
        let mut port = HostFunctionPort::new(&stream, clock);
        port.arm()?;
        port.park(DurNs::from_us(1000)).await?;
        port.poll().await?;
        // A store that is on its way while the stream goes.
        let _ = control.hold(backend_tests::number_of(held.handle()));
        held.mark()?;
        wait(&plan("poll"), None, &mut port, &clock).await
    })?;
    drop((held, stream, bell));
    control.release();
    device.close()?.unsettled.map_or(Ok(()), Err)
}

/// One life with the `nth` call of `entry` failing. Returns whether it was called so often.
fn live_through<V: Vendor>(entry: &str, nth: u64) -> bool {
    let (_folder, path) = copy_of::<V>();
    let control = Control::open(&path);
    let initialised = V::load(&path).is_ok();
    assert!(initialised);
    let memory = V::device_memory(&control, BYTES);
    V::go_elsewhere(&control);
    // A second copy, which the life opens afresh, would have a device of its own: the first is opened
    // again instead, whose start is looked at by `every_call_of_the_start_can_fail`.
    let before = control.calls(entry);
    control.fail(entry, nth, CODE);
    let mut device = None;
    let ended = life::<V>(&path, &control, memory, &mut device);
    control.release();
    let was_called = control.calls(entry) - before >= nth;
    let told = format!("call {nth} of {entry}: {ended:?}");
    if was_called {
        let counted = device.as_ref().map_or(0, |device| {
            let stats = device.stats();
            stats.teardown_failures + stats.leases.leaked
        });
        let refused = device.as_ref().is_some_and(|device| {
            device.store_refusals().iter().any(|why| why.contains(&format!(": {CODE} ")))
        });
        match &ended {
            Err(error) => assert_named(entry, error, &told),
            Ok(()) => assert!(counted > 0 || refused, "{told}, and nobody counted it"),
        }
    } else {
        assert!(ended.is_ok(), "{told}");
    }
    if let Some(device) = device {
        // What was interrupted is over now; a close finds all of it.
        let report = device.close().expect("not forked");
        let stats = device.stats();
        let there = control.live(Live::HostAllocations);
        let known = report.held + report.leaked.max(stats.leaked);
        assert!(there <= known as u64, "{told}: {there} allocations, {report:?}, {stats:?}");
    }
    assert_eq!(control.violations(), [""; 0], "{told}");
    was_called
}

fn assert_named(entry: &str, error: &Error, told: &str) {
    assert_eq!(error.code(), ErrorCode::Backend, "{told}");
    assert_eq!(error.status_number(), Some(i64::from(CODE)), "{told}");
    let name = entry.split("_v").next().unwrap();
    assert_eq!(error.args()[0], name, "{told}");
}

fn every_entry_point_fails_in_turn<V: Vendor>() {
    let _watchdog = Watchdog::for_s(300);
    let library = driver_core::library(V::LIBRARY);
    let mut entries = driver_core::symbols(&library).unwrap();
    // What the last error is says nothing about the call that asks for it.
    entries.retain(|name| name.starts_with(V::PREFIX) && !name.ends_with("LastError"));
    entries.sort();
    let mut lives = 0;
    let mut called = Vec::new();
    for entry in &entries {
        let mut nth = 1;
        // The first calls, then ever fewer: later ones repeat what earlier ones have done.
        while live_through::<V>(entry, nth) {
            lives += 1;
            nth += 1 + nth / 4;
        }
        if nth > 1 {
            called.push(entry.as_str());
        }
    }
    println!("{}: {lives} lives, each with another call failing, of {called:?}", V::LIBRARY);
    let start = ["cuInit", "cuDriverGetVersion", "hipInit", "hipRuntimeGetVersion"];
    for required in V::REQUIRED.iter().filter(|name| !start.contains(name)) {
        let rare =
            ["ErrorName", "GetName", "DeviceGetCount"].iter().any(|end| required.ends_with(end));
        assert!(rare || called.contains(required), "{required} was never called");
    }
}

#[test]
fn every_entry_point_of_cuda_fails_in_turn() {
    every_entry_point_fails_in_turn::<OfCuda>();
}

#[test]
fn every_entry_point_of_hip_fails_in_turn() {
    every_entry_point_fails_in_turn::<OfHip>();
}

#[test]
fn every_call_of_the_start_can_fail() {
    fn fails<V: Vendor>(entries: &[&str]) {
        for entry in entries {
            let (_folder, path) = copy_of::<V>();
            let control = Control::open(&path);
            control.fail(entry, 1, CODE);
            let error = V::load(&path).unwrap_err();
            assert_named(entry, &error, entry);
            // The next one finds a driver that works.
            V::device(&V::load(&path).unwrap(), 0).unwrap();
            assert_eq!(control.violations(), [""; 0], "{entry}");
        }
    }
    let _watchdog = Watchdog::new();
    fails::<OfCuda>(&["cuInit", "cuDriverGetVersion"]);
    fails::<OfHip>(&["hipInit", "hipRuntimeGetVersion"]);
}

#[test]
fn a_status_without_a_name_keeps_its_number() {
    let bench = Bench::<OfCuda>::new();
    let stream = bench.device().stream().unwrap();
    bench.control.fail("cuStreamQuery", 1, 12_345);
    let error = stream.query().unwrap_err();
    assert_eq!(error.status_number(), Some(12_345), "{error}");
}
