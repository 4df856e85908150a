//! Leases on the software device whose buffers say how they end: what the tests of leases share.
#![allow(dead_code, reason = "each test binary uses its own part of it")]

use gpu_async_reactor::backend::lease::{DeviceBuffer, Lease, LeaseStats, NotYet, PinnedBuffer};
use gpu_async_reactor::backend::software::{Hang, SoftwareDevice, SoftwareStream, Work};
use gpu_async_reactor::host::{ParkPolicy, StdClock, StdIdle};
use gpu_async_reactor::{ThreadPort, WaitPlan, Waited, run_inline};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub const SPIN: &str = "spin:backstop_us=2000";
pub const PATTERN: u8 = 0xA5;

pub fn plan(text: &str) -> WaitPlan {
    WaitPlan::parse(text).unwrap()
}

pub fn idle() -> StdIdle {
    StdIdle::with(StdClock::new(), ParkPolicy::default())
}

/// Waits for a lease on the calling thread, by a port over the lease's own stream.
pub fn wait_for_lease<B: DeviceBuffer>(
    lease: Lease<B>,
    text: &str,
) -> Result<(B, Waited), NotYet<B>> {
    let (plan, clock, ticket) = (plan(text), StdClock::new(), lease.ticket());
    let mut port = ThreadPort::new(lease.stream().clone(), idle());
    let mut at = port.at(ticket);
    run_inline(lease.wait(&plan, None, &mut at, &clock)).unwrap()
}

/// Pinned memory that counts its destructions, and checks its end: whether the device has written it
/// to the last byte by then.
#[derive(Debug)]
pub struct Watched {
    pub memory: PinnedBuffer,
    pub dropped: Arc<AtomicUsize>,
    pub panics: bool,
}

// SAFETY: the memory is that of a `PinnedBuffer`, which meets the contract and is nobody else's.
unsafe impl DeviceBuffer for Watched {
    fn address(&self) -> NonNull<u8> {
        self.memory.address()
    }

    fn bytes(&self) -> usize {
        self.memory.bytes()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics, "a destructor that panics");
        let written = self.memory.as_slice::<u8>().iter().all(|&byte| byte == PATTERN);
        if !written && !std::thread::panicking() {
            // On a worker, or within a contained destructor, a panic would be taken for one of the
            // program's.
            eprintln!("freed under the device");
            std::process::abort();
        }
    }
}

pub struct Rig {
    pub device: SoftwareDevice,
    pub stream: SoftwareStream,
    pub dropped: Arc<AtomicUsize>,
}

impl Rig {
    pub fn new() -> Self {
        let device = SoftwareDevice::new().unwrap();
        let stream = device.stream().unwrap();
        Rig { device, stream, dropped: Arc::default() }
    }

    pub fn buffer(&self) -> Watched {
        self.buffer_that(false)
    }

    pub fn buffer_that(&self, panics: bool) -> Watched {
        Watched { memory: PinnedBuffer::new(64), dropped: self.dropped.clone(), panics }
    }

    /// A buffer that work behind `gate` fills, byte by byte.
    pub fn lease(&self, gate: &Hang) -> Lease<Watched> {
        self.lease_with(self.buffer(), gate)
    }

    pub fn lease_with(&self, buffer: Watched, gate: &Hang) -> Lease<Watched> {
        let stream = &self.stream;
        let (lease, ()) = stream
            .lease(buffer, |side| {
                stream.queue(Work::new().hang(gate).run(move || {
                    for at in 0..side.bytes() {
                        // SAFETY: within the leased memory, which this work has to itself.
                        unsafe { side.address().add(at).write_volatile(PATTERN) };
                    }
                }))
            })
            .unwrap();
        lease
    }

    pub fn dropped(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }

    pub fn stats(&self) -> LeaseStats {
        self.device.lease_stats()
    }
}

pub fn stats(leased: usize, waiting: usize, leaked: usize) -> LeaseStats {
    LeaseStats { leased, waiting, leaked, panicked: 0 }
}
