//! Raw handles of a driver's objects, as values that threads may share.

use core::ffi::c_void;
use core::ptr::NonNull;

/// A stream, as a driver names it.
///
/// The default streams are no objects but reserved handles, and stay distinct: the same number
/// means one stream in one entry point and another in the next. Sources: "Stream synchronization
/// behavior" of the CUDA driver API; `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD` of `cuda.h`;
/// `hipStreamPerThread` of `hip_runtime_api.h`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StreamHandle {
    /// The handle 0. In the entry points that this crate calls it is the context's default stream,
    /// the legacy one; a program that was compiled for per-thread default streams means its thread's
    /// by the same 0, and must say [`PerThread`](Self::PerThread) here.
    Null,
    /// The context's default stream by its own name. It waits for every stream that was not made
    /// as non-blocking, and these wait for it.
    Legacy,
    /// The calling thread's default stream: another stream on every thread.
    PerThread,
    /// A stream that was created.
    Created(Created),
}

/// The handle of a stream that was created. Not one of the reserved numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Created(NonNull<c_void>);

// SAFETY: a handle is a name that the driver resolves; both drivers allow the calls made here from
// any thread. What a call needs of the handle stands at the call.
unsafe impl Send for Created {}
// SAFETY: as for `Send`; the value itself is never changed.
unsafe impl Sync for Created {}

impl StreamHandle {
    /// The handle that the driver calls `raw`, whose reserved numbers 0, 1 and 2 become
    /// [`Null`](Self::Null), [`Legacy`](Self::Legacy) and [`PerThread`](Self::PerThread).
    #[must_use]
    pub fn from_raw(raw: *mut c_void) -> Self {
        match raw.addr() {
            1 => StreamHandle::Legacy,
            2 => StreamHandle::PerThread,
            _ => NonNull::new(raw)
                .map_or(StreamHandle::Null, |raw| StreamHandle::Created(Created(raw))),
        }
    }

    /// The number that the driver takes.
    #[must_use]
    pub fn as_raw(self) -> *mut c_void {
        match self {
            StreamHandle::Null => core::ptr::null_mut(),
            StreamHandle::Legacy => core::ptr::without_provenance_mut(1),
            StreamHandle::PerThread => core::ptr::without_provenance_mut(2),
            StreamHandle::Created(created) => created.0.as_ptr(),
        }
    }
}

/// An event of a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawEvent(NonNull<c_void>);

// SAFETY: as for `Created`.
unsafe impl Send for RawEvent {}
// SAFETY: as for `Created`.
unsafe impl Sync for RawEvent {}

impl RawEvent {
    /// The event that the driver calls `raw`; `None` for null.
    pub(in crate::backend) fn from_raw(raw: *mut c_void) -> Option<Self> {
        NonNull::new(raw).map(RawEvent)
    }

    pub(in crate::backend) fn as_raw(self) -> *mut c_void {
        self.0.as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserved_handles_stay_distinct_and_come_back_as_they_went() {
        let handles = [StreamHandle::Null, StreamHandle::Legacy, StreamHandle::PerThread];
        for (number, handle) in handles.into_iter().enumerate() {
            assert_eq!(handle.as_raw().addr(), number);
            assert_eq!(StreamHandle::from_raw(handle.as_raw()), handle);
        }
        let object = StreamHandle::from_raw(core::ptr::without_provenance_mut(0x1000));
        assert!(!handles.contains(&object));
        assert_eq!(object.as_raw().addr(), 0x1000);
    }
}
