//! Errors and warnings: a number, its arguments, and one template of words for each number.
//!
//! Programs branch on [`ErrorCode`]; the words are for people and may change. A warning is an
//! [`Error`] value too: it is reported by what took a declared fallback and is never thrown.
//!
//! An [`Error`] is one pointer wide, so that `Result<()>` stays in a register on the hot paths.

use super::line::Slot;
use alloc::string::{String, ToString};
use alloc::{boxed::Box, vec::Vec};
use core::{fmt, ops::Range};

/// What this crate returns. The default error is [`Error`].
pub type Result<T, E = Error> = core::result::Result<T, E>;

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $form:literal;)*) => {
        /// What went wrong, as a number that never changes its meaning.
        ///
        /// The list only grows; a number is never used again.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum ErrorCode { $($(#[$doc])* $name = $number,)* }

        impl ErrorCode {
            /// Every code, in the order of the numbers.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name,)*];

            /// The template of the message; `{0}`, `{1}`, ... stand for [`Error::args`].
            #[must_use]
            pub const fn form(self) -> &'static str {
                match self { $(ErrorCode::$name => $form,)* }
            }
        }
    };
}

error_codes! {
    /// The text of a wait plan, or of its bands, is malformed.
    InvalidPlan = 1, "invalid wait plan \"{0}\": {1}";
    /// Warning: the requested plan cannot run here and another one runs.
    ParkFallback = 2, "wait plan {0} needs {1}, which is missing ({2}); {3} runs instead";
    /// Warning: the requested executor cannot run here and another one runs.
    ExecutorFallback = 3, "executor {0} needs {1}, which is missing ({2}); {3} runs instead";
    /// The requested executor cannot run here, and a fallback was forbidden.
    ExecutorRefused = 4, "executor {0} needs {1}, which is missing ({2}), and no fallback is allowed";
    /// No executor has this name.
    InvalidExecutor = 5, "unknown executor \"{0}\"; accepted are: {1}";
    /// A future driven by [`run_inline`](crate::run_inline) did not finish at its first poll.
    PendedInline = 6, "a future that was driven inline is pending after its first poll; use an executor for it";
    /// No store, timer or waker can ever wake what is left.
    Stalled = 7, "stalled with {0} task(s) left: no store, no timer and no waker can ever wake one";
    /// A device interface reported a status: the call, then its status.
    Backend = 8, "{0}: {1}";
    /// The task was aborted, or its executor is gone.
    Aborted = 9, "the task was aborted, or its executor is gone";
    /// The task panicked.
    TaskPanicked = 10, "the task panicked";
    /// A slot of a line is handed out already.
    SlotTaken = 11, "slot {0} of this line is taken already";
    /// A wait names a number that its slot never issued.
    NeverIssued = 12, "number {0} was never issued for slot {1}; the last issued number is {2}";
    /// A blocking wait cannot keep a deadline.
    BlockingDeadline = 13, "plan {0} blocks in the driver and cannot keep a deadline; use poll, flag or spin";
    /// A runtime was told to run from within one of its own tasks.
    RunningAlready = 14, "this runtime is running already; a task of it cannot run it again, but can await";
    /// The watcher of a wait was dropped before the wait ended.
    WatcherClosed = 15, "the watcher was dropped; what the device is doing is unknown to this wait";
    /// The status of a wait cannot be asked, as too many status calls do not return.
    StatusStuck = 16, "the status of this wait cannot be asked: {0} status call(s) do not return, and no more threads are allowed";
    /// A driver library is not there: its name, and what the system says.
    LibraryMissing = 17, "driver library {0} cannot be opened: {1}";
    /// A driver library lacks an entry point: the library, then the symbol.
    SymbolMissing = 18, "driver library {0} has no entry point {1}";
    /// The device or its driver lacks something that was asked for: what, then why.
    Unsupported = 19, "{0} is not supported here: {1}";
    /// The stream is being captured into a graph: the call.
    Captured = 20, "{0}: the stream is being captured into a graph; a wait would be recorded, not made";
    /// The stream, line or buffer belongs to another context or device: the call, then what it is.
    ForeignContext = 21, "{0}: this {1} belongs to another context or device";
    /// The handle means another stream on this thread: the call.
    ForeignThread = 22, "{0}: a per-thread default stream is used on a thread that is not its own";
    /// The process was forked after this was made; the driver does not work in the child.
    Forked = 23, "{0}: this was made before the process was forked, and works in the parent only";
    /// The device or context was closed: the call.
    Closed = 24, "{0}: closed";
    /// The start-up probe's store never landed: what is known of it.
    StoreMissing = 25, "the status says done and the word was never written ({0})";
    /// A buffer's device work cannot be known to be over, so its memory was leaked: why.
    BufferLeaked = 26, "the buffer cannot be handed back and is leaked: {0}";
    /// The slot's numbers are used up: the device can store no larger one in one piece.
    SlotExhausted = 27, "slot {0} has no number left that the device stores in one piece";
    /// Something of a runtime is awaited where that runtime does not run, and nothing would wake it:
    /// what is awaited.
    OutsideRuntime = 28, "{0} is polled where its runtime does not run, so that nothing would wake it; await it in a task of that runtime or in its block_on, and elsewhere use a Watcher";
    /// The process is exiting, and its driver libraries are about to be torn down: the call.
    Exiting = 29, "{0}: the process is exiting, and no driver is called any more";
}

