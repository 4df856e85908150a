//! One wait by one plan.
//!
//! ```text
//!            1 begin, query       2 arm           3 sleep, query       4 park, look, query
//!  [start] ---------------> [ ] ---------> [ ] -----------------> [ ] --------------------> done
//!     |           | done: Immediate             | done: Late           Polled, Spun, Parked,
//!     | block     |                             |                      Backstop, TimedOut
//!     +-> Blocked
//! ```
//!
//! The status query is the authority: no wait ends well before a query, or the vendor's blocking
//! wait, said so. The word only says when a query is worth its driver call; between two backstops
//! there is none otherwise. Dropping a wait at any await is safe: a store that was queued lands in
//! memory that the stream's line keeps, and its number completes no later wait.

use super::CompletionPort;
use super::recheck::Recheck;
use super::spin::{SpinEnd, Spun};
use crate::core::error::{Error, ErrorCode};
use crate::core::estimate::Outcome;
use crate::core::plan::{Park, WaitPlan};
use crate::core::time::{Clock, DurNs, MonoNs, Timer};
use core::fmt;

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum End {
    /// The vendor's blocking wait returned.
    Blocked,
    /// The first query, before any waiting, said done.
    Immediate,
    /// The query after the predicted sleep said done: the sleep was too long by an unknown time.
    Late,
    /// A query in a loop said done.
    Polled,
    /// The word was seen to be reached in a pause loop, and the query agreed.
    Spun,
    /// A park ended with the word reached, and the query agreed.
    Parked,
    /// A query said done and the word had not moved: a lost or late store, worth a counter.
    Backstop,
    /// The deadline passed first. Not a device loss.
    TimedOut,
}

/// What a wait did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waited {
    /// How it ended.
    pub end: End,
    /// What it says about the residual. `None` for `Blocked`, `Immediate`, `Backstop` and `TimedOut`,
    /// which say neither when the work was done nor that a sleep was too long.
    pub outcome: Option<Outcome>,
    /// From the start of the wait to its end.
    pub elapsed: DurNs,
    /// Spent in the predicted sleep.
    pub slept: DurNs,
    /// Calls of [`CompletionPort::query`] that the wait itself made. The queries within
    /// [`CompletionPort::poll`] are the port's.
    pub queries: u64,
    /// Calls of [`CompletionPort::park`].
    pub parks: u64,
}

/// Why a wait with a deadline ended without completion.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WaitError<E> {
    /// The port's error, which the wait met.
    Port(E),
    /// The deadline passed. The device may still be at work: keep what it uses, wait again.
    TimedOut(Waited),
    /// The plan cannot keep a deadline; nothing was waited for.
    Refused(Error),
}

impl<E: fmt::Display> fmt::Display for WaitError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitError::Port(error) => error.fmt(f),
            WaitError::TimedOut(waited) => {
                write!(f, "timed out after {} ns with the work still pending", waited.elapsed.0)
            }
            WaitError::Refused(error) => error.fmt(f),
        }
    }
}

impl<E: core::error::Error + 'static> core::error::Error for WaitError<E> {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            WaitError::Port(error) => Some(error),
            WaitError::TimedOut(_) => None,
            WaitError::Refused(error) => Some(error),
        }
    }
}

/// Waits on `port` by `plan`, after a predicted sleep of `sleep` if there is one.
///
/// # Errors
///
/// The port's error, at once and unchanged.
pub async fn wait<P: CompletionPort, T: Clock + Timer>(
    plan: &WaitPlan,
    sleep: Option<DurNs>,
    port: &mut P,
    time: &T,
) -> Result<Waited, P::Error> {
    let mut wait = Wait::begin(port, time, None);
    if plan.park == Park::Block {
        wait.port.block().await?;
        return Ok(wait.ended(End::Blocked));
    }
    wait.run(plan, sleep).await
}

/// Waits like [`wait()`], but not beyond `deadline`, and looks once more after it.
///
/// It never calls [`CompletionPort::poll`], which has no deadline: it queries in a loop itself, and so
/// also holds for a word that came before the status.
///
/// # Errors
///
/// The port's error; [`TimedOut`](WaitError::TimedOut), after which the port stays usable; and
/// [`Refused`](WaitError::Refused) for a `block` plan, with
/// [`BlockingDeadline`](ErrorCode::BlockingDeadline), before anything is waited for.
pub async fn wait_until<P: CompletionPort, T: Clock + Timer>(
    plan: &WaitPlan,
    sleep: Option<DurNs>,
    port: &mut P,
    time: &T,
    deadline: MonoNs,
) -> Result<Waited, WaitError<P::Error>> {
    if plan.park == Park::Block {
        return Err(WaitError::Refused(Error::new(ErrorCode::BlockingDeadline, ["block"])));
    }
    let mut wait = Wait::begin(port, time, Some(deadline));
    match wait.run(plan, sleep).await {
        Ok(waited) if waited.end == End::TimedOut => Err(WaitError::TimedOut(waited)),
        Ok(waited) => Ok(waited),
        Err(error) => Err(WaitError::Port(error)),
    }
}

