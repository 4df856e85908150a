//! What the tool says of itself.

mod common;

use common::run;

#[test]
fn help_has_examples_that_run() {
    for command in ["plan", "bench"] {
        let ran = run(&[command, "--help"]);
        assert_eq!(ran.code, 0);
        assert!(ran.out.contains("Examples:\n  gpu-wait "), "{}", ran.out);
    }
    let plans = run(&["plan", "--help"]).out;
    let examples: Vec<_> =
        plans.lines().filter_map(|line| line.strip_prefix("  gpu-wait plan ")).collect();
    assert!(examples.len() >= 3);
    for example in examples {
        let args: Vec<_> = example.split(' ').map(|word| word.trim_matches('\'')).collect();
        assert_eq!(run(&[&["plan"], &args[..]].concat()).code, 0, "{example}");
    }
}

#[test]
fn the_exit_codes_are_documented_and_a_version_is_there() {
    assert!(run(&["--help"]).out.contains("Exit codes:\n  0 "));
    assert_eq!(run(&["--version"]).out, format!("gpu-wait {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(run(&[]).code, 2);
    assert_eq!(run(&["wait"]).code, 2);
}
