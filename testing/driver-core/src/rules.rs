//! In what the two vendors differ, and the versions of one of them.

use crate::refusal::Refusal;

/// What a test driver tells the fake device about its vendor.
pub struct Rules {
    /// The entry points, by name.
    pub entries: &'static [&'static str],
    /// The vendor's number of a refusal.
    pub code: fn(Refusal) -> i32,
    /// Attributes of a device and their values. Others are unknown.
    pub attributes: &'static [(i32, i32)],
    /// The attribute that says that host memory has one address on host and device.
    pub unified: i32,
    /// What the driver answers when asked for its version, unless told otherwise.
    pub version: i32,
    /// Whether a thread has a current device, whose context is always there, instead of a stack of
    /// contexts, and whether the first call initialises.
    pub by_device: bool,
    /// Whether a host function may call entry points. Where not, it is refused and logged.
    pub host_functions_may_call: bool,
    /// What depends on the version that the driver has.
    pub traits: fn(version: i32) -> Traits,
}

/// What one version of a vendor's driver does. Each rule has its source at the vendor's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traits {
    /// Whether an event keeps a pointer to the stream of its last record, so that a status call of the
    /// event reads that stream. Freed memory is read, and logged, after the stream was destroyed.
    pub event_reads_its_stream: bool,
    /// Whether a query of an event breaks a capture of the stream that it was recorded on, although the
    /// record was no part of the capture.
    pub event_query_breaks_capture: bool,
    /// The same for a blocking wait for an event.
    pub event_wait_breaks_capture: bool,
    /// Which captures a wait for a whole context breaks, whatever the thread's mode.
    pub context_wait_breaks: Breaks,
    /// What a call with a stream that is not there meets.
    pub unknown_stream: UnknownStream,
    /// Which flags of an event have a blocking wait for it sleep.
    pub sleeping_flags: SleepingFlags,
    /// Which statuses become the thread's last error.
    pub last_error: LastError,
    /// What the context of a stream of a green context is said to be.
    pub green_stream: GreenStream,
    /// Whether a status call of the legacy stream queues a marker behind the work of all streams that
    /// synchronise with it.
    pub legacy_query_queues_marker: bool,
}

/// Which captures a call breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Breaks {
    /// Those that the thread's mode says.
    ByMode,
    /// Each of a stream of the context.
    OfContext,
    /// Each of the process.
    All,
}

/// What a call with a stream that is not there meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnknownStream {
    /// That its handle is invalid.
    InvalidHandle,
    /// The number that elsewhere says that a context was destroyed.
    ContextDestroyed,
    /// The handle is followed as a pointer: logged, since a real program would crash.
    Followed,
}

/// Which flags of an event have a blocking wait for it sleep instead of spin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SleepingFlags {
    /// Those with the flag of blocking waits.
    WithBlocking,
    /// The flag of blocking waits and no other.
    BlockingAlone,
}

/// Which statuses become the thread's last error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LastError {
    /// There is no such thing.
    None,
    /// That of each call, success and "not ready" included.
    EachCall,
    /// Failures, and not "not ready".
    Failures,
}

/// What the context of a stream of a green context is said to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GreenStream {
    /// Not supported.
    Unsupported,
    /// A context that is not the primary one.
    ContextOfItsOwn,
}

/// The flag of an event whose blocking waits sleep: both vendors' number.
pub const BLOCKING_SYNC: u32 = 0x1;

impl SleepingFlags {
    /// Whether a blocking wait for an event with `flags` sleeps.
    #[must_use]
    pub fn sleep(self, flags: u32) -> bool {
        match self {
            SleepingFlags::WithBlocking => flags & BLOCKING_SYNC != 0,
            SleepingFlags::BlockingAlone => flags == BLOCKING_SYNC,
        }
    }
}
