//! Spinning on a word, with a status query each backstop.

use super::CompletionPort;
use crate::core::pace::Pacer;
use crate::core::time::{Clock, DurNs, MonoNs};

/// Why a [`spin`](CompletionPort::spin) ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SpinEnd {
    /// The word was reached. The status has not been asked about that yet.
    Reached,
    /// A status query said done, and the word has not moved.
    Done,
    /// The time was up.
    Expired,
}

/// What a [`spin`](CompletionPort::spin) did.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Spun {
    /// Why it ended.
    pub end: SpinEnd,
    /// The status queries that it made.
    pub queries: u64,
}

impl Spun {
    /// A query said done: the word is looked at once more, as a query may be a little faster.
    pub(super) fn done<P: CompletionPort + ?Sized>(port: &mut P, queries: u64) -> Self {
        let end = if port.seen() { SpinEnd::Reached } else { SpinEnd::Done };
        Spun { end, queries }
    }
}

/// Spins for one port alone.
pub(super) async fn alone<P: CompletionPort + ?Sized, T: Clock>(
    port: &mut P,
    time: &T,
    backstop: DurNs,
    until: Option<MonoNs>,
) -> Result<Spun, P::Error> {
    let ended = alone_while(port, time, backstop, until, || true).await?;
    Ok(ended.unwrap_or_else(|_| unreachable!("it is alone for good")))
}

/// The same as long as `is_alone`; `Err` with the queries made if it is not any more.
pub(super) async fn alone_while<P: CompletionPort + ?Sized, T: Clock>(
    port: &mut P,
    time: &T,
    backstop: DurNs,
    until: Option<MonoNs>,
    is_alone: impl Fn() -> bool,
) -> Result<core::result::Result<Spun, u64>, P::Error> {
    let no_later = |at: MonoNs| until.map_or(at, |until| at.min(until));
    let mut next_query = time.monotonic_ns().after(backstop);
    let mut pacer = Pacer::new();
    let mut queries = 0;
    while is_alone() {
        if port.seen() {
            return Ok(Ok(Spun { end: SpinEnd::Reached, queries }));
        }
        if pacer.step() {
            let now = time.monotonic_ns();
            pacer.looked(now);
            if now >= no_later(next_query) {
                queries += 1;
                if port.query()? {
                    return Ok(Ok(Spun::done(port, queries)));
                }
                if until.is_some_and(|until| now >= until) {
                    return Ok(Ok(Spun { end: SpinEnd::Expired, queries }));
                }
                next_query = now.after(backstop);
            }
        }
        port.pause().await;
    }
    Ok(Err(queries))
}
