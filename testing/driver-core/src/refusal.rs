//! Why an entry point refuses, in words that both vendors' status codes have a number for.

/// The answer of an entry point that does not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The work asked for is not over. A status, not an error.
    NotReady,
    /// An argument is out of its range.
    InvalidValue,
    /// There is no such memory to be had.
    OutOfMemory,
    /// The initialising call was not made, or was made in a parent process.
    NotInitialized,
    /// There is no device at all.
    NoDevice,
    /// There is no device of that number.
    InvalidDevice,
    /// No context is current, or not the one that the handle belongs to.
    InvalidContext,
    /// The current context was destroyed.
    ContextDestroyed,
    /// The handle names nothing.
    InvalidHandle,
    /// The object is in a state in which this cannot be done.
    IllegalState,
    /// The device cannot do this.
    NotSupported,
    /// A host function called an entry point.
    NotPermitted,
    /// The call would disturb a capture, and has invalidated it.
    CaptureUnsupported,
    /// The stream's capture was invalidated before.
    CaptureInvalidated,
    /// Two captures would become one.
    CaptureMerge,
    /// The capture did not begin on this stream.
    CaptureUnmatched,
    /// Captured work would depend on work that is not captured.
    CaptureIsolation,
    /// The legacy stream was used while a stream that synchronises with it is captured.
    CaptureImplicit,
    /// The event was last recorded in a captured stream.
    CapturedEvent,
    /// Another thread began the capture.
    CaptureWrongThread,
    /// A status code as the vendor spells it: a sticky fault.
    Code(i32),
}

impl Refusal {
    /// Its number, which the vendors share: `CUresult` of `cuda.h`, and all but
    /// [`NotPermitted`](Self::NotPermitted) are those of `hipError_t` too.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Refusal::InvalidValue => 1,
            Refusal::OutOfMemory => 2,
            Refusal::NotInitialized => 3,
            Refusal::NoDevice => 100,
            Refusal::InvalidDevice => 101,
            Refusal::InvalidContext => 201,
            Refusal::InvalidHandle => 400,
            Refusal::IllegalState => 401,
            Refusal::NotReady => 600,
            Refusal::ContextDestroyed => 709,
            Refusal::NotPermitted => 800,
            Refusal::NotSupported => 801,
            Refusal::CaptureUnsupported => 900,
            Refusal::CaptureInvalidated => 901,
            Refusal::CaptureMerge => 902,
            Refusal::CaptureUnmatched => 903,
            Refusal::CaptureIsolation => 905,
            Refusal::CaptureImplicit => 906,
            Refusal::CapturedEvent => 907,
            Refusal::CaptureWrongThread => 908,
            Refusal::Code(code) => code,
        }
    }
}

/// What an entry point answers.
pub type Outcome<T = ()> = Result<T, Refusal>;
