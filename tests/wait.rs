//! Waits by every plan on a scripted port: what is called, in which order, and what is reported.

mod manual;

use gpu_async_reactor::{
    Clock, DurNs, End, ErrorCode, ManualClock, MonoNs, Outcome, PointEstimate, WaitError, WaitPlan,
    wait, wait_until,
};
use manual::{ScriptPort, inline};
use proptest::prelude::*;

const US: u64 = 1_000;

fn plan(text: &str) -> WaitPlan {
    WaitPlan::parse(text).unwrap()
}

#[test]
fn block_is_the_vendors_wait_and_nothing_else() {
    let clock = ManualClock::new();
    let mut port = ScriptPort::new(&clock, 100 * US);
    let waited = inline(wait(&plan("block"), Some(DurNs(50)), &mut port, &clock)).unwrap();
    assert_eq!(port.log(), "begin block");
    assert_eq!((waited.end, waited.outcome, waited.queries), (End::Blocked, None, 0));
    assert_eq!(waited.elapsed, DurNs::from_us(100));
}

#[test]
fn work_that_is_done_ends_every_other_wait_at_the_first_query() {
    for text in ["poll", "spin:backstop_us=10", "flag:park_us=5,backstop_us=10"] {
        let clock = ManualClock::new();
        let mut port = ScriptPort::new(&clock, 0);
        let waited = inline(wait(&plan(text), Some(DurNs(50)), &mut port, &clock)).unwrap();
        assert_eq!(port.log(), "begin query", "{text}: nothing is armed, nothing slept");
        assert_eq!(waited.outcome, None, "it says nothing about the residual");
        assert_eq!((waited.end, waited.queries), (End::Immediate, 1));
    }
}

#[test]
fn poll_is_the_ports_loop_of_queries() {
    let clock = ManualClock::new();
    let mut port = ScriptPort::new(&clock, 70 * US);
    let waited = inline(wait(&plan("poll"), None, &mut port, &clock)).unwrap();
    assert_eq!(port.log(), "begin query poll");
    assert_eq!(waited.end, End::Polled);
    assert_eq!(waited.outcome, Some(Outcome::Exact { residual_ns: 70 * US }));
}

#[test]
fn a_sleep_that_ends_before_the_work_is_followed_by_an_exact_look() {
    let clock = ManualClock::new();
    let mut port = ScriptPort::new(&clock, 70 * US);
    let waited = inline(wait(&plan("poll"), Some(DurNs::from_us(60)), &mut port, &clock)).unwrap();
    assert_eq!(port.log(), "begin query query poll");
    assert_eq!((waited.slept, waited.queries), (DurNs::from_us(60), 2));
    assert_eq!(waited.outcome, Some(Outcome::Exact { residual_ns: 70 * US }));
}

#[test]
fn a_sleep_that_ends_after_the_work_is_late_and_says_only_a_bound() {
    for text in ["poll", "spin:backstop_us=10", "flag:park_us=5,backstop_us=10"] {
        let clock = ManualClock::new();
        let mut port = ScriptPort::new(&clock, 70 * US);
        let waited =
            inline(wait(&plan(text), Some(DurNs::from_us(90)), &mut port, &clock)).unwrap();
        assert_eq!(waited.end, End::Late);
        assert_eq!(waited.outcome, Some(Outcome::Late { woke_ns: 90 * US }), "{text}");
    }
}

#[test]
fn flag_parks_no_longer_than_a_park_and_never_past_a_backstop() {
    let clock = ManualClock::new();
    let mut port = ScriptPort::new(&clock, 25 * US);
    let waited =
        inline(wait(&plan("flag:park_us=8,backstop_us=20"), None, &mut port, &clock)).unwrap();
    let expected = "begin query arm park:8000 park:8000 park:4000 query park:8000 poll";
    assert_eq!(port.log(), expected);
    assert_eq!((waited.end, waited.parks, waited.queries), (End::Parked, 4, 2));
    assert_eq!(waited.outcome, Some(Outcome::Exact { residual_ns: 25 * US }));
}

#[test]
fn spin_makes_no_driver_call_between_backstops() {
    let clock = ManualClock::new();
    let mut port = ScriptPort::new(&clock, 90 * US);
    let waited = inline(wait(&plan("spin:backstop_us=40"), None, &mut port, &clock)).unwrap();
    let calls: Vec<_> =
        port.calls.iter().filter(|call| *call != "seen" && *call != "pause").cloned().collect();
    assert_eq!(calls, ["begin", "query", "arm", "query", "query", "poll"]);
    assert_eq!((waited.end, waited.queries, waited.parks), (End::Spun, 3, 0));
}

