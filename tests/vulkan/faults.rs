//! Rows of `docs/faults.md` on a real device, broken where a fault is needed.

use crate::broken::{Broken, fail, fail_always, forge_counters, lose_stores, repair};
use crate::common::wait_for;
use crate::setup::{BOUND, Gate, PARKS, device, idle, plan, seen};
use gpu_async_reactor::backend::vulkan::VulkanStream;
use gpu_async_reactor::backend::vulkan::ash::vk;
use gpu_async_reactor::host::{StdClock, WatchOptions, WatchPolicy, Watcher};
use gpu_async_reactor::{
    Clock, DeviceStream, DurNs, End, Error, Executor, Reactor, ReactorPort, ThreadPort, WaitError,
    Waited, run_inline, wait, wait_until,
};
use std::pin::Pin;
use std::sync::Arc;

crate::cases![
    f1_after_a_loss_every_wait_ends_with_it_although_its_word_was_stored,
    f1_a_counter_that_a_driver_sets_to_its_maximum_is_a_loss_and_no_completion,
    f2_a_silent_word_and_a_lost_device_end_the_wait_within_one_backstop,
    f7_a_store_that_never_lands_is_refused_by_name_and_ends_waits_at_the_backstop,
    f12_a_submission_that_fails_while_the_wait_arms_is_the_wait_s_error,
    f12_a_loss_that_a_watcher_s_backstop_meets_is_the_watch_s_error,
    f13_work_that_never_finishes_times_out_and_the_program_goes_on,
    f20_a_status_that_fails_is_an_error_and_not_pending,
];

const LOST: vk::Result = vk::Result::ERROR_DEVICE_LOST;
const BACKSTOP: DurNs = DurNs::from_us(2_000);

fn is_loss(error: &Error) -> bool {
    error.status_number() == Some(i64::from(LOST.as_raw()))
}

fn wait_on_thread(stream: &VulkanStream, text: &str) -> Result<Waited, Error> {
    let mut port = ThreadPort::new(stream, idle());
    run_inline(wait(&plan(text), None, &mut port, &StdClock::new())).unwrap()
}

fn wait_on_reactor(stream: &VulkanStream, text: &str) -> Result<Waited, Error> {
    let reactor = Reactor::new(StdClock::new());
    let mut executor: Executor<Pin<Box<dyn Future<Output = ()>>>> = Executor::new();
    let plan = plan(text);
    let main = async {
        let mut port = ReactorPort::new(stream, &reactor);
        wait(&plan, None, &mut port, &reactor).await
    };
    executor.run_until(&reactor, &mut idle(), BOUND, main).unwrap().0
}

fn f1_after_a_loss_every_wait_ends_with_it_although_its_word_was_stored() {
    let broken = Broken::new();
    let stream = broken.device.stream().unwrap();
    let number = stream.mark().unwrap();
    wait_for(|| seen(&stream, number));
    fail("vkGetSemaphoreCounterValue", 0, LOST);
    assert!(is_loss(&stream.query().unwrap_err()));
    // From here on the driver answers as if nothing had happened.
    assert!(!repair());
    for text in PARKS.iter().chain(&["block"]) {
        for ended in [wait_on_thread(&stream, text), wait_on_reactor(&stream, text)] {
            assert!(is_loss(&ended.unwrap_err()), "{text}");
        }
    }
    assert!(is_loss(&stream.query_mark(number).unwrap_err()));
    assert!(is_loss(&stream.synchronize_mark(number).unwrap_err()));
}

fn f1_a_counter_that_a_driver_sets_to_its_maximum_is_a_loss_and_no_completion() {
    for method in 0..4 {
        let broken = Broken::new();
        let stream = broken.device.stream().unwrap();
        let gate = Gate::new(&broken.device);
        gate.hold(&stream).unwrap();
        let number = stream.mark().unwrap();
        forge_counters(u64::MAX);
        if method > 1 {
            // The blocking wait says success as well.
            fail("vkWaitSemaphores", 0, vk::Result::SUCCESS);
        }
        let ask = |method| match method {
            0 => stream.query(),
            1 => stream.query_mark(number),
            2 => stream.synchronize().map(|()| true),
            _ => stream.synchronize_mark(number).map(|()| true),
        };
        let error = ask(method).unwrap_err();
        assert!(error.to_string().contains("the device is lost"), "{error}");
        repair();
        assert_eq!(ask(method).unwrap_err(), error, "for good");
        gate.open();
    }
}

fn f2_a_silent_word_and_a_lost_device_end_the_wait_within_one_backstop() {
    for text in &PARKS[1..] {
        // The best of many, as this thread may lose its core: no more than are needed.
        let bound = DurNs(BACKSTOP.0 + 500_000);
        let best = (0..60)
            .map(|_| {
                let broken = Broken::new();
                let stream = broken.device.stream().unwrap();
                let gate = Gate::new(&broken.device);
                gate.hold(&stream).unwrap();
                let clock = StdClock::new();
                let (ended, lost) = std::thread::scope(|scope| {
                    let losing = scope.spawn(|| {
                        // The wait is on its way once it has armed: one more submission.
                        wait_for(|| stream.calls().submits == 2);
                        fail_always("vkGetSemaphoreCounterValue", LOST);
                        clock.monotonic_ns()
                    });
                    let error = wait_on_thread(&stream, text).unwrap_err();
                    let ended = clock.monotonic_ns();
                    assert!(is_loss(&error), "{text}: {error}");
                    (ended, losing.join().unwrap())
                });
                repair();
                gate.open();
                ended.since(lost)
            })
            .find(|took| *took <= bound);
        println!("    {text}: {best:?}");
        assert!(best.is_some(), "{text}: later than a backstop each time");
    }
}