struct Wait<'w, P, T> {
    port: &'w mut P,
    time: &'w T,
    start: MonoNs,
    deadline: Option<MonoNs>,
    slept: DurNs,
    queries: u64,
    parks: u64,
}

impl<'w, P: CompletionPort, T: Clock + Timer> Wait<'w, P, T> {
    fn begin(port: &'w mut P, time: &'w T, deadline: Option<MonoNs>) -> Self {
        port.begin();
        Wait {
            start: time.monotonic_ns(),
            port,
            time,
            deadline,
            slept: DurNs::ZERO,
            queries: 0,
            parks: 0,
        }
    }

    async fn run(&mut self, plan: &WaitPlan, sleep: Option<DurNs>) -> Result<Waited, P::Error> {
        if self.query()? {
            return Ok(self.ended(End::Immediate));
        }
        if self.expired(self.start) {
            return Ok(self.ended(End::TimedOut));
        }
        if let Park::FlagWait { .. } | Park::Spin { .. } = plan.park {
            self.port.arm()?;
        }
        if let Some(sleep) = sleep {
            let until = self.no_later(self.start.after(sleep));
            let before = self.time.monotonic_ns();
            self.time.sleep_until(until).await;
            let woke = self.time.monotonic_ns();
            self.slept = woke.since(before);
            if self.query()? {
                let woke_ns = woke.since(self.start).0;
                let outcome = Some(Outcome::Late { woke_ns });
                return Ok(Waited { outcome, ..self.ended(End::Late) });
            }
            if self.expired(woke) {
                return Ok(self.ended(End::TimedOut));
            }
        }
        match plan.park {
            Park::Block | Park::QueryPoll => self.until_done(End::Polled).await,
            Park::FlagWait { park_ns, backstop_ns } => self.flag(park_ns, backstop_ns).await,
            Park::Spin { backstop_ns } => self.spin(backstop_ns).await,
        }
    }

    async fn flag(&mut self, park_ns: u64, backstop_ns: u64) -> Result<Waited, P::Error> {
        let mut now = self.time.monotonic_ns();
        let mut backstop = now.after(DurNs(backstop_ns));
        loop {
            let bound = DurNs(park_ns).min(self.no_later(backstop).since(now));
            if bound > DurNs::ZERO {
                self.parks += 1;
                if self.port.park(bound).await? {
                    return self.until_done(End::Parked).await;
                }
                now = self.time.monotonic_ns();
            }
            if now >= self.no_later(backstop) {
                if let Some(waited) = self.backstop(now, End::Parked)? {
                    return Ok(waited);
                }
                backstop = now.after(DurNs(backstop_ns));
            }
        }
    }

    async fn spin(&mut self, backstop_ns: u64) -> Result<Waited, P::Error> {
        let backstop = DurNs(backstop_ns);
        let Spun { end, queries } = self.port.spin(self.time, backstop, self.deadline).await?;
        self.queries += queries;
        match end {
            SpinEnd::Reached => self.until_done(End::Spun).await,
            SpinEnd::Done => Ok(self.ended(End::Backstop)),
            SpinEnd::Expired => Ok(self.ended(End::TimedOut)),
        }
    }

    /// A query although the word was not seen. Where it says done and the word still has not moved,
    /// the store is lost or late.
    fn backstop(&mut self, now: MonoNs, seen: End) -> Result<Option<Waited>, P::Error> {
        if self.query()? {
            let end = if self.port.seen() { seen } else { End::Backstop };
            return Ok(Some(self.ended(end)));
        }
        Ok(self.expired(now).then(|| self.ended(End::TimedOut)))
    }

    /// Queries until the status says done, however early the word was.
    async fn until_done(&mut self, end: End) -> Result<Waited, P::Error> {
        if self.deadline.is_none() {
            self.port.poll().await?;
            return Ok(self.ended(end));
        }
        let recheck = Recheck::new(self.time);
        loop {
            // The clock first: the last query comes after the deadline.
            let now = self.time.monotonic_ns();
            if self.query()? {
                return Ok(self.ended(end));
            }
            if self.expired(now) {
                return Ok(self.ended(End::TimedOut));
            }
            if end == End::Polled {
                self.port.pause().await;
            } else {
                // The word is there and the status is not.
                recheck.pause(self.port, self.time, self.deadline).await;
            }
        }
    }

    fn query(&mut self) -> Result<bool, P::Error> {
        self.queries += 1;
        self.port.query()
    }

    fn expired(&self, now: MonoNs) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }

    /// `at`, or the deadline where that comes first.
    fn no_later(&self, at: MonoNs) -> MonoNs {
        self.deadline.map_or(at, |deadline| at.min(deadline))
    }

    fn ended(&self, end: End) -> Waited {
        let elapsed = self.time.monotonic_ns().since(self.start);
        let exact = Some(Outcome::Exact { residual_ns: elapsed.0 });
        let outcome = match end {
            End::Polled | End::Spun | End::Parked => exact,
            // A wait that began after its completion says nothing about the residual.
            End::Immediate => None,
            End::Blocked | End::Late | End::Backstop | End::TimedOut => None,
        };
        let Wait { slept, queries, parks, .. } = *self;
        Waited { end, outcome, elapsed, slept, queries, parks }
    }
}
