//! What can be made to go wrong: sticky faults, hangs, broken stores, broken queries.

use super::lock;
use super::queue::StreamCore;
use crate::core::error::Error;
use crate::core::time::DurNs;
use crate::fork::Own;
use alloc::{string::String, sync::Arc, vec::Vec};
use core::{fmt, mem};
use std::sync::{Condvar, Mutex, PoisonError};

/// A status that a device can answer with: a number and its name.
///
/// It is of one stream, as that of a Metal command buffer, or [of the whole device](Self::of_the_device),
/// as all that CUDA and HIP answer after a kernel went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    code: i32,
    name: String,
    stores_words: bool,
    is_of_the_device: bool,
}

impl Fault {
    /// The code of the fault of a stream whose host closure panicked.
    pub const CLOSURE_PANICKED: i32 = -1;
    /// The code of the fault of what a closing device could not finish.
    pub const DEVICE_CLOSED: i32 = -2;

    /// A fault with `code` and `name`, for example `(700, "ILLEGAL_ADDRESS")`. The words of the
    /// marks behind it stay unwritten.
    #[must_use]
    pub fn new(code: i32, name: impl Into<String>) -> Self {
        Fault { code, name: name.into(), stores_words: false, is_of_the_device: false }
    }

    /// The same fault, of the whole device: where one stream comes to it as
    /// [work](super::Work::fault), the device is [lost](super::SoftwareDevice::lose), as a CUDA context
    /// is whose kernel read a wrong address.
    ///
    /// ```
    /// use gpu_async_reactor::DeviceStream;
    /// use gpu_async_reactor::backend::software::{Fault, SoftwareDevice, Work};
    ///
    /// let device = SoftwareDevice::new()?;
    /// let (bad, good) = (device.stream()?, device.stream()?);
    /// let before = good.mark()?;
    /// good.synchronize_mark(before)?;
    ///
    /// let fault = Fault::new(700, "ILLEGAL_ADDRESS").of_the_device();
    /// bad.queue(Work::new().fault(fault.clone()))?;
    /// assert!(bad.synchronize().is_err());
    /// assert!(good.query_mark(before).is_err(), "what was done is not known to be done any more");
    /// assert!(device.stream().is_err());
    /// assert_eq!(device.lost(), Some(fault));
    /// # Ok::<(), gpu_async_reactor::Error>(())
    /// ```
    #[must_use]
    pub fn of_the_device(mut self) -> Self {
        self.is_of_the_device = true;
        self
    }

    /// The same fault, after which the words of the marks that are queued behind it are stored all
    /// the same, at once and in order: a device whose stores outlive its kernels. Their status is
    /// the fault nevertheless.
    #[must_use]
    pub fn storing_words(mut self) -> Self {
        self.stores_words = true;
        self
    }

    /// The number.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.code
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn stores_words(&self) -> bool {
        self.stores_words
    }

    pub(super) fn is_of_the_device(&self) -> bool {
        self.is_of_the_device
    }

    /// The error of `call`, which found this status: a [`Backend`](crate::ErrorCode::Backend) error
    /// whose status is the number and the name.
    #[cold]
    pub(super) fn error(&self, call: &str) -> Error {
        Error::status(call, i64::from(self.code), &self.name)
    }

    pub(super) fn closure_panicked() -> Self {
        Fault::new(Fault::CLOSURE_PANICKED, "CLOSURE_PANICKED")
    }

    pub(super) fn device_closed() -> Self {
        Fault::new(Fault::DEVICE_CLOSED, "DEVICE_CLOSED")
    }
}

/// What goes wrong with the store of one mark. Its status is right in every case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StoreFault {
    /// The status says done and the word is never written. The doorbell stays silent too.
    Lost,
    /// The word is written, and the doorbell rung, this long after the status says done. Work behind
    /// the mark does not wait for it; the word never goes back below a later mark's number.
    Late(DurNs),
    /// The word is written, and the doorbell rung, this long before the status says done. Work
    /// behind the mark waits for the status.
    Early(DurNs),
    /// The word is written and the doorbell is not rung.
    Silent,
}

/// What goes wrong with one status query.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum QueryFault {
    /// It answers with this status, once; the stream goes on, whatever the fault is of.
    Fail(Fault),
    /// It does not return before the hang is released, and then answers as usual: a driver call
    /// that is stuck.
    Hang(Hang),
}

/// Work that does not finish before it is released. Clones are handles of the same hang.
///
/// One hang may be queued on several streams, and be a [`QueryFault`] beside; all go on once it is
/// released, and what meets it later does not stop at all. Dropping the handles releases nothing.
///
/// In a child forked since it was made it holds nothing, and nothing releases it.
#[derive(Clone)]
pub struct Hang(Own<Arc<HangInner>>);

#[derive(Default)]
struct HangInner {
    state: Mutex<HangState>,
    released: Condvar,
}

#[derive(Default)]
struct HangState {
    released: bool,
    /// The streams that stand at this hang. Owned, since their program may have dropped them: they
    /// run to their end once released. A closing device takes its streams out of their hangs by
    /// faulting them, so that a hang that is in its own streams' queues is no cycle for ever.
    held: Vec<Arc<StreamCore>>,
    /// Threads whose queries stand at it.
    blocked: usize,
}

impl Hang {
    /// A hang that nothing stands at yet.
    #[must_use]
    pub fn new() -> Self {
        Hang(Own::new(Arc::default()))
    }

    /// Lets go on what stands here now, and whatever comes later. Any thread may call it.
    pub fn release(&self) {
        if self.is_forked() {
            return;
        }
        let held = {
            let mut state = lock(&self.0.state);
            state.released = true;
            mem::take(&mut state.held)
        };
        self.0.released.notify_all();
        held.iter().for_each(StreamCore::resume);
    }

    /// Whether [`release`](Self::release) was called.
    #[must_use]
    pub fn is_released(&self) -> bool {
        !self.is_forked() && lock(&self.0.state).released
    }

    /// How many streams and queries stand here now. Streams that were faulted meanwhile, by the loss
    /// or the end of their device, may be counted still.
    #[must_use]
    pub fn holding(&self) -> usize {
        if self.is_forked() {
            return 0;
        }
        let state = lock(&self.0.state);
        state.held.len() + state.blocked
    }

    /// Holds `stream`, unless released. Called with the stream's queue locked, so that a release
    /// that finds it here also finds it held.
    pub(super) fn hold(&self, stream: &Arc<StreamCore>) -> bool {
        if self.is_forked() {
            return false;
        }
        let mut state = lock(&self.0.state);
        if !state.released {
            state.held.push(stream.clone());
        }
        !state.released
    }

    /// Blocks the calling thread until released.
    pub(super) fn block(&self) {
        if self.is_forked() {
            return;
        }
        let mut state = lock(&self.0.state);
        state.blocked += 1;
        let released = self.0.released.wait_while(state, |state| !state.released);
        released.unwrap_or_else(PoisonError::into_inner).blocked -= 1;
    }
}

impl Hang {
    fn is_forked(&self) -> bool {
        self.0.birth().is_forked()
    }
}

impl Default for Hang {
    fn default() -> Self {
        Hang::new()
    }
}

impl fmt::Debug for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hang").field("released", &self.is_released()).finish_non_exhaustive()
    }
}