fn f7_a_store_that_never_lands_is_refused_by_name_and_ends_waits_at_the_backstop() {
    let broken = Broken::new();
    let device = &broken.device;
    lose_stores();
    let refused = device.caps().store.unwrap_err();
    assert!(refused.contains("never written (vkCmdUpdateBuffer on "), "{refused}");
    let resolved = plan("spin:backstop_us=2000").resolve_on(
        &gpu_async_reactor::HostCaps { device_word_wait: Ok(()) },
        &gpu_async_reactor::DeviceCaps { store: Err(refused) },
    );
    assert_eq!(resolved.plan, plan("poll"));
    let stream = device.stream().unwrap();
    // A program that waits for the word all the same.
    let gate = Gate::new(device);
    gate.hold(&stream).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for(|| stream.calls().submits == 2);
            gate.open();
        });
        let waited = wait_on_thread(&stream, "spin:backstop_us=2000").unwrap();
        assert_eq!(waited.end, End::Backstop);
    });
    drop(stream);
    gate.end();
    repair();
    let _another = device.stream().unwrap();
    // Both slots: that of the probe and this one. A store that did not land may still do so.
    assert_eq!(device.stats().slots.retired, 2);
    drop(_another);
    assert_eq!(device.close(), Ok(1), "their page is never freed");
    broken.messages.assert_none();
}

fn f12_a_submission_that_fails_while_the_wait_arms_is_the_wait_s_error() {
    for text in &PARKS[1..] {
        let broken = Broken::new();
        let stream = broken.device.stream().unwrap();
        let gate = Gate::new(&broken.device);
        gate.hold(&stream).unwrap();
        fail("vkQueueSubmit", 0, LOST);
        let error = wait_on_reactor(&stream, text).unwrap_err();
        assert!(is_loss(&error) && error.args()[0] == "vkQueueSubmit", "{error}");
        repair();
        gate.open();
    }
}

fn f12_a_loss_that_a_watcher_s_backstop_meets_is_the_watch_s_error() {
    let broken = Broken::new();
    let stream = Arc::new(broken.device.stream().unwrap());
    let gate = Gate::new(&broken.device);
    gate.hold(&stream).unwrap();
    let number = stream.mark().unwrap();
    let watcher = Watcher::new(WatchPolicy::default()).unwrap();
    let watch = watcher.watch_stream(stream.clone(), number, WatchOptions::new(BACKSTOP));
    fail_always("vkGetSemaphoreCounterValue", LOST);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error = runtime.block_on(watch).unwrap_err();
    assert!(error.to_string().contains("-4 ERROR_DEVICE_LOST"), "{error}");
    repair();
    gate.open();
}

fn f13_work_that_never_finishes_times_out_and_the_program_goes_on() {
    let device = device();
    let clock = StdClock::new();
    for text in PARKS {
        let stream = device.stream().unwrap();
        let gate = Gate::new(&device);
        gate.hold(&stream).unwrap();
        let mut port = ThreadPort::new(&stream, idle());
        let deadline = clock.monotonic_ns().after(DurNs::from_ms(3));
        let ended = run_inline(wait_until(&plan(text), None, &mut port, &clock, deadline)).unwrap();
        let Err(WaitError::TimedOut(waited)) = ended else { panic!("{text}: {ended:?}") };
        assert!(clock.monotonic_ns() >= deadline && waited.end == End::TimedOut);
        // The port stays usable, and the device still owns what it uses.
        gate.open();
        run_inline(wait(&plan(text), None, &mut port, &clock)).unwrap().unwrap();
        assert!(stream.query().unwrap());
        drop(port);
        drop(stream);
        gate.end();
    }
}

fn f20_a_status_that_fails_is_an_error_and_not_pending() {
    let broken = Broken::new();
    let stream = broken.device.stream().unwrap();
    let number = stream.mark().unwrap();
    let result = vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
    for ask in [&|| stream.query() as Result<bool, Error>, &|| stream.query_mark(number)]
        as [&dyn Fn() -> Result<bool, Error>; 2]
    {
        fail("vkGetSemaphoreCounterValue", 0, result);
        let error = ask().unwrap_err();
        assert_eq!(error.to_string(), "vkGetSemaphoreCounterValue: -2 ERROR_OUT_OF_DEVICE_MEMORY");
    }
    // It was no loss: the next answer is one.
    stream.synchronize().unwrap();
    assert!(stream.query().unwrap());
    drop(stream);
    broken.end();
}
