//! What the parser says of each way to spell a plan or its bands, right and wrong.

use super::*;
use crate::ErrorCode;
use alloc::{
    format,
    string::{String, ToString},
};

/// Malformed plans, the bytes at fault between `[` and `]`, and the fault.
const MALFORMED: &[(&str, &str)] = &[
    // The park.
    ("[]", "park: expected block, poll, flag or spin, found nothing"),
    ("[]+predict:margin_us=1", "park: expected block, poll, flag or spin, found nothing"),
    ("[sleep]", "park: expected block, poll, flag or spin, found \"sleep\""),
    ("[sleep]:park_us=1", "park: expected block, poll, flag or spin, found \"sleep\""),
    ("[Poll]", "park: expected block, poll, flag or spin in lower case, found \"Poll\""),
    ("[FLAG]:park_us=1", "park: expected block, poll, flag or spin in lower case, found \"FLAG\""),
    ("[ poll]", "park: expected block, poll, flag or spin without spaces, found \" poll\""),
    ("[poll\n]", "park: expected block, poll, flag or spin without spaces, found \"poll\n\""),
    ("[poll,]", "park: expected block, poll, flag or spin, found \"poll,\""),
    ("[poll;rows>=8]:poll", "park: expected block, poll, flag or spin, found \"poll;rows>=8\""),
    ("[pöll]", "park: expected block, poll, flag or spin, found \"pöll\""),
    ("poll[:]", "poll: expected no fields, found \":\""),
    ("block[:park_us=1]", "block: expected no fields, found \":park_us=1\""),
    ("flag[]", "flag: expected \":park_us=...,backstop_us=...\", found nothing"),
    ("spin[]", "spin: expected \":backstop_us=...\", found nothing"),
    // What may follow it.
    (
        "block[+predict:margin_us=1]",
        "block: expected no prediction, found \"+predict:margin_us=1\"",
    ),
    ("block[+predict]", "block: expected no prediction, found \"+predict\""),
    ("poll[+]", "poll: expected \"+predict:\" or nothing behind it, found \"+\""),
    ("poll[+predict]", "poll: expected \"+predict:\" or nothing behind it, found \"+predict\""),
    ("poll[+sleep:a=1]", "poll: expected \"+predict:\" or nothing behind it, found \"+sleep:a=1\""),
    (
        "spin:backstop_us=5[+predikt:margin_us=1]",
        "spin: expected \"+predict:\" or nothing behind it, found \"+predikt:margin_us=1\"",
    ),
    // Fields.
    ("flag:[]", "flag: expected the field park_us or backstop_us, found nothing"),
    ("spin:[]", "spin: expected the field backstop_us, found nothing"),
    ("spin:backstop_us=5,[]", "spin: expected the field backstop_us, found nothing"),
    ("flag:park_us=1,[],", "flag: expected the field park_us or backstop_us, found nothing"),
    ("spin:[park_us=5]", "spin: expected the field backstop_us, found \"park_us=5\""),
    (
        "spin:[Backstop_us=5]",
        "spin: expected the field backstop_us in lower case, found \"Backstop_us=5\"",
    ),
    (
        "spin:[ backstop_us=5]",
        "spin: expected the field backstop_us without spaces, found \" backstop_us=5\"",
    ),
    ("spin:[=5]", "spin: expected the field backstop_us, found \"=5\""),
    ("spin:backstop_us[]", "backstop_us: expected \"=\" and digits, found nothing"),
    ("flag:park_us[],backstop_us=1", "park_us: expected \"=\" and digits, found nothing"),
    (
        "flag:park_us=1,[park_us=2],backstop_us=1",
        "park_us: expected the field only once, found \"park_us=2\"",
    ),
    ("flag:park_us=1[]", "backstop_us: expected the field, found nothing"),
    ("flag:backstop_us=1[]", "park_us: expected the field, found nothing"),
    ("flag:park_us=1[]+predict:window=1", "backstop_us: expected the field, found nothing"),
    // Digits.
    ("spin:backstop_us=[]", "backstop_us: expected digits, found nothing"),
    ("spin:backstop_us=[+5]", "backstop_us: expected digits without a sign, found \"+5\""),
    ("spin:backstop_us=[-5]", "backstop_us: expected digits without a sign, found \"-5\""),
    ("spin:backstop_us=[ 5]", "backstop_us: expected digits without spaces, found \" 5\""),
    ("spin:backstop_us=[5 ]", "backstop_us: expected digits without spaces, found \"5 \""),
    ("spin:backstop_us=[1_000]", "backstop_us: expected only digits, found \"1_000\""),
    ("spin:backstop_us=[2.5]", "backstop_us: expected only digits, found \"2.5\""),
    ("spin:backstop_us=[5us]", "backstop_us: expected only digits, found \"5us\""),
    ("spin:backstop_us=[0x5]", "backstop_us: expected only digits, found \"0x5\""),
    ("spin:backstop_us=[5=5]", "backstop_us: expected only digits, found \"5=5\""),
    ("spin:backstop_us=[٥]", "backstop_us: expected the ASCII digits 0 to 9, found \"٥\""),
    ("spin:backstop_us=[1５]", "backstop_us: expected the ASCII digits 0 to 9, found \"1５\""),
    // Ranges.
    ("flag:park_us=[0],backstop_us=1", "park_us: expected 1 to 10000, found \"0\""),
    ("flag:park_us=[10001],backstop_us=1", "park_us: expected 1 to 10000, found \"10001\""),
    ("spin:backstop_us=[0]", "backstop_us: expected 1 to 1000000, found \"0\""),
    ("spin:backstop_us=[1000001]", "backstop_us: expected 1 to 1000000, found \"1000001\""),
    (
        "spin:backstop_us=[18446744073709551617]",
        "backstop_us: expected 1 to 1000000, found \"18446744073709551617\"",
    ),
    (
        "poll+predict:margin_us=[18446744073709552]",
        "margin_us: expected 0 to 18446744073709551, found \"18446744073709552\"",
    ),
    ("poll+predict:window=[0]", "window: expected 1 to 16, found \"0\""),
    ("poll+predict:window=[17]", "window: expected 1 to 16, found \"17\""),
    ("poll+predict:window=[257]", "window: expected 1 to 16, found \"257\""),
    // The prediction.
    (
        "poll+predict:[]",
        "predict: expected the field margin_us, min_sleep_us, max_sleep_us or window, found nothing",
    ),
    (
        "poll+predict:[backstop_us=5]",
        "predict: expected the field margin_us, min_sleep_us, max_sleep_us or window, \
         found \"backstop_us=5\"",
    ),
    (
        "poll+predict:margin_us=1,window=1,max_sleep_us=5[]",
        "min_sleep_us: expected the field, found nothing",
    ),
    (
        "poll+predict:margin_us=1,min_sleep_us=[6],max_sleep_us=5,window=1",
        "min_sleep_us: expected at most max_sleep_us, 5, found \"6\"",
    ),
    (
        "poll+predict:max_sleep_us=5,window=1,margin_us=1,min_sleep_us=[0006]",
        "min_sleep_us: expected at most max_sleep_us, 5, found \"0006\"",
    ),
    (
        "poll+predict:margin_us=1,min_sleep_us=4,max_sleep_us=5,window=1[+predict:window=1]",
        "predict: expected nothing behind it, found \"+predict:window=1\"",
    ),
];

