//! A copy from the device to the program: queued, awaited, read as a slice.

use super::LeaseStream;
use super::buffer::{DeviceBuffer, Plain};
use super::held::{DeviceSide, Lease};
use super::not_yet::NotYet;
use crate::core::error::{Error, Result};
use crate::core::plan::WaitPlan;
use crate::core::port::{CompletionPort, Ticket, Waited};
use crate::core::time::{Clock, DurNs, Timer};
use alloc::sync::Arc;
use core::marker::PhantomData;
use core::{fmt, ops::Deref};

/// A copy of `T`s into a leased buffer that is on its way. Nothing of it can be read before it is
/// over.
#[must_use = "dropping it gives the buffer away"]
pub struct Readback<T: Plain, B: DeviceBuffer> {
    lease: Lease<B>,
    count: usize,
    of: PhantomData<fn() -> T>,
}

/// What a [`Readback`] has brought: a slice of the numbers that were copied.
pub struct Landed<T: Plain, B: DeviceBuffer> {
    buffer: B,
    count: usize,
    of: PhantomData<fn() -> T>,
}

impl<T: Plain, B: DeviceBuffer> Readback<T, B> {
    /// Leases `buffer` to a copy of `count` numbers to its beginning, which `queue` queues on
    /// `stream`: [`Lease::new`], with the same obligations.
    ///
    /// # Errors
    ///
    /// As [`Lease::new`].
    ///
    /// # Panics
    ///
    /// Where `count` numbers do not fit into the buffer, or it is not aligned for them. Nothing was
    /// queued then.
    pub fn new(
        stream: Arc<dyn LeaseStream>,
        buffer: B,
        count: usize,
        queue: impl FnOnce(DeviceSide) -> Result<()>,
    ) -> Result<Self> {
        let room = buffer.as_slice::<T>().len();
        assert!(count <= room, "{count} numbers do not fit into a buffer for {room}");
        let (lease, ()) = Lease::new(stream, buffer, queue)?;
        Ok(Self::over(lease, count))
    }

    fn over(lease: Lease<B>, count: usize) -> Self {
        Readback { lease, count, of: PhantomData }
    }

    /// The point behind the copy: `port.at(readback.ticket())`.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        self.lease.ticket()
    }

    /// The lease of the buffer, for its descriptor and stream.
    pub fn lease(&self) -> &Lease<B> {
        &self.lease
    }

    /// The lease alone, which forgets how many numbers there will be.
    pub fn into_lease(self) -> Lease<B> {
        self.lease
    }

    /// What was copied, if it is there: [`Lease::try_take`].
    ///
    /// # Errors
    ///
    /// As [`Lease::try_take`].
    pub fn try_read(self) -> core::result::Result<Landed<T, B>, NotYet<B>> {
        Ok(Landed { buffer: self.lease.try_take()?, count: self.count, of: PhantomData })
    }

    /// Waits by `plan` on `port`, which stands [at the ticket](Self::ticket): [`Lease::wait`].
    ///
    /// # Errors
    ///
    /// As [`Lease::wait`].
    pub async fn wait<P, C>(
        self,
        plan: &WaitPlan,
        sleep: Option<DurNs>,
        port: &mut P,
        time: &C,
    ) -> core::result::Result<(Landed<T, B>, Waited), NotYet<B>>
    where
        P: CompletionPort<Error = Error>,
        C: Clock + Timer,
    {
        let (buffer, waited) = self.lease.wait(plan, sleep, port, time).await?;
        Ok((Landed { buffer, count: self.count, of: PhantomData }, waited))
    }
}

impl<T: Plain, B: DeviceBuffer> Landed<T, B> {
    /// The buffer, for the next copy.
    #[must_use]
    pub fn into_buffer(self) -> B {
        self.buffer
    }
}

impl<T: Plain, B: DeviceBuffer> Deref for Landed<T, B> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.buffer.as_slice()[..self.count]
    }
}

impl<T: Plain, B: DeviceBuffer> fmt::Debug for Readback<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readback").field("lease", &self.lease).field("count", &self.count).finish()
    }
}

impl<T: Plain + fmt::Debug, B: DeviceBuffer> fmt::Debug for Landed<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
