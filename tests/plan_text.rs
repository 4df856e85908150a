//! The text of wait plans and bands, against every plan that can be made up and any text at all.

use gpu_async_reactor::{
    BANDS_MAX, DeadlinePlan, ErrorCode, Park, WINDOW_MAX, WaitBands, WaitPlan,
};
use proptest::{collection::vec, option, prelude::*};

const MOST_US: u64 = u64::MAX / 1_000;

fn us(range: std::ops::RangeInclusive<u64>) -> impl Strategy<Value = u64> {
    range.prop_map(|us| us * 1_000)
}

fn deadline() -> impl Strategy<Value = DeadlinePlan> {
    (us(0..=MOST_US), us(0..=MOST_US), us(0..=MOST_US), 1..=WINDOW_MAX).prop_map(
        |(margin_ns, one_ns, other_ns, window)| DeadlinePlan {
            margin_ns,
            min_sleep_ns: one_ns.min(other_ns),
            max_sleep_ns: one_ns.max(other_ns),
            window,
        },
    )
}

fn plan() -> impl Strategy<Value = WaitPlan> {
    let park = prop_oneof![
        Just(Park::QueryPoll),
        (us(1..=10_000), us(1..=1_000_000))
            .prop_map(|(park_ns, backstop_ns)| Park::FlagWait { park_ns, backstop_ns }),
        us(1..=1_000_000).prop_map(|backstop_ns| Park::Spin { backstop_ns }),
    ];
    prop_oneof![
        1 => Just(WaitPlan { predict: None, park: Park::Block }),
        9 => (option::of(deadline()), park).prop_map(|(predict, park)| WaitPlan { predict, park }),
    ]
}

fn bands() -> impl Strategy<Value = WaitBands> {
    (plan(), vec((1_u64.., plan()), 0..BANDS_MAX)).prop_map(|(first, mut more)| {
        more.sort_by_key(|band| band.0);
        more.dedup_by_key(|band| band.0);
        more.insert(0, (0, first));
        WaitBands::new(&more).expect("ascending from 0")
    })
}

/// The same text with the fields of each list turned and swapped by `turn`, and zeros before the
/// digits.
fn reordered(label: &str, turn: usize, zeros: usize) -> String {
    let zeros = format!("={}", "0".repeat(zeros));
    let lists = label.split('+').map(|part| {
        let Some((owner, fields)) = part.split_once(':') else { return part.to_string() };
        let mut fields: Vec<String> =
            fields.split(',').map(|field| field.replace('=', &zeros)).collect();
        let count = fields.len();
        fields.rotate_left(turn % count);
        fields.swap(0, turn / count % count);
        format!("{owner}:{}", fields.join(","))
    });
    lists.collect::<Vec<_>>().join("+")
}

