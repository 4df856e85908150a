//! The fake device itself, under rules of a vendor that does not exist.
#![cfg(target_os = "linux")]

use driver_core::abi::HostAddress;
use driver_core::memory::{AWAY, Place, Request, Value};
use driver_core::{
    Breaks, Call, Driver, DurNs, GreenStream, LastError, Live, Outcome, PER_THREAD, Refusal, Rules,
    SleepingFlags, Traits, UnknownStream,
};
use std::io::Write;
use std::sync::Once;
use std::thread;
use std::time::{Duration, Instant};

const FAULT: i32 = -700;
/// Of all tests together; they take milliseconds.
const LONGEST: Duration = Duration::from_secs(120);

/// Codes in the order of no vendor, so that a mix-up with one is seen.
fn code(refusal: Refusal) -> i32 {
    match refusal {
        Refusal::Code(code) => code,
        Refusal::NotReady => -1,
        Refusal::InvalidValue => -2,
        Refusal::InvalidContext => -3,
        Refusal::InvalidHandle => -4,
        Refusal::NotInitialized => -5,
        _ => -99,
    }
}

static RULES: Rules = Rules {
    entries: &["test"],
    code,
    attributes: &[(1, 0), (2, 42)],
    unified: 1,
    version: 3,
    by_device: false,
    host_functions_may_call: false,
    traits: |_version| Traits {
        event_reads_its_stream: false,
        event_query_breaks_capture: false,
        event_wait_breaks_capture: false,
        context_wait_breaks: Breaks::OfContext,
        unknown_stream: UnknownStream::InvalidHandle,
        sleeping_flags: SleepingFlags::WithBlocking,
        last_error: LastError::None,
        green_stream: GreenStream::Unsupported,
        legacy_query_queues_marker: false,
    },
};

const HOST: Request =
    Request { place: Place::Host, bytes: 64, portable: false, mapped: true, coherent: true };

/// Ends the test run where it does not end by itself.
fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // Parked, and gone with the process.
        thread::spawn(|| {
            let begin = Instant::now();
            while begin.elapsed() < LONGEST {
                thread::park_timeout(LONGEST);
            }
            // Not by `eprintln`, which the test harness captures and loses with the process.
            let _ = writeln!(std::io::stderr(), "a test hangs: not over after {LONGEST:?}");
            std::process::exit(101);
        });
    });
}

/// A device with a context that is current to this thread.
fn ready() -> &'static Driver {
    watch();
    let driver = Driver::leak(&RULES);
    ask(driver, |call| {
        call.initialize(0)?;
        let context = call.retain_primary(0)?;
        call.set_context(context)
    })
    .unwrap();
    driver
}

/// What a call answers: its value, or its status code.
fn ask<T>(driver: &'static Driver, body: impl FnOnce(&mut Call) -> Outcome<T>) -> Result<T, i32> {
    let mut value = None;
    let status = driver.call("test", |call| {
        value = Some(body(call)?);
        Ok(())
    });
    value.ok_or(status)
}

#[test]
fn refusals_become_the_vendors_codes() {
    let driver = Driver::leak(&RULES);
    assert_eq!(ask(driver, Call::initialized), Err(-5));
    let driver = ready();
    assert_eq!(ask(driver, |call| call.query_stream(12345)), Err(-4));
    assert_eq!(ask(driver, |call| call.device_attribute(0, 2)), Ok(42));
    assert_eq!(ask(driver, |call| call.device_attribute(0, 3)), Err(-2));
    driver.set_attribute(0, 3, Some(5));
    assert_eq!(ask(driver, |call| call.device_attribute(0, 3)), Ok(5));
    driver.fail("test", 1, 77);
    assert_eq!(ask(driver, |call| call.query_stream(0)), Err(77));
    assert_eq!(driver.calls("test"), 6, "an injected failure is a call as well");
}

#[test]
fn host_memory_has_one_address_only_where_addressing_is_unified() {
    let driver = ready();
    let addresses = |driver| {
        ask(driver, |call| {
            let key = call.allocate(HOST)?;
            let host = call.host_address(key);
            Ok((host.addr(), call.device_address(host)?))
        })
    };
    let (host, device) = addresses(driver).unwrap();
    assert_eq!(device, host + AWAY);
    driver.set_attribute(0, 1, Some(1));
    let (host, device) = addresses(driver).unwrap();
    assert_eq!(device, host);
    assert_eq!(driver.live(Live::HostAllocations), 2);
}

