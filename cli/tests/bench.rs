//! `gpu-wait bench` with very little work: what is reported, not how fast this machine is.

mod common;

use common::run;
use serde_json::Value;

const TINY: [&str; 5] = ["bench", "--work", "200us", "--waits", "5"];

fn tiny(more: &[&str]) -> common::Ran {
    run(&[&TINY, more].concat())
}

fn rows(json: &Value) -> &[Value] {
    json["rows"].as_array().unwrap()
}

#[test]
fn each_default_plan_has_a_row_with_every_figure() {
    for executor in ["naive", "gpu-reactor"] {
        let ran = tiny(&["--json", "--executor", executor]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        let json = ran.json();
        assert!(json["device_name"].is_null());
        assert_eq!((&json["device"], &json["executor"]), (&"software".into(), &executor.into()));
        assert_eq!((&json["work_ns"], &json["waits"]), (&200_000.into(), &5.into()));
        assert_eq!(
            (&json["warm_up"], &json["load"], &json["seed"]),
            (&5.into(), &0.into(), &1.into())
        );
        assert_eq!(json["jitter"], 0.05);

        let requested: Vec<_> =
            rows(&json).iter().map(|row| row["requested"].as_str().unwrap()).collect();
        assert_eq!(requested, gpu_wait::bench::DEFAULT_PLANS);
        for row in rows(&json) {
            let lateness = |name: &str| row["lateness_ns"][name].as_u64().unwrap();
            assert!(lateness("p50") <= lateness("p99") && lateness("p99") <= lateness("max"));
            assert!(lateness("p50") > 0 && lateness("max") < 10_000_000_000, "{row}");
            assert!(row["driver_calls"].as_f64().unwrap() >= 1.0, "{row}");
            let late = row["late_share"].as_f64().unwrap();
            assert!((0.0..=1.0).contains(&late), "{row}");
            if cfg!(target_os = "linux") {
                let cpu = row["cpu_share"].as_f64().unwrap();
                assert!((0.0..1.2).contains(&cpu), "{row}");
            }
            assert!(row["parks"].as_f64().unwrap() >= 0.0);
            assert_eq!((&row["backstops"], &row["filler_polls"]), (&0.into(), &0.0.into()));
            assert_eq!(row["filler_share"], 0.0);
        }
    }
}

#[test]
fn the_plans_asked_for_are_reported_in_their_order_and_fallbacks_warn_once() {
    let flag = "flag:park_us=50,backstop_us=1000";
    let json = tiny(&["--json", "--plan", flag, "--plan", "block", "--plan", flag]).json();
    let plans: Vec<_> = rows(&json).iter().map(|row| row["plan"].as_str().unwrap()).collect();
    let fallen = rows(&json)[0]["fallback"].as_bool().unwrap();
    if fallen {
        let label = format!("poll (fallback from {flag})");
        assert_eq!(plans, [&label, "block", &label]);
        assert_eq!(json["warnings"].as_array().unwrap().len(), 1);
        assert_eq!(json["warnings"][0]["code"], 2);
    } else {
        assert_eq!(plans, [flag, "block", flag]);
    }
    assert_eq!(rows(&json)[1]["fallback"], false);
    assert_eq!(rows(&json)[1]["driver_calls"], 1.0, "one blocking wait and nothing else");
}

#[test]
fn a_vulkan_device_is_measured_where_there_is_one_and_else_the_reason_is_told() {
    let plans = ["--plan", "block", "--plan", "spin:backstop_us=100000", "--device", "vulkan"];
    let ran = tiny(&[&["--json"], &plans[..]].concat());
    let required = std::env::var("GPU_REQUIRE_VULKAN").is_ok_and(|value| value == "1");
    if ran.code != 0 {
        let message = ran.json()["error"]["message"].as_str().unwrap().to_string();
        assert!(!required, "GPU_REQUIRE_VULKAN=1: {message}");
        assert_eq!((ran.code, message.is_empty()), (1, false));
        return println!("skipped: no Vulkan device that tells its time: {message}");
    }
    let json = ran.json();
    assert_eq!(json["device"], "vulkan");
    assert!(!json["device_name"].as_str().unwrap().is_empty());
    assert_eq!(rows(&json).len(), 2);
    for row in rows(&json) {
        assert_eq!((&row["fallback"], &row["backstops"]), (&false.into(), &0.into()), "{row}");
        let lateness = |name: &str| row["lateness_ns"][name].as_u64().unwrap();
        assert!(lateness("p50") <= lateness("p99") && lateness("p50") > 0, "{row}");
    }
    // One vkWaitSemaphores, and one look at the counter, since a lost device may end the wait as well.
    assert_eq!(rows(&json)[0]["driver_calls"], 2.0);
    let ran = tiny(&plans);
    assert!(ran.out.starts_with("5 waits a plan for work of 200us ± 5.0 % on the vulkan device ("));
    assert!(ran.out.contains("fills memory") && !ran.out.contains("software device"));
}

#[test]
fn a_spinning_wait_calls_the_driver_a_few_times_and_a_polling_one_all_the_time() {
    // Once the word is there the status is asked until it agrees, which is often if the device's
    // thread loses its core in between: the best of many.
    let plans = ["--plan", "spin:backstop_us=1000000", "--plan", "poll"];
    let measured = (0..20).any(|_| {
        let json = tiny(&[&["--json"], &plans[..]].concat()).json();
        let calls = |at: usize| rows(&json)[at]["driver_calls"].as_f64().unwrap();
        assert!(calls(0) >= 2.0, "a query and the store: {json}");
        calls(0) < 10.0 && calls(1) > 100.0
    });
    assert!(measured);
}

#[test]
fn tasks_beside_the_waits_get_something_done_unless_the_wait_blocks() {
    // On a machine whose cores are taken, work can be over before the first filler had its turn: the
    // best of many.
    let filled = (0..20).any(|_| {
        let json = tiny(&["--json", "--load", "3", "--plan", "block", "--plan", "poll"]).json();
        assert_eq!(json["load"], 3);
        assert_eq!(rows(&json)[0]["filler_polls"], 0.0);
        assert_eq!(rows(&json)[0]["filler_share"], 0.0);
        let poll = |figure: &str| rows(&json)[1][figure].as_f64().unwrap();
        poll("filler_polls") >= 3.0 && poll("filler_share") > 0.0
    });
    assert!(filled);
}

#[test]
fn the_table_has_the_rows_what_they_mean_and_the_warnings() {
    let plans = ["--plan", "poll", "--plan", "flag:park_us=50,backstop_us=1000"];
    let ran = tiny(&[&plans[..], &["--load", "1"]].concat());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let out = &ran.out;
    assert!(out.starts_with("5 waits a plan for work of 200us ± 5.0 % on the software device"));
    let header = out.lines().find(|line| line.contains("p99")).unwrap();
    let names: Vec<_> = header.split_whitespace().collect();
    assert_eq!(names.join(" "), "plan p50 us p99 us max us CPU calls parks late polls filled");
    assert!(out.lines().any(|line| line.starts_with("poll ")));
    assert_eq!(out.matches("warning: ").count(), out.matches("(fallback from").count());
    assert!(out.contains("\nlateness "));
    assert!(!out.contains('\x1b'));

    let quiet = tiny(&[&plans[..], &["--quiet"]].concat());
    assert!(!quiet.out.contains("warning") && !quiet.out.contains("\nlateness  "));
    assert!(quiet.out.lines().any(|line| line.starts_with("poll ")));
}

#[test]
fn every_executor_runs_or_falls_back_with_a_warning() {
    for executor in ["naive", "gpu-reactor", "io-uring"] {
        let json = tiny(&["--json", "--plan", "block", "--executor", executor]).json();
        if json["executor"] != executor {
            assert_eq!(json["executor"], "gpu-reactor (fallback from io-uring)");
            assert_eq!(json["warnings"][0]["code"], 3);
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_measured() {
    for (args, says) in [
        (&["--work", "0ms"][..], "too short: the shortest work is 1us"),
        (&["--work", "11s"], "too long: the longest work is 10s"),
        (&["--work", "2"], "expected a time such as 2ms or 200us"),
        (&["--work", "-2ms"], "expected a time such as 2ms or 200us"),
        (&["--jitter", "-5%"], "expected 0% to 100%"),
        (&["--jitter", "200%"], "expected 0% to 100%"),
        (&["--jitter", "5"], "expected a percentage such as 5%"),
        (&["--waits", "0"], "0 is not in 1..=1000000"),
        (&["--waits", "many"], "invalid digit"),
        (&["--load", "-1"], "-1 is not in 0..=10000"),
        (&["--load", "1", "--executor", "naive"], "--load needs --executor gpu-reactor"),
        (&["--device", "metal"], "software"),
        (&["--executor", "tokio"], "accepted are: naive, gpu-reactor, io-uring"),
        (&["--plan", "poll;rows>=4:block"], "park: expected"),
    ] {
        let ran = run(&[&["bench"], args].concat());
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}");
        assert!(ran.err.starts_with("error: ") && ran.err.contains(says), "{args:?}: {}", ran.err);
    }
}

#[test]
fn a_bad_plan_is_underlined_and_an_object_for_programs() {
    let ran = run(&["bench", "--plan", "poll", "--plan", "spin:backstop_us=x"]);
    let expected = "error: backstop_us: expected only digits, found \"x\"
  spin:backstop_us=x
                   ^
";
    assert_eq!((ran.code, ran.err.as_str()), (2, expected));
    let ran = run(&["bench", "--json", "--plan", "spin:backstop_us=x"]);
    assert_eq!((ran.code, ran.err.as_str()), (2, ""));
    assert_eq!(ran.json()["error"]["span"], serde_json::json!({"start": 17, "end": 18}));
    let ran = run(&["bench", "--json", "--executor", "tokio"]);
    assert_eq!((ran.code, &ran.json()["error"]["code"]), (2, &5.into()));
}