/// Text made of the pieces of the grammar, so that it gets far into the parser, and of others.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => proptest::sample::select(vec![
            "block", "poll", "flag", "spin", ":", ",", "=", "+", "+predict:", ";", ";rows>=", "5",
            "0", "18446744073709551616", "park_us=", "backstop_us=5", "margin_us=1", "window=4",
            "min_sleep_us=2", "max_sleep_us=3", " ", "٣", "…", "-", "FLAG", "\0", "spin:backstop_us=7",
        ]).prop_map(str::to_string),
        1 => any::<String>(),
    ];
    vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn check_refusal(text: &str, error: &gpu_async_reactor::Error) -> Result<(), TestCaseError> {
    prop_assert_eq!(error.code(), ErrorCode::InvalidPlan);
    let span = error.span().expect("a parse error says where");
    prop_assert!(text.get(span.clone()).is_some(), "{:?} is not within {:?}", span, text);
    let whole = &error.args()[0];
    if text.chars().count() <= 200 {
        prop_assert_eq!(whole, text);
    } else {
        prop_assert_eq!(whole.chars().count(), 201);
        prop_assert!(whole.ends_with('…') && text.starts_with(whole.trim_end_matches('…')));
    }
    prop_assert!(error.args()[1].chars().count() < 200);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_label_reads_back_as_its_plan(plan in plan()) {
        prop_assert_eq!(WaitPlan::parse(&plan.label()), Ok(plan));
        prop_assert_eq!(plan.to_string(), plan.label());
        prop_assert_eq!(WaitBands::parse(&plan.label()), Ok(WaitBands::from(plan)));
    }

    #[test]
    fn a_label_reads_back_as_its_bands(bands in bands()) {
        prop_assert_eq!(WaitBands::parse(&bands.label()), Ok(bands));
        prop_assert_eq!(bands.label().parse(), Ok(bands));
    }

    #[test]
    fn the_order_of_the_fields_and_leading_zeros_mean_nothing(
        plan in plan(), turn in 0_usize..24, zeros in 0_usize..30,
    ) {
        let text = reordered(&plan.label(), turn, zeros);
        prop_assert_eq!(WaitPlan::parse(&text), Ok(plan), "{}", text);
    }

    #[test]
    fn a_row_count_gets_the_plan_of_the_last_band_that_begins_at_it_or_before(
        bands in bands(), rows: u64, at in 0..BANDS_MAX, below: bool,
    ) {
        let edges = bands.as_slice();
        // Half of the row counts stand at an edge, or one below it.
        for rows in [rows, edges[at % edges.len()].0.saturating_sub(u64::from(below))] {
            let expected = edges.iter().rev().find(|band| band.0 <= rows).unwrap();
            prop_assert_eq!(bands.select(rows), &expected.1);
        }
    }

    #[test]
    fn any_text_is_a_plan_with_a_canonical_label_or_refused_with_its_place(text in hostile()) {
        match WaitPlan::parse(&text) {
            Ok(plan) => prop_assert_eq!(WaitPlan::parse(&plan.label()), Ok(plan)),
            Err(error) => check_refusal(&text, &error)?,
        }
        match WaitBands::parse(&text) {
            Ok(bands) => prop_assert_eq!(WaitBands::parse(&bands.label()), Ok(bands)),
            Err(error) => check_refusal(&text, &error)?,
        }
    }

    #[test]
    fn a_plan_with_one_character_changed_is_never_taken_for_another_shape(
        bands in bands(), at: proptest::sample::Index, put: char,
    ) {
        let mut chars: Vec<char> = bands.label().chars().collect();
        let at = at.index(chars.len());
        chars[at] = put;
        let text: String = chars.into_iter().collect();
        match WaitBands::parse(&text) {
            Ok(_) => prop_assert!(put.is_ascii_digit() || text == bands.label(), "{}", text),
            Err(error) => check_refusal(&text, &error)?,
        }
    }

    #[test]
    fn a_plan_built_by_hand_never_reads_back_as_another(
        park_ns: u64, backstop_ns: u64, margin_ns: u64, min_sleep_ns: u64, max_sleep_ns: u64,
        window: u8, kind in 0..4,
    ) {
        let predict = Some(DeadlinePlan { margin_ns, min_sleep_ns, max_sleep_ns, window });
        let park = match kind {
            0 => Park::Block,
            1 => Park::QueryPoll,
            2 => Park::FlagWait { park_ns, backstop_ns },
            _ => Park::Spin { backstop_ns },
        };
        let plan = WaitPlan { predict, park };
        if let Ok(other) = WaitPlan::parse(&plan.label()) {
            prop_assert_eq!(other, plan);
        }
    }
}

/// A parser that looked at the rest of the text again at each separator would do some 10^11 steps
/// here, which takes minutes; one pass takes milliseconds.
#[test]
fn a_megabyte_of_hostile_text_is_read_in_one_pass() {
    const LEN: usize = 1 << 20;
    let repeated = |head: &str, unit: &str| head.to_string() + &unit.repeat(LEN / unit.len());
    let texts = [
        repeated("", ":"),
        repeated("", "+"),
        repeated("poll", "+predict:"),
        repeated("poll", "+predict"),
        repeated("flag:", ","),
        repeated("flag:park_us=1,", "park_us=1,"),
        repeated("spin:backstop_us=", "9"),
        repeated("spin:backstop_us=5", "+"),
        repeated("spin:backstop_us=", "="),
        repeated("", "ü"),
        repeated("poll", ";"),
        repeated("poll", ";rows>=1:poll"),
        repeated("poll;rows>=", "1"),
        repeated("", " "),
        repeated("", "poll;rows>=1:spin:backstop_us=5+predict:"),
    ];
    for text in texts {
        let plan = WaitPlan::parse(&text).unwrap_err();
        let bands = WaitBands::parse(&text).unwrap_err();
        for error in [plan, bands] {
            check_refusal(&text, &error).unwrap();
            assert!(error.to_string().len() < 2_000, "what is quoted is cut");
        }
    }
    let zeros = repeated("spin:backstop_us=", "0") + "7";
    assert_eq!(WaitPlan::parse(&zeros).unwrap().label(), "spin:backstop_us=7");
}