/// Malformed bands, in the same way.
const MALFORMED_BANDS: &[(&str, &str)] = &[
    ("[]", "park: expected block, poll, flag or spin, found nothing"),
    ("[];rows>=1:poll", "park: expected block, poll, flag or spin, found nothing"),
    (
        "[rows>=0:poll]",
        "bands: expected first the plan that holds from 0 rows, found \"rows>=0:poll\"",
    ),
    ("poll;[]", "bands: expected \"rows>=...:\" and a plan behind \";\", found nothing"),
    (
        "poll;[];rows>=1:poll",
        "bands: expected \"rows>=...:\" and a plan behind \";\", found nothing",
    ),
    ("poll;[poll]", "bands: expected \"rows>=...:\" and a plan behind \";\", found \"poll\""),
    (
        "poll;[ rows>=8:poll]",
        "bands: expected \"rows>=...:\" and a plan behind \";\", found \" rows>=8:poll\"",
    ),
    (
        "poll;[rows>8:poll]",
        "bands: expected \"rows>=...:\" and a plan behind \";\", found \"rows>8:poll\"",
    ),
    ("poll;rows>=[]", "rows: expected digits, found nothing"),
    ("poll;rows>=[]:poll", "rows: expected digits, found nothing"),
    ("poll;rows>=[-1]:poll", "rows: expected digits without a sign, found \"-1\""),
    ("poll;rows>=[8poll]", "rows: expected only digits, found \"8poll\""),
    ("poll;rows>=8[]", "bands: expected \":\" and a plan behind the row count, found nothing"),
    ("poll;rows>=[0]:poll", "rows: expected 1 to 18446744073709551615, found \"0\""),
    (
        "poll;rows>=[18446744073709551616]:poll",
        "rows: expected 1 to 18446744073709551615, found \"18446744073709551616\"",
    ),
    (
        "poll;rows>=8:poll;rows>=[8]:poll",
        "rows: expected more than 8, the band before, found \"8\"",
    ),
    (
        "poll;rows>=8:poll;rows>=[07]:poll",
        "rows: expected more than 8, the band before, found \"07\"",
    ),
    ("poll;rows>=8:[]", "park: expected block, poll, flag or spin, found nothing"),
    ("poll;rows>=8:spin:backstop_us=[0]", "backstop_us: expected 1 to 1000000, found \"0\""),
    (
        "poll;rows>=1:poll;rows>=2:poll;rows>=3:poll[;rows>=4:poll]",
        "bands: expected at most 4, found \";rows>=4:poll\"",
    ),
];