#[test]
fn memory_that_is_not_portable_is_its_contexts_own() {
    let driver = ready();
    let at = ask(driver, |call| call.allocate(HOST)).unwrap();
    let portable = ask(driver, |call| call.allocate(Request { portable: true, ..HOST })).unwrap();
    let unmapped = ask(driver, |call| call.allocate(Request { mapped: false, ..HOST })).unwrap();
    let store = |at| ask(driver, move |call| call.store(0, &[(at, Value::Word64(1))]));
    assert_eq!(store(at), Ok(()));
    assert_eq!(store(unmapped), Err(-2));
    ask(driver, |call| call.create_context(0)).unwrap();
    assert_eq!(store(portable), Ok(()));
    assert_eq!(store(at), Err(-2));
    driver.reset();
}

#[test]
fn handles_are_never_given_twice_not_even_after_a_reset() {
    let driver = ready();
    let stream = ask(driver, |call| call.create_stream(true)).unwrap();
    driver.reset();
    assert_eq!(ask(driver, Call::initialized), Err(-5), "everything is forgotten");
    ask(driver, |call| {
        call.initialize(0)?;
        let context = call.retain_primary(0)?;
        call.set_context(context)
    })
    .unwrap();
    assert_eq!(ask(driver, |call| call.query_stream(stream)), Err(-4));
    assert_eq!(driver.violations(), ["a stream was used after it was destroyed"]);
    assert_ne!(ask(driver, |call| call.create_stream(true)), Ok(stream));
    assert_eq!(driver.reset(), 1);
    assert_eq!(driver.reset(), 0);
}

#[test]
fn a_reset_ends_what_is_held_and_waits_for_what_runs() {
    let driver = ready();
    let begin = Instant::now();
    assert_eq!(driver.hold(0), 0);
    assert_eq!(driver.work(0, DurNs::from_us(2000)), 0);
    assert_eq!(driver.work(99, DurNs(1)), -4);
    driver.reset();
    assert!(begin.elapsed() >= Duration::from_millis(2));
}

#[test]
fn a_fault_ends_held_work_and_waits_between_streams() {
    let driver = ready();
    let (first, second, event) = ask(driver, |call| {
        Ok((call.create_stream(true)?, call.create_stream(true)?, call.create_event(0)?))
    })
    .unwrap();
    assert_eq!(driver.hold(first), 0);
    ask(driver, |call| call.record_event(event, first)).unwrap();
    ask(driver, |call| call.wait_event(second, event)).unwrap();
    assert_eq!(ask(driver, |call| call.query_stream(second)), Err(-1));
    driver.fault(FAULT);
    assert_eq!(ask(driver, |call| call.synchronize_stream(second)), Err(FAULT));
    ask(driver, |call| call.release_primary(0)).unwrap();
    driver.reset();
}

#[test]
fn the_default_streams_of_two_threads_are_two() {
    let driver = ready();
    let context = ask(driver, |call| Ok(call.current_or_none())).unwrap();
    assert_eq!(driver.hold(PER_THREAD), 0);
    let there = thread::spawn(move || {
        ask(driver, |call| {
            call.set_context(context)?;
            call.query_stream(PER_THREAD)
        })
    });
    assert_eq!(there.join().unwrap(), Ok(()));
    assert_eq!(ask(driver, |call| call.query_stream(PER_THREAD)), Err(-1));
    driver.release();
}

#[test]
fn freeing_takes_the_address_that_allocating_gave() {
    let driver = ready();
    let device = Request { place: Place::Device, ..HOST };
    let at = ask(driver, |call| call.allocate(device)).unwrap();
    assert_eq!(ask(driver, |call| call.free(Place::Device, at + 8)), Err(-2));
    assert_eq!(ask(driver, |call| call.free(Place::Host, at)), Err(-2));
    assert_eq!(ask(driver, |call| call.device_address(HostAddress::NULL)), Err(-2));
    assert_eq!(ask(driver, |call| call.free(Place::Device, at)), Ok(()));
    assert_eq!(ask(driver, |call| call.free(Place::Device, at)), Err(-2));
    assert_eq!(driver.violations(), ["Device memory was freed twice"]);
}
