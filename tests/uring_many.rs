//! Rings that come and go (F48). Alone in its process: it counts descriptors.
#![cfg(all(feature = "io-uring", target_os = "linux", not(loom)))]

mod ring;

use gpu_async_reactor::{DurNs, Idle};
use ring::{now, poll_once, ring, run};
use std::fs;

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn f48_a_thousand_rings_come_and_go_without_a_refusal_and_leave_no_descriptor() {
    if ring(8).is_none() {
        return;
    }
    let before = descriptors();
    for round in 0..1_000 {
        let mut idle = ring(8).unwrap_or_else(|| panic!("ring {round} was refused"));
        if round % 4 == 0 {
            let handle = idle.handle();
            run(&mut idle, async { handle.nop().await.unwrap() });
            // In flight when the ring goes.
            let mut timer = handle.timeout(now().after(DurNs::from_ms(60_000)));
            assert!(poll_once(&mut timer).is_pending());
            idle.sleep_until(now().after(DurNs::from_us(10)));
        }
    }
    assert_eq!(descriptors(), before);
}
