//! The lease itself: how a buffer goes to the device and comes back.

use super::LeaseStream;
use super::buffer::DeviceBuffer;
use super::node::Place;
use super::not_yet::{NotYet, NotYetReason};
use crate::core::error::{Error, Result};
use crate::core::line::OwnedDescriptor;
use crate::core::plan::WaitPlan;
use crate::core::port::{CompletionPort, Ticket, Waited, wait, wait_until};
use crate::core::time::{Clock, DurNs, MonoNs, Timer};
use alloc::sync::Arc;
use core::mem::ManuallyDrop;
use core::{fmt, ptr, ptr::NonNull};

/// A buffer that the device is using: nobody else can touch it.
///
/// It is handed back by [`try_take`](Self::try_take) or a wait once the status of the stream says
/// that the mark behind its work is done. Dropped early, the buffer waits in its stream's
/// [`Reclaim`](super::Reclaim) list; see the [module](super) for its way. Dropping costs one
/// compare-and-swap, and no call of the device, allocation or lock, unless it is the last to
/// hold its stream, which then ends.
///
/// `Send` and `Sync`: there is nothing to reach.
#[must_use = "dropping it gives the buffer away"]
pub struct Lease<B: DeviceBuffer> {
    /// Taken out where the lease ends.
    place: ManuallyDrop<Place<B>>,
    number: u64,
    stream: ManuallyDrop<Arc<dyn LeaseStream>>,
}

/// What the device gets of a leased buffer: where its memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceSide {
    first: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address and a length, which give no access by themselves.
unsafe impl Send for DeviceSide {}
// SAFETY: as above.
unsafe impl Sync for DeviceSide {}

impl DeviceSide {
    /// The address of the first byte, as this process sees it.
    ///
    /// Work on the stream of the lease that was queued by the lease's closure may read and write
    /// there, [`bytes`](Self::bytes) long, and nothing else may: before the closure was called and
    /// once the mark behind it is done, the memory is the program's.
    #[must_use]
    pub fn address(self) -> NonNull<u8> {
        self.first
    }

    /// How many bytes there are.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.bytes
    }
}

/// A buffer whose work is being queued. Whatever happens, what was queued is marked.
struct Queuing<B: DeviceBuffer> {
    place: ManuallyDrop<Place<B>>,
    stream: ManuallyDrop<Arc<dyn LeaseStream>>,
}

impl<B: DeviceBuffer> Queuing<B> {
    /// The parts, without the destructor.
    fn take_apart(self) -> (Place<B>, Arc<dyn LeaseStream>) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: each field is taken once, and the destructor that would take them again does
        // not run.
        unsafe { (ManuallyDrop::take(&mut this.place), ManuallyDrop::take(&mut this.stream)) }
    }
}

impl<B: DeviceBuffer> Drop for Queuing<B> {
    /// The closure failed or panicked, and part of the work may be queued.
    fn drop(&mut self) {
        // SAFETY: each field is taken here, once, and nothing uses it after the destructor.
        let (place, stream) =
            unsafe { (ManuallyDrop::take(&mut self.place), ManuallyDrop::take(&mut self.stream)) };
        match stream.mark() {
            Ok(number) => stream.reclaim().wait(place, number),
            Err(_) => stream.reclaim().leak(place),
        }
    }
}

impl<B: DeviceBuffer> Lease<B> {
    /// Leases `buffer` to the work that `queue` queues on `stream`, and marks the stream behind it.
    ///
    /// `queue` is called on this thread, once, with no lock held. It must queue what uses the buffer
    /// on this very stream: the mark of another says nothing about it. Whoever lets the device, or a
    /// thread that plays one, use the address relies on this.
    ///
    /// First it sweeps the buffers of the stream that wait and are done, as far as its word shows.
    /// Costs one allocation, which is the place the buffer would wait in.
    ///
    /// # Errors
    ///
    /// That of `queue`: part of the work may be queued, so the stream is marked all the same
    /// and the buffer waits there, as after a panic of `queue`. That of
    /// [`mark`](crate::DeviceStream::mark), and then nobody can tell when the device is done: the
    /// buffer is leaked and counted. [`Forked`](crate::ErrorCode::Forked) in a forked child, before
    /// anything is queued.
    pub fn new<T>(
        stream: Arc<dyn LeaseStream>,
        buffer: B,
        queue: impl FnOnce(DeviceSide) -> Result<T>,
    ) -> Result<(Self, T)> {
        stream.reclaim().check_fork("lease")?;
        stream.reclaim().sweep_reached(&*stream);
        // Of the buffer itself, whose memory stays where it is: these are a user's code, which may panic.
        let (first, bytes) = (buffer.address(), buffer.bytes());
        let place = Place::new(buffer, &stream);
        stream.reclaim().leased();
        let queuing =
            Queuing { place: ManuallyDrop::new(place), stream: ManuallyDrop::new(stream) };
        let queued = queue(DeviceSide { first, bytes })?;
        let (place, stream) = queuing.take_apart();
        match stream.mark() {
            Ok(number) => {
                let place = ManuallyDrop::new(place);
                Ok((Lease { place, number, stream: ManuallyDrop::new(stream) }, queued))
            }
            Err(error) => {
                stream.reclaim().leak(place);
                Err(error)
            }
        }
    }

