//! What a lease allocates: one block, which is also the place its buffer waits in.
#![cfg(feature = "software")]

mod common;

use common::{Watchdog, device};
use gpu_async_reactor::DeviceStream;
use gpu_async_reactor::backend::lease::{LeaseStats, PinnedBuffer};
use gpu_async_reactor::backend::software::{Hang, Work};

const LEASES: usize = 100;

#[test]
fn dropping_a_lease_early_allocates_and_frees_nothing_and_making_one_allocates_one_block() {
    let _watchdog = Watchdog::new("lease allocations");
    let device = device();
    let stream = device.stream().unwrap();
    let gate = Hang::new();
    stream.queue(Work::new().hang(&gate)).unwrap();
    // The stream's own queue grows once for all of them.
    for _ in 0..8 * LEASES {
        stream.mark().unwrap();
    }
    gate.release();
    stream.synchronize().unwrap();
    let gate = Hang::new();
    stream.queue(Work::new().hang(&gate)).unwrap();

    let buffers: Vec<_> = (0..LEASES).map(|_| PinnedBuffer::new(64)).collect();
    let mut leases = Vec::with_capacity(LEASES);
    let made = allocation_counter::measure(|| {
        for buffer in buffers {
            leases.push(stream.lease(buffer, |_| Ok(())).unwrap().0);
        }
    });
    assert_eq!(made.count_total, LEASES as u64, "one block for each lease");

    let dropped = allocation_counter::measure(|| drop(leases.drain(..)));
    assert_eq!((dropped.count_total, dropped.count_current), (0, 0), "{dropped:?}");
    let waiting = LeaseStats { leased: LEASES, waiting: LEASES, leaked: 0, panicked: 0 };
    assert_eq!(device.lease_stats(), waiting);

    gate.release();
    stream.synchronize().unwrap();
    let swept = allocation_counter::measure(|| assert_eq!(stream.sweep(), LEASES));
    // The block of each lease, and the buffer in it.
    assert_eq!((swept.count_total, swept.count_current), (0, -2 * LEASES as i64), "{swept:?}");
}