#[test]
fn a_lost_store_ends_at_the_next_backstop_and_says_so() {
    for text in ["spin:backstop_us=40", "flag:park_us=9,backstop_us=40"] {
        let clock = ManualClock::new();
        let mut port = ScriptPort::new(&clock, 50 * US);
        port.word_at = u64::MAX;
        let waited = inline(wait(&plan(text), None, &mut port, &clock)).unwrap();
        assert_eq!((waited.end, waited.outcome), (End::Backstop, None), "{text}");
        assert!(waited.elapsed.0 >= 80 * US && waited.elapsed.0 < 81 * US, "{text}");
    }
}

#[test]
fn a_silent_word_and_a_failing_query_end_within_one_backstop() {
    for text in ["spin:backstop_us=40", "flag:park_us=9,backstop_us=40"] {
        let clock = ManualClock::new();
        let mut port = ScriptPort::new(&clock, u64::MAX);
        port.fails_at = 50 * US;
        let error = inline(wait(&plan(text), None, &mut port, &clock)).unwrap_err();
        assert_eq!(error, "device fault", "{text}");
        assert!(clock.monotonic_ns().0 < 81 * US, "{text}: by {:?}", clock.monotonic_ns());
    }
}

#[test]
fn a_word_that_was_stored_does_not_hide_a_fault() {
    for text in ["spin:backstop_us=40", "flag:park_us=9,backstop_us=40"] {
        let clock = ManualClock::new();
        let mut port = ScriptPort::new(&clock, u64::MAX);
        port.word_at = 10 * US;
        port.fails_at = 10 * US;
        assert_eq!(inline(wait(&plan(text), None, &mut port, &clock)), Err("device fault"));
        assert!(clock.monotonic_ns().0 < 11 * US, "{text}: at once");
    }
}

#[test]
fn a_wait_holds_for_a_word_that_comes_before_the_status() {
    for text in ["spin:backstop_us=40", "flag:park_us=9,backstop_us=40"] {
        for deadline in [None, Some(MonoNs(500 * US))] {
            let clock = ManualClock::new();
            let mut port = ScriptPort::new(&clock, 100 * US);
            port.word_at = 10 * US;
            let waited = match deadline {
                None => inline(wait(&plan(text), None, &mut port, &clock)).unwrap(),
                Some(at) => inline(wait_until(&plan(text), None, &mut port, &clock, at)).unwrap(),
            };
            assert!(waited.elapsed.0 >= 100 * US, "{text}: {waited:?}");
        }
    }
}

#[test]
fn a_deadline_ends_the_wait_after_one_more_look_and_the_port_stays_usable() {
    let parks = ["poll", "spin:backstop_us=40", "flag:park_us=9,backstop_us=40"];
    for text in parks {
        let clock = ManualClock::new();
        let mut port = ScriptPort::new(&clock, 300 * US);
        let deadline = MonoNs(100 * US);
        let sleep = Some(DurNs::from_us(10));
        let ended = inline(wait_until(&plan(text), sleep, &mut port, &clock, deadline));
        let Err(WaitError::TimedOut(waited)) = ended else { panic!("{text}: {ended:?}") };
        assert_eq!((waited.end, waited.outcome), (End::TimedOut, None), "{text}");
        assert!(waited.elapsed.0 >= 100 * US && waited.elapsed.0 < 101 * US, "{text}");
        assert_eq!(port.last_query_at, clock.monotonic_ns().0, "{text}: a look after the deadline");
        assert!(!port.calls.iter().any(|call| call == "poll"), "{text}: poll has no deadline");
        inline(wait(&plan(text), None, &mut port, &clock)).unwrap();
        assert_eq!(clock.monotonic_ns().0 / US, 300, "{text}: the next wait ends with the work");
    }
}

#[test]
fn a_sleep_is_cut_at_the_deadline() {
    let clock = ManualClock::new();
    let mut port = ScriptPort::new(&clock, 300 * US);
    let sleep = Some(DurNs::from_us(250));
    let ended = inline(wait_until(&plan("poll"), sleep, &mut port, &clock, MonoNs(100 * US)));
    assert!(matches!(ended, Err(WaitError::TimedOut(waited)) if waited.elapsed.0 == 100 * US));
}