    /// The point of the stream behind the work, so that any of the stream's ports can wait for it:
    /// `port.at(lease.ticket())`.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        Ticket::of(self.number)
    }

    /// The memory descriptor of the same point, which keeps the line and nothing of the buffer.
    #[must_use]
    pub fn descriptor(&self) -> OwnedDescriptor {
        OwnedDescriptor {
            line: self.stream.line().clone(),
            slot: self.stream.slot(),
            target: self.number,
        }
    }

    /// The stream, which answers for its marks also where the program has dropped its own handle:
    /// a port over it, or a status for a watcher.
    #[must_use]
    pub fn stream(&self) -> &Arc<dyn LeaseStream> {
        &self.stream
    }

    /// Hands the buffer back, if the device is done with it: one status query.
    ///
    /// # Errors
    ///
    /// [`NotYet`] with the lease: the device is not done, or answers with an error. Then the
    /// buffer stays out of reach, and is leaked once the lease is dropped and swept.
    pub fn try_take(self) -> core::result::Result<B, NotYet<B>> {
        match self.stream.query_mark(self.number) {
            Ok(true) => {
                let (place, stream) = self.take_apart();
                stream.reclaim().returned();
                // SAFETY: the stream's status says that all work in front of the mark is done, and
                // that is where the work that uses the buffer was queued.
                Ok(unsafe { place.take() })
            }
            Ok(false) => Err(NotYet { lease: self, reason: NotYetReason::Pending }),
            Err(error) => Err(NotYet { lease: self, reason: NotYetReason::Error(error) }),
        }
    }

    /// Waits for the device by `plan` on `port`, which stands [at the ticket](Self::ticket) of this
    /// lease, and hands the buffer back: [`wait()`], then [`try_take`](Self::try_take). Dropping the
    /// future drops the lease.
    ///
    /// # Errors
    ///
    /// [`NotYet`] with the lease and the port's error; or [`Pending`](NotYetReason::Pending) where the
    /// port is that of another point or stream.
    pub async fn wait<P, T>(
        self,
        plan: &WaitPlan,
        sleep: Option<DurNs>,
        port: &mut P,
        time: &T,
    ) -> core::result::Result<(B, Waited), NotYet<B>>
    where
        P: CompletionPort<Error = Error>,
        T: Clock + Timer,
    {
        match wait(plan, sleep, port, time).await {
            Ok(waited) => Ok((self.try_take()?, waited)),
            Err(error) => Err(NotYet { lease: self, reason: NotYetReason::Error(error) }),
        }
    }

    /// The same, but not beyond `deadline`: [`wait_until`].
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait), and [`TimedOut`](NotYetReason::TimedOut): the lease is kept, and can
    /// be waited for again.
    pub async fn wait_until<P, T>(
        self,
        plan: &WaitPlan,
        sleep: Option<DurNs>,
        port: &mut P,
        time: &T,
        deadline: MonoNs,
    ) -> core::result::Result<(B, Waited), NotYet<B>>
    where
        P: CompletionPort<Error = Error>,
        T: Clock + Timer,
    {
        match wait_until(plan, sleep, port, time, deadline).await {
            Ok(waited) => Ok((self.try_take()?, waited)),
            Err(error) => Err(NotYet { lease: self, reason: error.into() }),
        }
    }

    /// The parts, without the destructor.
    fn take_apart(self) -> (Place<B>, Arc<dyn LeaseStream>) {
        let this = ManuallyDrop::new(self);
        // SAFETY: each field is moved out once, and the destructor that would do so again does not
        // run.
        unsafe {
            let place = ManuallyDrop::into_inner(ptr::read(&raw const this.place));
            (place, ManuallyDrop::into_inner(ptr::read(&raw const this.stream)))
        }
    }
}

impl<B: DeviceBuffer> Drop for Lease<B> {
    fn drop(&mut self) {
        if self.stream.reclaim().is_forked() {
            // The stream's end is the parent's business: neither it nor the buffer is touched.
            return;
        }
        // SAFETY: each field is taken here, once, and nothing uses it after the destructor.
        let (place, stream) =
            unsafe { (ManuallyDrop::take(&mut self.place), ManuallyDrop::take(&mut self.stream)) };
        stream.reclaim().wait(place, self.number);
        // If this is the last handle of the stream, its end asks the status once more.
        drop(stream);
    }
}

// SAFETY: the buffer is `Send` by its trait, and the stream is `Send` and `Sync`.
unsafe impl<B: DeviceBuffer> Send for Lease<B> {}
// SAFETY: a shared lease gives no access to the buffer, and the stream is `Sync`.
unsafe impl<B: DeviceBuffer> Sync for Lease<B> {}

impl<B: DeviceBuffer> fmt::Debug for Lease<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("slot", &self.stream.slot())
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
