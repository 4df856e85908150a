//! The deadline estimator: how long a wait may sleep before it has to look. Nanoseconds in,
//! nanoseconds out; it reads no clock.
//!
//! A [`PointEstimate`] keeps the newest samples of one readback point and predicts their minimum.
//! A [`PointTable`] keeps one estimate for each point. Why it is the minimum and not the mean, and why
//! a late wake is censored, is shown on [`PointEstimate`].

mod table;

pub use table::PointTable;

use super::plan::{DeadlinePlan, WINDOW_MAX};
use super::time::DurNs;

/// How many samples an estimate keeps.
const SAMPLES: usize = WINDOW_MAX as usize;

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

/// The estimate of one readback point: the minimum of its newest samples.
///
/// The newest [`WINDOW_MAX`] samples are kept, whatever the window; how many of them count is up to
/// the plan of each call. So a smaller window takes effect at once, and a larger one finds the older
/// samples that it asks for. A window of 0 counts as 1, and one above [`WINDOW_MAX`] as that.
///
/// 136 bytes, no allocation. Each call looks at the samples of its window once.
///
/// ```
/// # use gpu_async_reactor::{DurNs, Outcome, PointEstimate, WaitPlan};
/// let text = "poll+predict:margin_us=20,min_sleep_us=50,max_sleep_us=20000,window=4";
/// let plan = WaitPlan::parse(text)?.predict.unwrap();
/// let mut point = PointEstimate::new();
/// assert_eq!(point.sleep_ns(&plan), None);
///
/// point.observe(&plan, Outcome::Exact { residual_ns: 2_100_000 });
/// point.observe(&plan, Outcome::Exact { residual_ns: 2_000_000 });
/// assert_eq!(point.sleep_ns(&plan), Some(DurNs::from_us(1_980)));
///
/// point.observe(&plan, Outcome::Late { woke_ns: 1_980_000 });
/// assert_eq!(point.predicted_ns(), Some(DurNs::from_us(990)));
/// # Ok::<(), gpu_async_reactor::Error>(())
/// ```
///
/// # Why the minimum and not the mean
///
/// The two ways to be wrong do not cost the same. A sleep that ends too soon burns some CPU in the
/// park behind it. A sleep that ends too late is added to the latency of every user, and nothing
/// makes up for it. Once the jitter exceeds the margin, a mean sleeps past the completion in nearly
/// half of the waits, whatever its window; a margin that heals this has to be as wide as the jitter,
/// which nobody knows beforehand and the minimum follows by itself.
///
/// 10,000 waits for work of 2 ms with uniform jitter, a margin of 20 us and a window of 8. The mean
/// is even told the true residual of a late wait, which no wait can see; the minimum gets what
/// [`Outcome::Late`] really says. The test `replay` computes these figures.
///
/// | jitter | estimate | late waits | lateness, mean of all waits | lateness, worst | looking, mean of all waits |
/// |---|---|---|---|---|---|
/// | 1 % | minimum | 0.0 % | 0.0 us | 0.7 us | 37.3 us |
/// | 1 % | mean | 4.2 % | 0.1 us | 10.2 us | 20.3 us |
/// | 5 % | minimum | 4.0 % | 0.7 us | 83.7 us | 400.7 us |
/// | 5 % | mean | 40.1 % | 16.9 us | 131.2 us | 37.1 us |
/// | 20 % | minimum | 6.0 % | 5.4 us | 394.8 us | 709.5 us |
/// | 20 % | mean | 47.5 % | 94.2 us | 584.9 us | 114.3 us |
///
/// *Looking* is the time between the end of the sleep and the completion, which the park spends: the
/// price of the minimum. It grows with the jitter, as each late wake halves the prediction for a
/// window of waits; a larger margin buys some of it back.
///
/// # Why a late wake is censored
///
/// A wait that slept past the completion saw only that the residual was at most its sleep. Were that
/// recorded as a sample, the estimate would confirm itself: it slept too long, so the residual was
/// long, so it sleeps as long again. It records half of what it predicted instead, and a run of late
/// wakes lowers the prediction geometrically until a wait is in time and sees the truth. Each
/// censored sample leaves with the window.
#[derive(Clone, Copy, Default, Debug)]
pub struct PointEstimate {
    /// In nanoseconds; a ring.
    samples: [u64; SAMPLES],
    /// How many of them are samples.
    len: u8,
    /// Where the next one goes.
    next: u8,
    /// That of the newest observation; 0 before the first.
    window: u8,
}

impl PointEstimate {
    /// An estimate without samples.
    #[must_use]
    pub const fn new() -> Self {
        PointEstimate { samples: [0; SAMPLES], len: 0, next: 0, window: 0 }
    }

    /// The predicted residual under the window of the newest [`observe`](Self::observe); `None`
    /// before the first.
    #[must_use]
    pub fn predicted_ns(&self) -> Option<DurNs> {
        self.minimum(self.window).map(DurNs)
    }

    /// How long the next wait sleeps before it looks, under `plan` and its window: the prediction
    /// less the margin, and `max_sleep_ns` at the most.
    ///
    /// `None`, which is to look at once, where there is no sample, where the margin exceeds the
    /// prediction, and where what remains is below `min_sleep_ns`. The result is what
    /// `wait` takes as its sleep.
    #[must_use]
    pub fn sleep_ns(&self, plan: &DeadlinePlan) -> Option<DurNs> {
        let sleep_ns = self.minimum(plan.window)?.checked_sub(plan.margin_ns)?;
        (sleep_ns >= plan.min_sleep_ns).then_some(DurNs(sleep_ns.min(plan.max_sleep_ns)))
    }

    /// Takes in what a wait under `plan` said.
    ///
    /// A late wake records half of what it woke at or half of the prediction under the plan's
    /// window, whichever is less: it never raises the prediction.
    pub fn observe(&mut self, plan: &DeadlinePlan, outcome: Outcome) {
        let sample_ns = match outcome {
            Outcome::Exact { residual_ns } => residual_ns,
            Outcome::Late { woke_ns } => {
                let bound_ns = self.minimum(plan.window).unwrap_or(u64::MAX);
                woke_ns.min(bound_ns) / 2
            }
        };
        let at = usize::from(self.next) % SAMPLES;
        self.samples[at] = sample_ns;
        self.next = (self.next + 1) % WINDOW_MAX;
        self.len = (self.len + 1).min(WINDOW_MAX);
        self.window = plan.window.clamp(1, WINDOW_MAX);
    }

    /// The smallest of the newest `window` samples, in nanoseconds.
    fn minimum(&self, window: u8) -> Option<u64> {
        let window = usize::from(window.clamp(1, WINDOW_MAX).min(self.len));
        let newest = usize::from(self.next) + SAMPLES;
        (1..=window).map(|back| self.samples[(newest - back) % SAMPLES]).min()
    }
}

#[cfg(test)]
mod replay;
#[cfg(test)]
mod tests;
