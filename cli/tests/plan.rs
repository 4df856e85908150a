//! `gpu-wait plan`: what is said of good plans and of bad ones.

mod common;

use common::{command, finish, run};
use std::process::Stdio;

const FLAG: &str = "flag:park_us=50,backstop_us=1000";
const PREDICT: &str = "+predict:margin_us=80,min_sleep_us=100,max_sleep_us=20000,window=4";

/// What stands on standard error for a bad plan.
fn complaint(text: &str) -> String {
    let ran = run(&["plan", text]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{text}");
    ran.err
}

#[test]
fn every_field_is_said_in_words_with_its_value_and_unit() {
    let ran = run(&["plan", &format!("spin:backstop_us=1000{PREDICT}")]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let expected = "\
spin:backstop_us=1000+predict:margin_us=80,min_sleep_us=100,max_sleep_us=20000,window=4

  predict   sleeps until shortly before the predicted completion
    margin_us      80 us        the sleep ends this long before the prediction
    min_sleep_us   100 us       a shorter sleep is left out
    max_sleep_us   20000 us     the longest sleep
    window         4 samples    the prediction is the smallest of the last so many
  spin      reads the word that the device writes, in a loop without driver calls
    backstop_us    1000 us      the longest time between two status queries
  here      runs as it is
";
    assert_eq!(ran.out, expected);
}

#[test]
fn each_band_has_its_range_of_rows() {
    let ran = run(&["plan", "block;rows>=1:poll;rows>=64:spin:backstop_us=5"]);
    let headings: Vec<_> = ran.out.lines().filter(|line| line.contains(" rows")).collect();
    assert_eq!(headings, ["0 rows", "1 to 63 rows", "64 rows or more"]);
}

#[test]
fn a_plan_that_cannot_run_here_says_what_runs_instead_and_why() {
    let json = run(&["plan", FLAG, "--json"]).json();
    let ran = run(&["plan", FLAG]);
    assert_eq!(ran.code, 0, "a fallback is no failure");
    if json["running"] == FLAG {
        assert!(ran.out.contains("runs as it is"));
    } else {
        assert!(ran.out.contains("  here      poll runs instead\n"), "{}", ran.out);
        assert!(ran.out.contains("\nwarning: wait plan flag:"), "{}", ran.out);
        assert!(ran.out.contains("needs device_word_wait, which is missing ("), "{}", ran.out);
    }
}

#[test]
fn the_object_has_each_field_of_each_band() {
    let json = run(&["plan", "--json", &format!("poll{PREDICT};rows>=8:block")]).json();
    assert_eq!(json["requested"], format!("poll{PREDICT};rows>=8:block"));
    assert_eq!(json["running"], json["requested"]);
    assert_eq!(json["warnings"], serde_json::json!([]));
    let bands = json["bands"].as_array().unwrap();
    assert_eq!(bands.len(), 2);
    assert_eq!((&bands[0]["rows_from"], &bands[0]["rows_to"]), (&0.into(), &7.into()));
    assert_eq!(bands[0]["park"], "poll");
    let window = &bands[0]["predict_fields"][3];
    assert_eq!((&window["name"], &window["value"]), (&"window".into(), &4.into()));
    assert_eq!(window["unit"], "samples");
    assert!(bands[1]["rows_to"].is_null() && bands[1]["predict_fields"].is_null());
    assert_eq!((&bands[1]["requested"], &bands[1]["running"]), (&"block".into(), &"block".into()));
}

#[test]
fn a_fault_is_underlined_under_the_text() {
    for (text, expected) in [
        (
            "flag:park_us=50,backstop_us=2s",
            "error: backstop_us: expected only digits, found \"2s\"
  flag:park_us=50,backstop_us=2s
                              ^^
",
        ),
        (
            "spin:backstop_us=0",
            "error: backstop_us: expected 1 to 1000000, found \"0\"
  spin:backstop_us=0
                   ^
",
        ),
        (
            "",
            "error: park: expected block, poll, flag or spin, found nothing
  \n  ^
",
        ),
        (
            "flag:park_us=50",
            "error: backstop_us: expected the field, found nothing
  flag:park_us=50
                 ^
",
        ),
        (
            "-poll",
            "error: park: expected block, poll, flag or spin, found \"-poll\"
  -poll
  ^^^^^
",
        ),
        (
            "poll;rows>=8:待つ:1",
            "error: park: expected block, poll, flag or spin, found \"待つ\"
  poll;rows>=8:待つ:1
               ^^^^
",
        ),
        (
            "spin:backstop_us=\u{b5}\u{b5}9",
            "error: backstop_us: expected only digits, found \"µµ9\"
  spin:backstop_us=µµ9
                   ^^^
",
        ),
        (
            "poll\x1b[31m",
            "error: park: expected block, poll, flag or spin, found \"poll␛[31m\"
  poll␛[31m
  ^^^^^^^^^
",
        ),
    ] {
        assert_eq!(complaint(text), expected, "{text:?}");
    }
}

#[test]
fn a_long_text_is_shown_around_its_fault() {
    let text = format!("spin:backstop_us={}x{}", "1".repeat(50_000), "2".repeat(50_000));
    let complaint = complaint(&text);
    let lines: Vec<_> = complaint.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|line| line.chars().count() <= 140), "{complaint}");
    assert!(lines[1].starts_with("  spin:backstop_us=111") && lines[1].ends_with('…'));
    assert!(lines[2].starts_with(&format!("  {}^^^", " ".repeat(17))));

    let late = format!("poll;rows>={}:poll;;", "0".repeat(300) + "5");
    let complaint = run(&["plan", &late]).err;
    let lines: Vec<_> = complaint.lines().collect();
    assert!(lines[1].starts_with("  …000") && lines[1].ends_with("5:poll;;"), "{complaint}");
    assert_eq!(lines[2].chars().count(), lines[1].chars().count(), "the plan before the last ;");
}

#[test]
fn a_bad_plan_is_an_object_for_programs() {
    let ran = run(&["plan", "--json", "poll:é"]);
    assert_eq!((ran.code, ran.err.as_str()), (2, ""));
    let error = &ran.json()["error"];
    assert_eq!((&error["code"], &error["text"]), (&1.into(), &"poll:é".into()));
    assert_eq!(error["span"], serde_json::json!({"start": 4, "end": 7}), "bytes");
    assert!(error["message"].as_str().unwrap().starts_with("invalid wait plan \"poll:é\": poll: "));
}

#[test]
fn styles_are_for_those_who_want_them() {
    let styled = |variables: &[(&str, &str)]| {
        let ran = finish(command(&["plan", "x"]).envs(variables.iter().copied()));
        ran.err.contains('\x1b')
    };
    assert!(!styled(&[]), "no terminal");
    assert!(styled(&[("CLICOLOR_FORCE", "1")]));
    assert!(!styled(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    let mut command = command(&["plan", "poll"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
}