fn check(marked: &str, fault: &str, parse: impl Fn(&str) -> Option<crate::Error>) {
    let (start, end) = (marked.find('[').unwrap(), marked.find(']').unwrap() - 1);
    let text: String = marked.chars().filter(|char| !['[', ']'].contains(char)).collect();
    let error = parse(&text).unwrap_or_else(|| panic!("{text} was accepted"));
    assert_eq!(error.code(), ErrorCode::InvalidPlan);
    assert_eq!(error.args(), [text.as_str(), fault]);
    assert_eq!(error.span(), Some(start..end), "{marked}");
    assert_eq!(error.to_string(), format!("invalid wait plan \"{text}\": {fault}"));
}

#[test]
fn each_malformed_plan_is_refused_with_its_first_fault_and_the_place_of_it() {
    for (marked, fault) in MALFORMED {
        check(marked, fault, |text| WaitPlan::parse(text).err());
        // The same plan as the first band of bands has the same fault in the same place.
        if !marked.contains(';') {
            check(marked, fault, |text| WaitBands::parse(text).err());
        }
    }
}

#[test]
fn each_malformed_band_is_refused_with_its_place_in_the_whole_text() {
    for (marked, fault) in MALFORMED_BANDS {
        check(marked, fault, |text| WaitBands::parse(text).err());
    }
}

#[test]
fn fields_stand_in_any_order_and_digits_may_have_leading_zeros() {
    let plan = WaitPlan::parse("flag:park_us=100,backstop_us=50000").unwrap();
    let park = Park::FlagWait { park_ns: 100_000, backstop_ns: 50_000_000 };
    assert_eq!(plan, WaitPlan { predict: None, park });
    assert_eq!(WaitPlan::parse("flag:backstop_us=050000,park_us=0000000000000000000100"), Ok(plan));
    assert_eq!("flag:park_us=100,backstop_us=50000".parse(), Ok(plan));
}

#[test]
fn the_ends_of_every_range_are_within_it() {
    let text = "flag:park_us=10000,backstop_us=1000000+predict:margin_us=18446744073709551,\
                min_sleep_us=18446744073709551,max_sleep_us=18446744073709551,window=16";
    assert_eq!(WaitPlan::parse(text).unwrap().label(), text);
    let text = "flag:park_us=1,backstop_us=1+predict:margin_us=0,min_sleep_us=0,max_sleep_us=0,\
                window=1";
    assert_eq!(WaitPlan::parse(text).unwrap().label(), text);
}

#[test]
fn a_long_text_is_quoted_up_to_200_characters_and_what_stood_there_up_to_40() {
    let exact = "ü".repeat(200);
    let error = WaitPlan::parse(&exact).unwrap_err();
    assert_eq!(error.args()[0], exact);
    assert_eq!(error.span(), Some(0..400));

    let error = WaitPlan::parse(&(exact.clone() + "x")).unwrap_err();
    assert_eq!(error.args()[0], exact + "…");
    let quoted = "ü".repeat(40) + "…";
    let fault = format!("park: expected block, poll, flag or spin, found \"{quoted}\"");
    assert_eq!(error.args()[1], fault);
}
