//! Leases on a stream of a mapped context.

use super::calls::Interface;
use super::stream::{Stream, StreamCore};
use crate::backend::lease::{
    DeviceBuffer, DeviceSide, Lease, LeaseStream, Plain, Readback, Reclaim,
};
use crate::core::error::Result;

impl<A: Interface> LeaseStream for StreamCore<A> {
    fn reclaim(&self) -> &Reclaim {
        &self.reclaim
    }
}

impl<A: Interface> Stream<A> {
    /// Leases `buffer` to the work that `queue` queues on this stream: [`Lease::new`], whose
    /// obligations are those of the driver calls that get the address.
    ///
    /// # Errors
    ///
    /// As [`Lease::new`].
    pub fn lease<B: DeviceBuffer, T>(
        &self,
        buffer: B,
        queue: impl FnOnce(DeviceSide) -> Result<T>,
    ) -> Result<(Lease<B>, T)> {
        Lease::new(self.core.clone(), buffer, queue)
    }

    /// Queues a copy of `count` numbers from device memory `from` to the beginning of `into`, to be read
    /// once it is done. Only with a pinned buffer does the copy run beside the program.
    ///
    /// # Safety
    ///
    /// `from` is device memory of this stream's context, of `count` numbers at least, which stays until
    /// the copy is done, and which nothing writes meanwhile but work that this stream orders.
    ///
    /// # Errors
    ///
    /// The driver's status, [`Captured`](crate::ErrorCode::Captured),
    /// [`Closed`](crate::ErrorCode::Closed) or [`Forked`](crate::ErrorCode::Forked). The buffer comes
    /// back to nobody then: it waits behind what may be queued, or is leaked and counted.
    ///
    /// # Panics
    ///
    /// Where `count` numbers do not fit into `into`.
    pub unsafe fn read_back<T: Plain, B: DeviceBuffer>(
        &self,
        from: u64,
        count: usize,
        into: B,
    ) -> Result<Readback<T, B>> {
        let core = &self.core;
        Readback::new(core.clone(), into, count, |to| {
            let bytes = count * size_of::<T>();
            core.enqueue("read_back", |api| {
                // SAFETY: the stream is live, as long as its core is. `from` is that long and stays,
                // says the caller; `to` is as well, as `Readback::new` has checked, and leased to this
                // copy until the mark behind it is done.
                unsafe { api.copy_to_host(core.handle, to.address(), from, bytes) }
            })
        })
    }

    /// Drops the buffers of dropped leases that the device is done with: [`LeaseStream::sweep`].
    pub fn sweep(&self) -> usize {
        self.core.sweep()
    }
}
