//! What is dropped while a task panics and every driver call fails. Alone in its process: it counts
//! the panics.
#![cfg(not(loom))]

mod common;

use common::{Watchdog, assert_faulted, device};
use gpu_async_reactor::backend::lease::PinnedBuffer;
use gpu_async_reactor::backend::software::{
    Fault, Hang, QueryFault, SoftwareBuffer, SoftwareStream, Work,
};
use gpu_async_reactor::host::Runtime;
use gpu_async_reactor::{Clock, DeviceStream, DurNs, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

const PLANS: [&str; 3] = ["poll", "spin:backstop_us=2000", "flag:park_us=100,backstop_us=2000"];

static PANICS: AtomicU32 = AtomicU32::new(0);

/// Everything that a task of a program holds of a device, with the waits that it is in the middle of.
async fn hold_everything(runtime: &Runtime, stream: &SoftwareStream, then: impl AsyncFnOnce()) {
    let handle = runtime.handle();
    let bytes = SoftwareBuffer::new(64);
    let read = stream.read_back::<u8, _>(&bytes, 0..64, PinnedBuffer::new(64)).unwrap();
    let upload = stream.upload(PinnedBuffer::new(64), &bytes, 0).unwrap();
    let port = handle.port(stream);
    let (first, second) = (port.mark().unwrap(), port.mark().unwrap());
    let (mut at_first, mut at_second, mut all) =
        (port.at(first), port.at(second), handle.port(stream));
    let deadline = handle.clock().monotonic_ns().after(DurNs::from_ms(60_000));
    let waits = (
        Box::pin(handle.wait("first", &mut at_first)),
        Box::pin(handle.wait_until("second", &mut at_second, deadline)),
        Box::pin(handle.wait("all", &mut all)),
    );
    let (mut one, mut two, mut three) = waits;
    tokio::select! {
        biased;
        ended = &mut one => panic!("ended: {ended:?}"),
        ended = &mut two => panic!("ended: {ended:?}"),
        ended = &mut three => panic!("ended: {ended:?}"),
        () = yield_now() => {}
    }
    then().await;
    drop((read, upload));
}

#[test]
fn f41_every_driver_call_fails_while_a_task_panics_and_nothing_panics_in_a_drop() {
    let _watchdog = Watchdog::new("f41");
    // A panic in a drop aborts the process while another one unwinds, and at once in a program built
    // with `panic=abort`. Here the task's own panic does not call the hook, so the hook counts those.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        hook(info);
    }));
    for plan in PLANS {
        for panics in [true, false] {
            let runtime = Rc::new(Runtime::new(plan, "gpu-reactor").unwrap());
            let (device, hang) = (device(), Hang::new());
            let stream = Rc::new(device.stream_on(runtime.doorbell()).unwrap());
            stream.queue(Work::new().hang(&hang)).unwrap();
            let (of_task, its) = (runtime.clone(), stream.clone());
            let lose = {
                let (device, stream) = (device.clone(), stream.clone());
                async move || {
                    device.lose(Fault::new(999, "UNKNOWN"));
                    // A status call that fails otherwise than the sticky fault says, at first.
                    stream.inject_query(QueryFault::Fail(Fault::new(4, "DEINITIALIZED")));
                    if panics {
                        resume_unwind(Box::new("a bug of the program"));
                    }
                }
            };
            let task = runtime.spawn(async move { hold_everything(&of_task, &its, lose).await });
            let ran = catch_unwind(AssertUnwindSafe(|| runtime.run()));
            assert_eq!(ran.is_err(), panics, "{plan}");
            assert_eq!(PANICS.load(Ordering::Relaxed), 0, "{plan}: in a drop");
            assert_eq!(runtime.stats().pending, 0, "the waits went with it");
            assert_eq!(runtime.block_on(task).unwrap().is_err(), panics);
            let _ = stream.query();
            assert_faulted(&stream, "999 UNKNOWN");
            drop((stream, runtime));
            device.close();
            drop(hang);
            assert_eq!(device.lease_stats().leaked, 2, "both buffers may still be in use");
            assert_eq!(PANICS.load(Ordering::Relaxed), 0, "{plan}: in the device's end");
        }
    }
}
