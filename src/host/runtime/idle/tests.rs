//! What a plan resolved to is what idles, whatever the executor and the policy.

use crate::backend::software::SoftwareDevice;
use crate::core::time::DurNs;
use crate::host::std_idle::hardware::counted;
use crate::host::{ParkPolicy, Runtime};
use alloc::string::{String, ToString};
use std::println;

const FLAG: &str = "flag:park_us=500,backstop_us=2000";

/// Runs one wait of the plan. Returns the plan's label and how many parks in hardware there were.
fn waited(executor: &str, policy: Option<ParkPolicy>) -> (String, u64) {
    let mut builder = Runtime::builder(FLAG, executor);
    if let Some(policy) = policy {
        builder = builder.park_policy(policy);
    }
    let runtime = builder.build().unwrap();
    let device = SoftwareDevice::new().unwrap();
    let stream = device.stream_on(runtime.doorbell()).unwrap();
    counted::take_parks();
    let handle = runtime.handle();
    runtime
        .block_on(async move {
            stream.delay(DurNs::from_ms(3)).unwrap();
            let mut port = handle.port(&stream);
            handle.wait("step", &mut port).await.unwrap();
        })
        .unwrap();
    println!(
        "{executor}, {policy:?}: runs {}, {}",
        runtime.executor().label(),
        runtime.plans().label()
    );
    (runtime.plans().label().to_string(), counted::take_parks())
}

#[test]
fn a_flag_plan_keeps_its_label_exactly_if_its_parks_are_in_hardware() {
    for executor in ["naive", "gpu-reactor", "io-uring"] {
        for policy in [None, Some(ParkPolicy::SAVING)] {
            counted::offer(true);
            let (label, parks) = waited(executor, policy);
            assert_eq!(label, FLAG, "{executor}");
            assert!(parks > 0, "{executor}, {policy:?}: it parked, but not in hardware");
            counted::offer(false);
            let (label, parks) = waited(executor, policy);
            assert!(label.contains("fallback from flag"), "{executor}: {label}");
            assert_eq!(parks, 0, "{executor}, {policy:?}");
        }
    }
}

where_io_uring! {
    mod in_a_ring {
        use super::{FLAG, counted};
        use crate::backend::software::SoftwareDevice;
        use crate::core::time::{Clock, DurNs};
        use crate::host::Runtime;
        use std::os::fd::OwnedFd;
        use std::os::unix::net::UnixStream;
        use std::println;
        use std::sync::Arc;
        use std::vec::Vec;

        #[test]
        fn io_ends_while_the_thread_is_parked_in_hardware() {
            counted::offer(true);
            let runtime = Runtime::builder(FLAG, "io-uring").build().unwrap();
            let Some(ring) = runtime.uring().cloned() else {
                println!("skipped: {:?}", runtime.warnings().next());
                return;
            };
            let device = SoftwareDevice::new().unwrap();
            let stream = device.stream_on(runtime.doorbell()).unwrap();
            let (peer, socket) = UnixStream::pair().unwrap();
            let (peer, socket) = (OwnedFd::from(peer), Arc::new(OwnedFd::from(socket)));
            let (handle, clock) = (runtime.handle(), runtime.clock());
            let (received, done) = runtime
                .block_on(async move {
                    // Device work that takes long beside a message that does not.
                    stream.delay(DurNs::from_ms(200)).unwrap();
                    let receiving = handle.spawn(async move {
                        let (read, _) = ring.recv(&socket, Vec::with_capacity(8)).await;
                        (read.unwrap(), clock.monotonic_ns())
                    });
                    let at = clock.monotonic_ns().after(DurNs::from_ms(5));
                    let sender = std::thread::spawn(move || {
                        while clock.monotonic_ns() < at {
                            std::thread::yield_now();
                        }
                        rustix::io::write(&peer, b"message").unwrap();
                        peer
                    });
                    let mut port = handle.port(&stream);
                    handle.wait("step", &mut port).await.unwrap();
                    let done = clock.monotonic_ns();
                    drop(sender.join().unwrap());
                    let (read, received) = receiving.await.unwrap();
                    assert_eq!(read, 7);
                    (received, done)
                })
                .unwrap();
            assert!(counted::take_parks() > 0);
            // The wait is over some 200 ms after the message came; half of that is a wide bound.
            assert!(done.since(received) > DurNs::from_ms(100), "only the wait's end brought it");
        }
    }
}
