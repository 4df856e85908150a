//! The deadline estimator.

/// What one wait said about the residual.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// A poll that was already running saw the completion.
    Exact {
        /// Completion time minus the time the wait began, in nanoseconds.
        residual_ns: u64,
    },
    /// The first look after the sleep found the work already done: the residual is at most this.
    Late {
        /// Time of that look minus the time the wait began, in nanoseconds.
        woke_ns: u64,
    },
}
