//! What an estimate predicts, rule by rule.

use super::*;

const PLAN: DeadlinePlan =
    DeadlinePlan { margin_ns: 10, min_sleep_ns: 20, max_sleep_ns: 1_000, window: 3 };

fn exact(residual_ns: u64) -> Outcome {
    Outcome::Exact { residual_ns }
}

fn late(woke_ns: u64) -> Outcome {
    Outcome::Late { woke_ns }
}

fn observed(plan: &DeadlinePlan, outcomes: &[Outcome]) -> PointEstimate {
    let mut point = PointEstimate::new();
    for &outcome in outcomes {
        point.observe(plan, outcome);
    }
    point
}

fn predicted(plan: &DeadlinePlan, outcomes: &[Outcome]) -> Option<u64> {
    observed(plan, outcomes).predicted_ns().map(|prediction| prediction.0)
}

#[test]
fn the_prediction_is_the_minimum_of_the_newest_samples_of_the_window() {
    assert_eq!(predicted(&PLAN, &[]), None);
    assert_eq!(predicted(&PLAN, &[exact(100), exact(300), exact(200)]), Some(100));
    assert_eq!(predicted(&PLAN, &[exact(100), exact(300), exact(200), exact(400)]), Some(200));
}

#[test]
fn a_late_wake_records_half_of_the_lesser_of_its_wake_and_the_prediction() {
    assert_eq!(predicted(&PLAN, &[late(101)]), Some(50), "half of the wake without a prediction");
    assert_eq!(predicted(&PLAN, &[exact(100), late(90)]), Some(45));
    assert_eq!(predicted(&PLAN, &[exact(100), late(5_000)]), Some(50), "it never raises it");
}

#[test]
fn a_run_of_late_wakes_lowers_the_prediction_geometrically_and_leaves_with_the_window() {
    let mut outcomes = alloc::vec![exact(1_024)];
    outcomes.extend([late(u64::MAX); 5]);
    assert_eq!(predicted(&PLAN, &outcomes), Some(32));
    outcomes.extend([exact(1_000), exact(1_000)]);
    assert_eq!(predicted(&PLAN, &outcomes), Some(32));
    outcomes.push(exact(1_000));
    assert_eq!(predicted(&PLAN, &outcomes), Some(1_000));
}

#[test]
fn a_sleep_ends_a_margin_before_the_prediction_and_has_both_its_bounds() {
    let sleep = |residual_ns| observed(&PLAN, &[exact(residual_ns)]).sleep_ns(&PLAN);
    assert_eq!(PointEstimate::new().sleep_ns(&PLAN), None);
    assert_eq!(sleep(9), None, "the margin exceeds the prediction");
    assert_eq!(sleep(29), None, "19 is below the least sleep");
    assert_eq!(sleep(30), Some(DurNs(20)));
    assert_eq!(sleep(1_010), Some(DurNs(1_000)));
    assert_eq!(sleep(u64::MAX), Some(DurNs(1_000)));
}

#[test]
fn a_smaller_window_counts_only_the_newest_and_a_larger_one_finds_the_older_again() {
    let mut point = observed(&PLAN, &[exact(100), exact(300), exact(200)]);
    let one = DeadlinePlan { window: 1, ..PLAN };
    assert_eq!(point.sleep_ns(&one), Some(DurNs(190)), "at once, before the next observation");
    assert_eq!(point.sleep_ns(&PLAN), Some(DurNs(90)));
    point.observe(&one, late(180));
    assert_eq!(point.predicted_ns(), Some(DurNs(90)), "half of the wake: 180 is below 200");
    point.observe(&one, exact(400));
    assert_eq!(point.predicted_ns(), Some(DurNs(400)));
    assert_eq!(point.sleep_ns(&PLAN), Some(DurNs(80)));
}

#[test]
fn a_window_out_of_range_is_clamped() {
    let mut outcomes = alloc::vec![exact(50)];
    outcomes.extend((0..15).map(|_| exact(100)));
    for (window, prediction) in [(0, 100), (1, 100), (16, 50), (17, 50), (255, 50)] {
        let plan = DeadlinePlan { window, ..PLAN };
        assert_eq!(predicted(&plan, &outcomes), Some(prediction), "window {window}");
    }
    outcomes.push(exact(100));
    let plan = DeadlinePlan { window: 255, ..PLAN };
    assert_eq!(predicted(&plan, &outcomes), Some(100), "no more than 16 samples are kept");
}

#[test]
fn a_plan_whose_bounds_cross_still_caps_the_sleep() {
    let plan = DeadlinePlan { margin_ns: 0, min_sleep_ns: 500, max_sleep_ns: 100, window: 1 };
    assert_eq!(observed(&plan, &[exact(600)]).sleep_ns(&plan), Some(DurNs(100)));
    assert_eq!(observed(&plan, &[exact(400)]).sleep_ns(&plan), None);
}

#[test]
fn an_estimate_is_as_small_as_documented() {
    assert_eq!(size_of::<PointEstimate>(), 136);
}
