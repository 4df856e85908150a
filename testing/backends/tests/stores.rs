//! How a device stores words, and what a driver may lack for it.
#![cfg(target_os = "linux")]

use backend_tests::{
    Bench, OfCuda, OfHip, Vendor, copy_of, for_each_vendor, number_of, seen, thread_port, wait_by,
    wait_for,
};
use driver_core::without_symbol;
use gpu_async_reactor::backend::mapped::Width;
use gpu_async_reactor::{DeviceStream, ErrorCode};

const SPIN: &str = "spin:backstop_us=1000";

for_each_vendor! {
    f7_a_store_that_never_lands_is_found_at_start_up_and_poll_still_works;
    a_device_without_stores_keeps_no_slot_of_a_stream_that_was_dropped_unasked;
    every_required_entry_point_that_is_missing_is_named;
    a_missing_library_is_named;
}

fn f7_a_store_that_never_lands_is_found_at_start_up_and_poll_still_works<V: Vendor>() {
    let bench = Bench::<V>::new();
    bench.control.lose_stores(1000);
    let device = bench.device();
    let refused = device.caps().store.unwrap_err();
    assert!(refused.contains("never written"), "{refused}");
    assert_eq!(device.store_form(), None);
    let stream = device.stream().unwrap();
    assert_eq!(
        bench.control.work(number_of(stream.handle()), gpu_async_reactor::DurNs::from_us(500)),
        0
    );
    let mut port = thread_port(&stream);
    let ticket = port.mark().unwrap();
    wait_by("poll", &mut port.at(ticket)).unwrap();
    wait_by("block", &mut port).unwrap();
    drop(port);
    drop(stream);
    assert_eq!(device.stats().slots.draining, 0, "{:?}", device.stats());
    bench.assert_clean();
}

fn a_device_without_stores_keeps_no_slot_of_a_stream_that_was_dropped_unasked<V: Vendor>() {
    let bench = Bench::<V>::new();
    bench.control.lose_stores(1000);
    let device = bench.device();
    assert_eq!(device.store_form(), None);
    // The slots of the probe are lost: its stores may land at any time.
    let probed = device.stats().slots.retired;
    let memory = device.memory(1).unwrap();
    let nobody_is_left = || {
        drop(device.stream().unwrap());
        device.stats().streams == 0
    };
    for _ in 0..5 {
        for _ in 0..100 {
            let stream = device.stream().unwrap();
            stream.fill(&memory, 1, 1).unwrap();
        }
        wait_for(nobody_is_left);
    }
    let held = device.stream().unwrap();
    bench.hold(&held);
    held.mark().unwrap();
    drop(held);
    assert!(device.stats().slots.draining + device.stats().streams > 0, "its mark is not done");
    bench.control.release();
    wait_for(nobody_is_left);
    let slots = device.stats().slots;
    assert_eq!((slots.draining, slots.retired), (0, probed), "{slots:?}");
    // However slow the device is: eight slots a line, of a hundred streams at most.
    assert!(slots.lines < 16, "{slots:?}");
    // Nobody asks about the last ones but the close.
    let last = device.stream().unwrap();
    last.mark().unwrap();
    drop((last, memory));
    let report = device.close().unwrap();
    assert_eq!((report.streams, device.stats().slots.draining), (0, 0), "{report:?}");
    bench.assert_clean();
}

fn every_required_entry_point_that_is_missing_is_named<V: Vendor>() {
    for symbol in V::REQUIRED {
        let (folder, path) = copy_of::<V>();
        let without = folder.path().join("without.so");
        without_symbol(&path, symbol, &without).unwrap();
        let error = V::load(&without).unwrap_err();
        assert_eq!(error.code(), ErrorCode::SymbolMissing, "{symbol}: {error}");
        assert_eq!(error.args()[1], *symbol);
    }
}

fn a_missing_library_is_named<V: Vendor>() {
    let error = V::load(std::path::Path::new("/no/such/library.so.1")).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LibraryMissing);
    assert!(error.to_string().contains("/no/such/library.so.1"), "{error}");
}

#[test]
fn f8_hip_stores_by_what_its_runtime_has_or_says_why_not() {
    const WHOLE: &str = "hipStreamWriteValue64";
    const HALVES: &str = "hipStreamWriteValue32";
    for (attribute, missing, expected) in [
        (Some(1), &[][..], Some(Width::Whole)),
        (None, &[][..], Some(Width::Whole)),
        (Some(1), &[WHOLE][..], Some(Width::Halves)),
        (Some(0), &[][..], None),
        (Some(1), &[WHOLE, HALVES][..], None),
    ] {
        let (folder, mut path) = copy_of::<OfHip>();
        for (at, symbol) in missing.iter().enumerate() {
            let next = folder.path().join(format!("without-{at}.so"));
            without_symbol(&path, symbol, &next).unwrap();
            path = next;
        }
        let bench = Bench::<OfHip>::over(folder, &path);
        bench.control.attribute(0, 10_013, attribute);
        let device = bench.device();
        let told = format!("{attribute:?} without {missing:?}: {:?}", device.caps());
        assert_eq!(device.store_form().map(|form| form.width), expected, "{told}");
        let stream = device.stream().unwrap();
        let number = stream.mark().unwrap();
        stream.synchronize_mark(number).unwrap();
        assert!(seen(&stream, number), "{told}");
        bench.assert_clean();
    }
}

