//! Wait plans: how a wait is spent.

/// How a wait is spent: a park, with or without a predicted sleep before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WaitPlan {
    /// The predicted sleep before the park, if any. `None` with [`Park::Block`].
    pub predict: Option<DeadlinePlan>,
    /// What follows the sleep.
    pub park: Park,
}

/// What a wait does until the work is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Park {
    /// The vendor's blocking wait.
    Block,
    /// The status query in a loop.
    QueryPoll,
    /// Parks in hardware on the word.
    FlagWait {
        /// The longest single park, in nanoseconds.
        park_ns: u64,
        /// The longest time between two status queries, in nanoseconds.
        backstop_ns: u64,
    },
    /// Reads the word in a pause loop.
    Spin {
        /// The longest time between two status queries, in nanoseconds.
        backstop_ns: u64,
    },
}

/// How the predicted sleep is computed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DeadlinePlan {
    /// How long before the predicted completion the sleep ends, in nanoseconds.
    pub margin_ns: u64,
    /// A shorter sleep is not worth it and is left out, in nanoseconds.
    pub min_sleep_ns: u64,
    /// The longest sleep, in nanoseconds.
    pub max_sleep_ns: u64,
    /// How many of the newest samples the prediction is the minimum of.
    pub window: u8,
}
