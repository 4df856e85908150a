//! Leases on a stream of the software device: host memory that its workers read and write.

use super::buffer::SoftwareBuffer;
use super::queue::{Awaited, StreamCore};
use super::status::count;
use super::stream::SoftwareStream;
use crate::backend::lease::{
    DeviceBuffer, DeviceSide, Lease, LeaseStream, Plain, Readback, Reclaim,
};
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::line::{SharedLine, Slot};
use crate::core::port::DeviceStream;
use alloc::sync::Arc;
use core::{ops::Range, ptr, slice};

impl SoftwareStream {
    /// Leases `buffer` to the work that `queue` queues on this stream: [`Lease::new`], whose
    /// obligations are those of the code that uses the address.
    ///
    /// # Errors
    ///
    /// As [`Lease::new`].
    pub fn lease<B: DeviceBuffer, T>(
        &self,
        buffer: B,
        queue: impl FnOnce(DeviceSide) -> Result<T>,
    ) -> Result<(Lease<B>, T)> {
        Lease::new(self.lease_stream(), buffer, queue)
    }

    /// Queues a copy of the bytes `range` of `from` to the beginning of `into`, to be read as `T`s
    /// once it is done.
    ///
    /// # Errors
    ///
    /// The sticky fault, or that the device is closed; the buffer is leaked and counted then.
    ///
    /// # Panics
    ///
    /// Where `range` does not lie within `from`, is no whole number of `T`s, or does not fit into
    /// `into`.
    pub fn read_back<T: Plain, B: DeviceBuffer>(
        &self,
        from: &SoftwareBuffer,
        range: Range<usize>,
        into: B,
    ) -> Result<Readback<T, B>> {
        assert!(range.start <= range.end && range.end <= from.len(), "the source is too short");
        assert!(range.len() % size_of::<T>() == 0, "the range is no whole number of elements");
        from.check_fork("read_back")?;
        let from = from.clone();
        let count = range.len() / size_of::<T>();
        Readback::new(self.lease_stream(), into, count, |to| {
            self.run(move || {
                from.read(|bytes| {
                    let bytes = &bytes[range];
                    // SAFETY: `Readback::new` checked that so many bytes fit. The memory is valid
                    // by the contract of `DeviceBuffer`, and leased to this work until the mark
                    // behind it is done: nobody else reads or writes it. It is no part of `from`,
                    // whose bytes nobody but its own methods reaches.
                    unsafe {
                        ptr::copy_nonoverlapping(
                            bytes.as_ptr(),
                            to.address().as_ptr(),
                            bytes.len(),
                        );
                    }
                });
            })
        })
    }

    /// Queues a copy of the whole of `from` to `to`, from byte `at` on. The buffer is leased until
    /// the copy is done.
    ///
    /// # Errors
    ///
    /// As [`read_back`](Self::read_back).
    ///
    /// # Panics
    ///
    /// Where `from` does not fit into `to` at `at`.
    pub fn upload<B: DeviceBuffer>(
        &self,
        from: B,
        to: &SoftwareBuffer,
        at: usize,
    ) -> Result<Lease<B>> {
        assert!(at.checked_add(from.bytes()).is_some_and(|end| end <= to.len()), "it does not fit");
        to.check_fork("upload")?;
        let to = to.clone();
        let (lease, ()) = self.lease(from, |from| {
            self.run(move || {
                // SAFETY: the memory is valid and initialised by the contract of `DeviceBuffer`, so
                // many bytes long, and leased to this work: nobody writes it before the mark behind
                // this work is done, which is after the slice is gone.
                let bytes = unsafe { slice::from_raw_parts(from.address().as_ptr(), from.bytes()) };
                to.write(at, bytes);
            })
        })?;
        Ok(lease)
    }

    /// Drops the buffers of dropped leases that the device is done with: [`LeaseStream::sweep`].
    pub fn sweep(&self) -> usize {
        self.core.sweep()
    }

    fn lease_stream(&self) -> Arc<dyn LeaseStream> {
        Arc::clone(&self.core) as _
    }
}

/// The stream as its leases know it, and as it goes on for them once its handle is dropped.
impl DeviceStream for StreamCore {
    fn line(&self) -> &SharedLine {
        &self.line
    }

    fn slot(&self) -> Slot {
        self.slot
    }

    fn device_key(&self) -> usize {
        Arc::as_ptr(&self.device).addr()
    }

    fn query(&self) -> Result<bool> {
        self.check_fork("query")?;
        count(&self.calls.queries);
        self.status.query()
    }

    fn synchronize(&self) -> Result<()> {
        self.check_fork("synchronize")?;
        count(&self.calls.synchronizes);
        let queued = self.status.queued();
        self.wait_until("synchronize", Awaited::done(queued))
    }

    fn mark(&self) -> Result<u64> {
        self.check_fork("mark")?;
        count(&self.calls.marks);
        let Some(me) = self.me.upgrade() else {
            return Err(Error::new(ErrorCode::Closed, ["mark"]));
        };
        me.enqueue_mark()
    }

    fn query_mark(&self, number: u64) -> Result<bool> {
        self.check_fork("query_mark")?;
        count(&self.calls.queries);
        self.status.query_mark(number, self.slot)
    }

    fn synchronize_mark(&self, number: u64) -> Result<()> {
        self.check_fork("synchronize_mark")?;
        count(&self.calls.synchronizes);
        self.status.check_fault("synchronize_mark")?;
        self.status.check_issued(number, self.slot)?;
        self.wait_until("synchronize_mark", Awaited::mark(number))
    }
}

impl LeaseStream for StreamCore {
    fn reclaim(&self) -> &Reclaim {
        &self.reclaim
    }
}
