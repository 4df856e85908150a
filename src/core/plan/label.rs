//! Writes a wait plan as the text that spells it.
//!
//! A label never reads back as another plan. For the plans that the grammar can spell it is their
//! one canonical text. A plan that was built by hand may hold what no text can: numbers out of
//! range, times that are no whole microseconds, a prediction on `block`. These are written as they
//! are (`park_us=0`, `park_us=2.5`, `block+predict:...`), and the parser refuses that text.

use super::{DeadlinePlan, Park, WaitPlan};
use alloc::string::{String, ToString};
use core::fmt;

impl WaitPlan {
    /// The canonical text of this plan, which [`parse`](Self::parse) reads back as the same plan
    /// wherever it is one that a text can spell. Where it is not, the plan was built by hand, and
    /// the label shows its numbers as they are, with a fraction where a time is no whole number of
    /// microseconds (`park_us=2.5`); the parser refuses such a text.
    ///
    /// One allocation or a few. `Display` writes the same without any.
    ///
    /// ```
    /// # use gpu_async_reactor::WaitPlan;
    /// let plan = WaitPlan::parse("spin:backstop_us=007")?;
    /// assert_eq!(plan.label(), "spin:backstop_us=7");
    /// # Ok::<(), gpu_async_reactor::Error>(())
    /// ```
    #[must_use]
    pub fn label(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for WaitPlan {
    /// The [`label`](WaitPlan::label).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.park.kind().name())?;
        match self.park {
            Park::Block | Park::QueryPoll => {}
            Park::FlagWait { park_ns, backstop_ns } => {
                write!(f, ":park_us={},backstop_us={}", Us(park_ns), Us(backstop_ns))?;
            }
            Park::Spin { backstop_ns } => write!(f, ":backstop_us={}", Us(backstop_ns))?,
        }
        let Some(DeadlinePlan { margin_ns, min_sleep_ns, max_sleep_ns, window }) = self.predict
        else {
            return Ok(());
        };
        write!(
            f,
            "+predict:margin_us={},min_sleep_us={},max_sleep_us={},window={window}",
            Us(margin_ns),
            Us(min_sleep_ns),
            Us(max_sleep_ns),
        )
    }
}

/// Nanoseconds, written in microseconds with as many decimals as they need: none if whole.
struct Us(u64);

impl fmt::Display for Us {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, mut fraction, mut decimals) = (self.0 / 1_000, self.0 % 1_000, 3);
        if fraction == 0 {
            return write!(f, "{whole}");
        }
        while fraction % 10 == 0 {
            fraction /= 10;
            decimals -= 1;
        }
        write!(f, "{whole}.{fraction:0decimals$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorCode;

    const PREDICT: DeadlinePlan = DeadlinePlan {
        margin_ns: 20_000,
        min_sleep_ns: 50_000,
        max_sleep_ns: 20_000_000,
        window: 8,
    };

    #[test]
    fn the_fields_stand_in_the_order_of_the_grammar() {
        let park = Park::FlagWait { park_ns: 100_000, backstop_ns: 50_000_000 };
        assert_eq!(
            WaitPlan { predict: Some(PREDICT), park }.label(),
            "flag:park_us=100,backstop_us=50000\
             +predict:margin_us=20,min_sleep_us=50,max_sleep_us=20000,window=8"
        );
        assert_eq!(WaitPlan { predict: None, park: Park::Block }.label(), "block");
        assert_eq!(WaitPlan { predict: None, park: Park::QueryPoll }.label(), "poll");
    }

    #[test]
    fn a_plan_that_no_text_spells_shows_its_numbers_and_its_label_is_refused() {
        let spin = |backstop_ns| WaitPlan { predict: None, park: Park::Spin { backstop_ns } };
        let block = WaitPlan { predict: Some(PREDICT), park: Park::Block };
        let window = DeadlinePlan { window: 0, ..PREDICT };
        let cases = [
            (spin(2_500), "spin:backstop_us=2.5"),
            (spin(1), "spin:backstop_us=0.001"),
            (spin(10_020), "spin:backstop_us=10.02"),
            (spin(0), "spin:backstop_us=0"),
            (spin(u64::MAX), "spin:backstop_us=18446744073709551.615"),
            (block, "block+predict:margin_us=20,min_sleep_us=50,max_sleep_us=20000,window=8"),
            (
                WaitPlan { predict: Some(window), park: Park::QueryPoll },
                "poll+predict:margin_us=20,min_sleep_us=50,max_sleep_us=20000,window=0",
            ),
        ];
        for (plan, label) in cases {
            assert_eq!(plan.label(), label);
            assert_eq!(WaitPlan::parse(label).unwrap_err().code(), ErrorCode::InvalidPlan);
        }
    }
}
