//! The device check itself, on the software device, on the test drivers, and on Vulkan where a device is.

use std::path::PathBuf;
use std::process::{Command, Output};

fn check(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_device-check")).args(args).output().unwrap()
}

fn library(name: &str) -> String {
    let path: PathBuf = driver_core::library(name);
    path.to_str().unwrap().to_string()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn every_case_is_run_on_a_whole_device() {
    let (cuda, hip) = (library("cuda_driver"), library("hip_driver"));
    let output =
        check(&["software", "cuda", "hip", "--cuda-library", &cuda, "--hip-library", &hip]);
    let told = told(&output);
    assert!(output.status.success(), "{told}");
    for sum in ["software: 5 run", "cuda: 12 run", "hip: 12 run"] {
        assert!(told.contains(sum), "{told}");
    }
}

#[test]
fn every_case_is_run_on_a_vulkan_device_and_else_none_is() {
    let output = check(&["vulkan"]);
    let told = told(&output);
    if told.contains("vulkan: skipped: everything: ") {
        let required = std::env::var("GPU_REQUIRE_VULKAN").is_ok_and(|value| value == "1");
        assert!(!required, "GPU_REQUIRE_VULKAN=1: {told}");
        assert_eq!(output.status.code(), Some(1), "{told}");
        return println!("skipped: {told}");
    }
    assert!(output.status.success() && told.contains(", 0 failed"), "{told}");
    for case in ["the start-up probe's store lands", "every plan ends", "a close frees everything"]
    {
        assert!(told.contains(&format!("vulkan: run: {case}")), "{told}");
    }
}

#[test]
fn an_unknown_backend_is_refused_before_anything_is_run() {
    let output = check(&["software", "metal"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{}", told(&output));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/device-check");
    let output = Command::new(script).args(["software", "metal"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{}", told(&output));
    assert!(told(&output).contains("unknown backend metal"), "{}", told(&output));
}

#[test]
fn a_backend_that_was_asked_for_and_ran_nothing_is_a_failure() {
    let output = check(&["cuda", "--cuda-library", "/no/such/libcuda.so.1"]);
    let told = told(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("cuda: skipped: everything: driver library /no/such/libcuda.so.1"),
        "{told}"
    );
    assert!(told.contains("it was asked for and ran nothing: FAILED"), "{told}");
}

#[test]
fn a_case_that_fails_is_a_failure() {
    let cuda = library("cuda_driver");
    let folder = std::env::temp_dir().join(format!("device-check-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let broken = folder.join("without.so");
    driver_core::without_symbol(&cuda, "cuStreamEndCapture", &broken).unwrap();
    let output = check(&["cuda", "--cuda-library", broken.to_str().unwrap()]);
    let told = told(&output);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("cuda: failed: open device 0"), "{told}");
}