/// What a driver has: attributes of 64-bit stores of the second generation, 64-bit and any stores of
/// the first (none: unknown), and the entry points that are missing.
struct Driver {
    attributes: [Option<i32>; 3],
    missing: &'static [&'static str],
    expected: Option<(Width, u8)>,
}

#[test]
fn f8_every_combination_of_attributes_and_entry_points_ends_in_a_way_that_works_or_a_refusal() {
    const V2: &[&str] =
        &["cuStreamBatchMemOp_v2", "cuStreamWriteValue64_v2", "cuStreamWriteValue32_v2"];
    const ALL: &[&str] = &[
        "cuStreamBatchMemOp_v2",
        "cuStreamWriteValue64_v2",
        "cuStreamWriteValue32_v2",
        "cuStreamBatchMemOp",
        "cuStreamWriteValue64",
        "cuStreamWriteValue32",
    ];
    let one = Some(1);
    let off = Some(0);
    let drivers = [
        Driver { attributes: [one, one, one], missing: &[], expected: Some((Width::Whole, 2)) },
        Driver { attributes: [one, None, None], missing: &[], expected: Some((Width::Whole, 2)) },
        // What the driver does not know is left to the probe, to which this one refuses 64 bits.
        Driver { attributes: [None, None, None], missing: &[], expected: Some((Width::Halves, 2)) },
        Driver { attributes: [off, off, off], missing: &[], expected: Some((Width::Halves, 2)) },
        Driver {
            attributes: [one, one, one],
            missing: &["cuStreamBatchMemOp_v2"],
            expected: Some((Width::Whole, 2)),
        },
        Driver {
            attributes: [off, off, off],
            missing: &["cuStreamBatchMemOp_v2"],
            expected: Some((Width::Halves, 2)),
        },
        Driver { attributes: [None, one, one], missing: V2, expected: Some((Width::Whole, 1)) },
        Driver { attributes: [None, off, one], missing: V2, expected: Some((Width::Halves, 1)) },
        Driver { attributes: [None, off, off], missing: V2, expected: None },
        Driver { attributes: [one, one, one], missing: ALL, expected: None },
    ];
    for driver in drivers {
        let (folder, mut path) = copy_of::<OfCuda>();
        for (at, symbol) in driver.missing.iter().enumerate() {
            let next = folder.path().join(format!("without-{at}.so"));
            without_symbol(&path, symbol, &next).unwrap();
            path = next;
        }
        let bench = Bench::<OfCuda>::over(folder, &path);
        for (attribute, value) in [122, 93, 92].into_iter().zip(driver.attributes) {
            bench.control.attribute(0, attribute, value);
        }
        let device = bench.device();
        let found = device.store_form().map(|form| (form.width, form.generation));
        let told = format!("{:?} without {:?}", driver.attributes, driver.missing);
        assert_eq!(found, driver.expected, "{told}: {:?}", device.caps());
        let stream = device.stream().unwrap();
        let mut port = thread_port(&stream);
        let ticket = port.mark().unwrap();
        wait_by(if found.is_some() { SPIN } else { "poll" }, &mut port.at(ticket)).unwrap();
        if found.is_some() {
            wait_for(|| seen(&stream, ticket.number()));
        } else {
            assert!(device.caps().store.unwrap_err().contains("32-bit stores of generation 1"));
        }
        bench.assert_clean();
    }
}

#[test]
fn f10_lines_and_buffers_are_coherent_whatever_the_environment_says() {
    // A child for each environment: the runtime reads it at any time.
    const TEST: &str = "f10_lines_and_buffers_are_coherent_whatever_the_environment_says";
    const CHILD: &str = "BACKEND_TESTS_COHERENCE_CHILD";
    if std::env::var_os(CHILD).is_none() {
        for value in ["0", "1"] {
            let child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", TEST, "--nocapture"])
                .envs([(CHILD, "1"), ("HIP_HOST_COHERENT", value)])
                .env("HIP_COHERENT_HOST_ALLOC", value)
                .output()
                .unwrap();
            let told = String::from_utf8_lossy(&child.stderr);
            assert!(child.status.success(), "coherent by the environment: {value}: {told}");
        }
        return;
    }
    let bench = Bench::<OfHip>::new();
    let device = bench.device();
    assert_eq!(device.caps().store, Ok(()));
    let bell = device.doorbell().unwrap();
    let stream = device.stream_on(&bell).unwrap();
    let before = bell.snapshot();
    let number = stream.mark().unwrap();
    // No status call: the host sees memory that is not coherent once it has synchronised.
    wait_for(|| seen(&stream, number) && bell.changed_since(&before));
    bench.assert_clean();
}
