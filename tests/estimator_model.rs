//! The estimator against a model that keeps every sample and applies the rules to the letter.

use gpu_async_reactor::{DeadlinePlan, DurNs, Outcome, PointEstimate, PointTable};
use proptest::{collection::vec, prelude::*};
use std::collections::HashMap;

/// Every sample in its order, and the window of the newest observation.
#[derive(Default)]
struct Model {
    samples: Vec<u64>,
    window: usize,
}

impl Model {
    fn minimum(&self, window: usize) -> Option<u64> {
        self.samples.iter().rev().take(window.clamp(1, 16)).min().copied()
    }

    fn predicted(&self) -> Option<DurNs> {
        self.minimum(self.window).map(DurNs)
    }

    fn sleep(&self, plan: &DeadlinePlan) -> Option<DurNs> {
        let prediction = u128::from(self.minimum(plan.window.into())?);
        let margin = u128::from(plan.margin_ns);
        if margin > prediction || prediction - margin < u128::from(plan.min_sleep_ns) {
            return None;
        }
        let capped = (prediction - margin).min(plan.max_sleep_ns.into());
        Some(DurNs(capped.try_into().unwrap()))
    }

    fn observe(&mut self, plan: &DeadlinePlan, outcome: Outcome) {
        self.samples.push(match (outcome, self.minimum(plan.window.into())) {
            (Outcome::Exact { residual_ns }, _) => residual_ns,
            (Outcome::Late { woke_ns }, None) => woke_ns / 2,
            (Outcome::Late { woke_ns }, Some(prediction)) => woke_ns.min(prediction) / 2,
        });
        self.window = plan.window.into();
    }
}

/// Mostly times of some size, sometimes the ends of the range.
fn ns() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0_u64..5_000, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

fn plan() -> impl Strategy<Value = DeadlinePlan> {
    let window = prop_oneof![6 => 0_u8..=20, 1 => any::<u8>()];
    (prop_oneof![0_u64..300, ns()], prop_oneof![0_u64..300, ns()], ns(), window).prop_map(
        |(margin_ns, min_sleep_ns, max_sleep_ns, window)| DeadlinePlan {
            margin_ns,
            min_sleep_ns,
            max_sleep_ns,
            window,
        },
    )
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        2 => ns().prop_map(|residual_ns| Outcome::Exact { residual_ns }),
        1 => ns().prop_map(|woke_ns| Outcome::Late { woke_ns }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn an_estimate_says_what_the_model_says_under_any_windows(
        steps in vec((plan(), outcome(), plan()), 0..80),
    ) {
        let (mut estimate, mut model) = (PointEstimate::new(), Model::default());
        prop_assert_eq!(estimate.predicted_ns(), None);
        for (plan, outcome, asked) in &steps {
            prop_assert_eq!(estimate.sleep_ns(asked), model.sleep(asked));
            estimate.observe(plan, *outcome);
            model.observe(plan, *outcome);
            prop_assert_eq!(estimate.predicted_ns(), model.predicted());
            prop_assert_eq!(estimate.sleep_ns(plan), model.sleep(plan));
        }
    }

    #[test]
    fn a_late_wake_never_raises_the_prediction_nor_the_sleep_under_one_window(
        plan in plan(), outcomes in vec(outcome(), 1..40), woke_ns in ns(),
    ) {
        let mut estimate = PointEstimate::new();
        for outcome in outcomes {
            estimate.observe(&plan, outcome);
        }
        let before = estimate;
        estimate.observe(&plan, Outcome::Late { woke_ns });
        // The halved sample is the newest one, so it holds whatever sample left the window.
        prop_assert!(estimate.predicted_ns().unwrap().0 <= before.predicted_ns().unwrap().0 / 2);
        prop_assert!(estimate.predicted_ns().unwrap().0 <= woke_ns / 2);
        if let (Some(after), Some(before)) = (estimate.sleep_ns(&plan), before.sleep_ns(&plan)) {
            prop_assert!(after <= before);
        }
    }

    #[test]
    fn a_table_keeps_one_estimate_for_each_point(
        steps in vec((0_u8..6, plan(), outcome()), 0..60),
    ) {
        let mut table = PointTable::new();
        let mut models: HashMap<u8, Model> = HashMap::new();
        for (key, plan, outcome) in &steps {
            let expected = models.get(key).and_then(|model| model.sleep(plan));
            prop_assert_eq!(table.sleep_ns(key, plan), expected);
            table.observe(*key, plan, *outcome);
            models.entry(*key).or_default().observe(plan, *outcome);
        }
        prop_assert_eq!(table.len(), models.len());
        prop_assert_eq!(table.is_empty(), models.is_empty());
        let keys: Vec<u8> = table.iter().map(|(key, _)| *key).collect();
        prop_assert!(keys.is_sorted());
        for (key, estimate) in table.iter() {
            prop_assert_eq!(estimate.predicted_ns(), models[key].predicted());
        }
    }
}
