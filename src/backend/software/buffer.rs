//! Memory that the device's copies read and write.

use super::lock;
use crate::core::error::Result;
use crate::fork::Birth;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::{fmt, ops::Range};
use std::sync::{Mutex, MutexGuard};

/// A piece of host memory of a fixed length, shared between the program and the device.
///
/// Clones are handles of the same bytes. The device copies while it holds the lock of the bytes:
/// what [`read`](Self::read) sees is whole, before or after a copy and never in the middle of one.
/// Whether a copy was made is for the stream's marks to say.
///
/// In a child forked since it was made, its bytes may be locked for ever by a worker that is not
/// there: [`read`](Self::read) and [`write`](Self::write) panic.
#[derive(Clone)]
pub struct SoftwareBuffer(Arc<Inner>);

struct Inner {
    len: usize,
    birth: Birth,
    bytes: Mutex<Vec<u8>>,
}

impl SoftwareBuffer {
    /// `len` bytes, all zero.
    #[must_use]
    pub fn new(len: usize) -> Self {
        SoftwareBuffer::from(alloc::vec![0; len])
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shows the bytes to `look`, on this thread. A copy of the device that needs them waits for
    /// `look` to return, and with it its worker; `look` must not use this buffer again.
    ///
    /// # Panics
    ///
    /// In a forked child.
    pub fn read<T>(&self, look: impl FnOnce(&[u8]) -> T) -> T {
        look(&self.lock("read"))
    }

    /// Writes `bytes` from `at` on, at once: it is not ordered with what is queued.
    ///
    /// # Panics
    ///
    /// Where they do not fit, and in a forked child.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        self.lock("write")[at..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Copies `range` to `to` from `at` on. Both were checked when the copy was queued.
    pub(super) fn copy(&self, range: Range<usize>, to: &SoftwareBuffer, at: usize) {
        if Arc::ptr_eq(&self.0, &to.0) {
            return self.lock("copy").copy_within(range, at);
        }
        // Two workers may copy in opposite directions, so the locks are taken in one order.
        let (from, mut onto);
        if Arc::as_ptr(&self.0) < Arc::as_ptr(&to.0) {
            from = self.lock("copy");
            onto = to.lock("copy");
        } else {
            onto = to.lock("copy");
            from = self.lock("copy");
        }
        onto[at..][..range.len()].copy_from_slice(&from[range]);
    }

    /// Refuses `call` in a forked child.
    pub(super) fn check_fork(&self, call: &str) -> Result<()> {
        self.0.birth.check(call)
    }

    fn lock(&self, call: &str) -> MutexGuard<'_, Vec<u8>> {
        if let Err(error) = self.check_fork(call) {
            panic!("{error}");
        }
        lock(&self.0.bytes)
    }
}

impl From<Vec<u8>> for SoftwareBuffer {
    fn from(bytes: Vec<u8>) -> Self {
        let (len, birth) = (bytes.len(), Birth::here());
        SoftwareBuffer(Arc::new(Inner { len, birth, bytes: Mutex::new(bytes) }))
    }
}

impl fmt::Debug for SoftwareBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoftwareBuffer").field("len", &self.len()).finish()
    }
}