impl ErrorCode {
    /// The number of the code.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }
}

/// An [`ErrorCode`] with its arguments, and for a parse error the bytes at fault.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    code: ErrorCode,
    args: Vec<String>,
    span: Option<Range<usize>>,
    status: Option<i64>,
}

impl Error {
    /// An error of `code` whose template is filled with `args`.
    ///
    /// Missing arguments leave their `{n}` standing; surplus ones are kept in [`args`](Self::args)
    /// and not shown. Costs two allocations and one for each argument.
    #[cold]
    pub fn new<A: Into<String>>(code: ErrorCode, args: impl IntoIterator<Item = A>) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Error(Box::new(Inner { code, args, span: None, status: None }))
    }

    /// A [`Backend`](ErrorCode::Backend) error of a vendor's status `number` with `name`, as
    /// `call` returned it. Its message is `call: number name`, and
    /// [`status_number`](Self::status_number) gives the number back.
    #[cold]
    pub fn status(call: impl Into<String>, number: i64, name: &str) -> Self {
        let mut error = Error::backend(call, alloc::format!("{number} {name}"));
        error.0.status = Some(number);
        error
    }

    /// The vendor's number of the status, where a driver reported one.
    #[must_use]
    pub fn status_number(&self) -> Option<i64> {
        self.0.status
    }

    /// An error of a code whose template has no arguments.
    #[cold]
    pub(crate) fn plain(code: ErrorCode) -> Self {
        Error::new(code, [""; 0])
    }

    /// A wait names `number` of `slot`, whose last issued number is `issued`.
    #[cold]
    pub(crate) fn never_issued(number: u64, slot: Slot, issued: u64) -> Self {
        let args = [number.to_string(), slot.index().to_string(), issued.to_string()];
        Error::new(ErrorCode::NeverIssued, args)
    }

    /// A [`Backend`](ErrorCode::Backend) error: what was asked of the device and how it answered.
    #[cold]
    pub fn backend(call: impl Into<String>, status: impl Into<String>) -> Self {
        Error::new(ErrorCode::Backend, [call.into(), status.into()])
    }

    /// The same error, pointing at `span`, a range of bytes of the text that was parsed.
    #[cold]
    #[must_use]
    pub fn at(mut self, span: Range<usize>) -> Self {
        self.0.span = Some(span);
        self
    }

    /// The code, which programs branch on.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// The arguments of the template, in its order.
    #[must_use]
    pub fn args(&self) -> &[String] {
        &self.0.args
    }

    /// For a parse error the bytes at fault, within the text that was given to the parser. An
    /// empty range stands where something is missing.
    #[must_use]
    pub fn span(&self) -> Option<Range<usize>> {
        self.0.span.clone()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.code.form();
        while let Some(open) = rest.find('{') {
            let Some(close) = rest[open..].find('}').map(|at| open + at) else { break };
            f.write_str(&rest[..open])?;
            let argument = rest[open + 1..close].parse::<usize>().ok();
            match argument.and_then(|index| self.0.args.get(index)) {
                Some(text) => f.write_str(text)?,
                None => f.write_str(&rest[open..=close])?,
            }
            rest = &rest[close + 1..];
        }
        f.write_str(rest)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("code", &self.0.code)
            .field("number", &self.0.code.number())
            .field("args", &self.0.args)
            .field("span", &self.0.span)
            .finish()
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_contract_and_never_repeat() {
        let numbers: Vec<u16> = ErrorCode::ALL.iter().map(|code| code.number()).collect();
        let expected: Vec<u16> = (1..=ErrorCode::ALL.len() as u16).collect();
        assert_eq!(numbers, expected);
        assert_eq!(ErrorCode::InvalidPlan.number(), 1);
        assert_eq!(ErrorCode::TaskPanicked.number(), 10);
    }

    #[test]
    fn a_message_fills_the_template_and_never_interprets_an_argument() {
        let error = Error::backend("query", "{0} is not a hole");
        assert_eq!(error.to_string(), "query: {0} is not a hole");
        let short = Error::new(ErrorCode::Backend, ["query"]);
        assert_eq!(short.to_string(), "query: {1}");
    }

    #[test]
    fn an_error_is_one_pointer_wide() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }
}
