//! Many threads that make and drop streams and leases, with waits in flight.
#![cfg(feature = "software")]

mod common;
mod leases;

use common::{Watchdog, wait_for};
use gpu_async_reactor::backend::lease::LeaseStats;
use gpu_async_reactor::backend::software::{Hang, SoftwareDevice};
use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{DeviceStream, DurNs, ThreadPort};
use leases::{Rig, SPIN, idle, plan, wait_for_lease};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Eight threads on one device, each with streams that it makes and drops while work is on its way and
/// leases that it drops, awaits, forgets a wait of, or lets another thread sweep.
#[test]
fn f5_eight_threads_make_and_drop_streams_and_leases_with_waits_in_flight() {
    let _watchdog = Watchdog::new("f5 eight threads");
    let rounds = if cfg!(debug_assertions) { 100 } else { 1_000 };
    let device = SoftwareDevice::builder().spin_before(DurNs::ZERO).build().unwrap();
    let dropped: Arc<AtomicUsize> = Arc::default();
    let made: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let (device, dropped) = (&device, dropped.clone());
                scope.spawn(move || {
                    (0..rounds).map(|round| turn(device, &dropped, thread + round)).sum::<usize>()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    wait_for(|| device.slots().leased == 0);
    wait_for(|| device.lease_stats() == LeaseStats::default());
    assert_eq!(dropped.load(Ordering::SeqCst), made, "each buffer was freed once");
    device.close();
}

/// One stream's life. Says how many buffers it leased.
fn turn(device: &SoftwareDevice, dropped: &Arc<AtomicUsize>, kind: usize) -> usize {
    let rig =
        Rig { device: device.clone(), stream: device.stream().unwrap(), dropped: dropped.clone() };
    let open = Hang::new();
    open.release();
    rig.stream.delay(DurNs::from_us(20 * (kind as u64 % 4))).unwrap();
    let [first, second, third] = [rig.lease(&open), rig.lease(&open), rig.lease(&open)];
    match kind % 5 {
        // Dropped with the device at work, the stream first or last.
        0 => drop((rig, first, second, third)),
        1 => drop((first, second, third)),
        // A wait in flight is dropped, with its lease.
        2 => {
            let ticket = first.ticket();
            let mut port = ThreadPort::new(first.stream().clone(), idle());
            let (mut at, plan, clock) = (port.at(ticket), plan(SPIN), StdClock::new());
            let mut waiting = Box::pin(first.wait(&plan, Some(DurNs::from_us(1)), &mut at, &clock));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            let _ = waiting.as_mut().poll(&mut context);
            drop((second, rig, waiting, third));
        }
        3 => {
            drop(second);
            let (buffer, _) = wait_for_lease(first, SPIN).unwrap();
            drop((buffer, rig, third));
        }
        // Swept by another thread's lease, which learns of the drops by the list alone.
        _ => {
            let gone = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    rig.stream.sweep();
                    wait_for(|| gone.load(Ordering::Relaxed));
                    rig.stream.synchronize().unwrap();
                    drop(rig.lease(&open));
                });
                drop((first, second, third));
                gone.store(true, Ordering::Relaxed);
            });
            return 4;
        }
    }
    3
}