#[test]
fn block_with_a_deadline_is_refused_before_waiting() {
    let clock = ManualClock::new();
    let mut port = ScriptPort::new(&clock, 300 * US);
    let ended = inline(wait_until(&plan("block"), None, &mut port, &clock, MonoNs(1)));
    let Err(WaitError::Refused(error)) = ended else { panic!("{ended:?}") };
    assert_eq!(error.code(), ErrorCode::BlockingDeadline);
    assert!(!port.calls.iter().any(|call| call == "block"));
}

fn plans() -> impl Strategy<Value = WaitPlan> {
    prop_oneof![
        Just("poll".to_string()),
        (1..300u64).prop_map(|backstop| format!("spin:backstop_us={backstop}")),
        (1..50u64, 1..300u64)
            .prop_map(|(park, backstop)| format!("flag:park_us={park},backstop_us={backstop}")),
    ]
    .prop_map(|text| plan(&text))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_wait_ends_well_before_a_query_said_done_nor_long_after(
        plan in plans(),
        done_at in 0..400_000u64,
        word_offset in -100_000..100_000i64,
        lost in any::<bool>(),
        sleep in prop::option::of(0..500_000u64),
        deadline in prop::option::of(0..500_000u64),
    ) {
        let clock = ManualClock::new();
        let mut port = ScriptPort::new(&clock, done_at);
        port.word_at = if lost { u64::MAX } else { done_at.saturating_add_signed(word_offset) };
        let sleep = sleep.map(DurNs);
        let ended = match deadline {
            Some(at) => inline(wait_until(&plan, sleep, &mut port, &clock, MonoNs(at))),
            None => inline(wait(&plan, sleep, &mut port, &clock)).map_err(WaitError::Port),
        };
        let now = clock.monotonic_ns().0;
        prop_assert_eq!(port.last_query_at, now, "the last word is the status");
        match ended {
            Ok(waited) => {
                prop_assert!(now >= done_at && port.last_answer);
                let censored = matches!(waited.outcome, Some(Outcome::Late { .. }));
                prop_assert_eq!(censored, waited.end == End::Late);
                if let Some(Outcome::Late { woke_ns }) = waited.outcome {
                    prop_assert!(woke_ns >= done_at);
                }
            }
            Err(WaitError::TimedOut(waited)) => {
                prop_assert!(now >= deadline.unwrap() && now < done_at);
                prop_assert_eq!(waited.end, End::TimedOut);
            }
            Err(other) => prop_assert!(false, "{other:?}"),
        }
        if let Some(deadline) = deadline {
            prop_assert!(now <= deadline + 16 * manual::PAUSE_NS, "{now} is long after {deadline}");
        }
    }
}

/// The time that 2,000 waits for work of 2 ms spend on checks after their predicted sleep, as a share
/// of all of it, if `late_permille` of them begin after the work is done.
fn share_checked(late_permille: u64) -> f64 {
    let plan = plan(
        "spin:backstop_us=1000+predict:margin_us=150,min_sleep_us=50,max_sleep_us=50000,window=4",
    );
    let deadline = plan.predict.unwrap();
    let clock = ManualClock::new();
    let mut estimate = PointEstimate::new();
    let (mut slept, mut elapsed) = (0, 0);
    for step in 0..2_000_u64 {
        let done_at = clock.monotonic_ns().0 + 2_000 * US + step % 50 * US;
        // Spread over the steps: 7 has no divisor in common with 1,000.
        if step * 7 % 1_000 < late_permille {
            clock.set(MonoNs(done_at + 100 * US));
        }
        let mut port = ScriptPort::new(&clock, done_at);
        port.record_calls = false;
        let sleep = estimate.sleep_ns(&deadline);
        let waited = inline(wait(&plan, sleep, &mut port, &clock)).unwrap();
        slept += waited.slept.0;
        elapsed += waited.elapsed.0;
        if let Some(outcome) = waited.outcome {
            estimate.observe(&deadline, outcome);
        }
    }
    1.0 - slept as f64 / elapsed as f64
}

#[test]
fn f63_waits_that_begin_after_their_completion_cost_the_others_nothing() {
    let none = share_checked(0);
    for late_permille in [50, 200] {
        let share = share_checked(late_permille);
        assert!(share < 1.05 * none, "{share:.3} of the time checked, {none:.3} without");
    }
}
