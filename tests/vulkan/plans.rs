//! Every plan on a real device.

use crate::setup::{BOUND, PARKS, busy, device, idle, plan, seen};
use gpu_async_reactor::backend::vulkan::VulkanDevice;
use gpu_async_reactor::host::{Runtime, StdClock, StdIdle, WatchOptions, WatchPolicy, Watcher};
use gpu_async_reactor::{
    Clock, DeviceStream, DurNs, End, Executor, Reactor, ReactorPort, ThreadPort, WaitPlan,
    run_inline, wait,
};
use std::pin::Pin;

crate::cases![
    every_plan_ends_right_on_a_thread_and_on_a_reactor,
    a_predicting_runtime_learns_from_a_real_device,
    a_watcher_resolves_a_real_device_s_marks,
    f24_a_wait_for_a_mark_ends_whatever_is_queued_behind_it,
];

const PREDICT: &str = "+predict:margin_us=200,min_sleep_us=100,max_sleep_us=100000,window=4";

/// Each park, with and without prediction, as it resolves here.
fn resolved(device: &VulkanDevice) -> Vec<WaitPlan> {
    let (_, host) = StdIdle::probe(StdClock::new());
    let caps = device.caps();
    let predicting = PARKS.map(|park| format!("{park}{PREDICT}"));
    let texts = PARKS.map(str::to_string).into_iter().chain(predicting).chain(["block".into()]);
    let resolved = texts.map(|text| plan(&text).resolve_on(&host, &caps));
    resolved
        .map(|resolved| {
            println!("    {}", resolved.label());
            resolved.plan
        })
        .collect()
}

fn fits(plan: &WaitPlan, end: End) -> bool {
    use gpu_async_reactor::Park;
    match plan.park {
        Park::Block => end == End::Blocked,
        // A wait that begins after the work is over, or sleeps beyond it, has nothing to park for.
        _ if end == End::Immediate => true,
        _ if end == End::Late => plan.predict.is_some(),
        Park::QueryPoll => end == End::Polled,
        Park::FlagWait { .. } => end == End::Parked,
        Park::Spin { .. } => end == End::Spun,
    }
}

fn every_plan_ends_right_on_a_thread_and_on_a_reactor() {
    let device = device();
    let clock = StdClock::new();
    let bell = device.doorbell().unwrap();
    let reactor = Reactor::with_doorbell(clock, &bell);
    for plan in resolved(&device) {
        let sleep = plan.predict.map(|_| DurNs::from_us(300));
        for on_reactor in [false, true] {
            let stream = device.stream_on(&bell).unwrap();
            let buffer = busy(&device, &stream, 3);
            let waited = if on_reactor {
                let mut executor: Executor<Pin<Box<dyn Future<Output = ()>>>> = Executor::new();
                let main = async {
                    let mut port = ReactorPort::new(&stream, &reactor);
                    wait(&plan, sleep, &mut port, &reactor).await
                };
                executor.run_until(&reactor, &mut idle(), BOUND, main).unwrap().0
            } else {
                let mut port = ThreadPort::new(&stream, idle());
                run_inline(wait(&plan, sleep, &mut port, &clock)).unwrap()
            };
            let end = waited.unwrap().end;
            assert!(fits(&plan, end), "{}: {end:?}", plan.label());
            assert!(stream.query().unwrap(), "{}: ended before its work", plan.label());
            drop(buffer);
        }
    }
    drop((reactor, bell));
}

fn a_predicting_runtime_learns_from_a_real_device() {
    let device = device();
    let bell = device.doorbell().unwrap();
    let text = format!("spin:backstop_us=1000{PREDICT}");
    let runtime =
        Runtime::builder(&text, "gpu-reactor").doorbell(bell).device(device.caps()).build();
    let runtime = runtime.unwrap();
    assert_eq!(runtime.plans().label(), text);
    let stream = device.stream_on(runtime.doorbell()).unwrap();
    let mut slept = 0;
    let mut port = runtime.port(&stream);
    for _ in 0..20 {
        let buffer = busy(&device, &stream, 3);
        let waited = runtime.block_on(runtime.wait("fill", &mut port)).unwrap().unwrap();
        slept += usize::from(waited.slept > DurNs::ZERO);
        drop(buffer);
    }
    assert!(slept > 0, "{:?}", runtime.stats());
    drop(port);
    drop((runtime, stream));
}

fn a_watcher_resolves_a_real_device_s_marks() {
    let device = device();
    let watcher = Watcher::new(WatchPolicy::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let stream = std::sync::Arc::new(device.stream().unwrap());
    for _ in 0..50 {
        let number = stream.mark().unwrap();
        let options = WatchOptions::new(DurNs::from_ms(1));
        runtime.block_on(watcher.watch_stream(stream.clone(), number, options)).unwrap();
        assert!(stream.query_mark(number).unwrap());
    }
    drop((watcher, stream));
}

fn f24_a_wait_for_a_mark_ends_whatever_is_queued_behind_it() {
    let device = device();
    let clock = StdClock::new();
    for text in PARKS.iter().chain(&["block"]) {
        let stream = device.stream().unwrap();
        let gate = crate::setup::Gate::new(&device);
        let mut port = ThreadPort::new(&stream, idle());
        let step = port.mark().unwrap();
        gate.hold(&stream).unwrap();
        let began = clock.monotonic_ns();
        run_inline(wait(&plan(text), None, &mut port.at(step), &clock)).unwrap().unwrap();
        assert!(clock.monotonic_ns() >= began);
        assert!(!stream.query().unwrap(), "{text}: the stream itself is still busy");
        stream.synchronize_mark(step.number()).unwrap();
        assert!(seen(&stream, step.number()));
        gate.open();
        drop(port);
        drop(stream);
        gate.end();
    }
}
