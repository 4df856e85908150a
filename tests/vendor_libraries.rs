//! The vendors' real libraries on a machine without a device: every entry point is found, and the answer
//! "no device" arrives as its named error. Run by `scripts/check-vendor-libraries`, which downloads them.
#![cfg(all(feature = "cuda", feature = "hip", target_os = "linux"))]

use gpu_async_reactor::backend::cuda::CudaDriver;
use gpu_async_reactor::backend::hip::HipDriver;
use gpu_async_reactor::{Error, ErrorCode};
use std::path::PathBuf;

fn library(variable: &str) -> PathBuf {
    std::env::var_os(variable).unwrap_or_else(|| panic!("{variable} names no library")).into()
}

/// The driver's status, which a library without one of the entry points would not come to.
fn assert_status(error: &Error, call: &str, number: i64, name: &str) {
    assert_eq!(error.code(), ErrorCode::Backend, "{error}");
    assert_eq!(error.status_number(), Some(number), "{error}");
    assert_eq!(error.to_string(), format!("{call}: {number} {name}"));
}

#[test]
#[ignore = "needs NVIDIA's library: scripts/check-vendor-libraries"]
fn the_cuda_driver_has_every_entry_point_and_says_that_there_is_no_device() {
    // SAFETY: the script names the vendor's own library.
    let error = unsafe { CudaDriver::load_from(&library("GPU_REAL_LIBCUDA")) }.unwrap_err();
    assert_status(&error, "cuInit", 100, "CUDA_ERROR_NO_DEVICE");
}

#[test]
#[ignore = "needs AMD's library: scripts/check-vendor-libraries"]
fn the_hip_runtime_has_every_entry_point_and_says_that_there_is_no_device() {
    // SAFETY: the script names the vendor's own library.
    let driver = unsafe { HipDriver::load_from(&library("GPU_REAL_LIBAMDHIP")) };
    match driver {
        Err(error) => assert_status(&error, "hipInit", 101, "hipErrorInvalidDevice"),
        Ok(driver) => {
            let error = driver.devices().unwrap_err();
            assert_status(&error, "hipGetDeviceCount", 100, "hipErrorNoDevice");
        }
    }
}
