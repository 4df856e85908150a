//! What only this module can reach: a slot whose numbers are nearly used up, and the recycling of
//! command buffers. Skipped, and said so, where no device is; `tests/vulkan` counts.

use super::VulkanDevice;
use super::record::LAST_NUMBER;
use crate::core::error::ErrorCode;
use crate::core::line::reached;
use crate::core::port::DeviceStream;
use alloc::vec::Vec;
use std::println;

fn device(test: &str) -> Option<VulkanDevice> {
    match VulkanDevice::open() {
        Ok(device) => Some(device),
        Err(error) => {
            let required = std::env::var("GPU_REQUIRE_VULKAN").is_ok_and(|value| value == "1");
            assert!(!required, "GPU_REQUIRE_VULKAN=1: {error}");
            println!("skipped: {test}: {error}");
            None
        }
    }
}

#[test]
fn a_slot_retires_before_its_number_needs_the_upper_half() {
    let Some(device) = device("a slot retires") else { return };
    let stream = device.stream_from(LAST_NUMBER - 2).unwrap();
    assert!(stream.query().unwrap(), "the semaphore goes on from the slot's number");
    let numbers = [stream.mark().unwrap(), stream.mark().unwrap()];
    assert_eq!(numbers, [LAST_NUMBER - 1, LAST_NUMBER]);
    stream.synchronize_mark(LAST_NUMBER).unwrap();
    assert!(reached((**stream.line()).as_ref(), stream.slot(), LAST_NUMBER));
    for _ in 0..2 {
        assert_eq!(stream.mark().unwrap_err().code(), ErrorCode::SlotExhausted);
    }
    // What was issued can still be asked about.
    assert!(stream.query().unwrap() && stream.query_mark(LAST_NUMBER).unwrap());
    let (line, slot) = (stream.line().clone(), stream.slot());
    drop(stream);
    let others: Vec<_> = (0..20).map(|_| device.stream().unwrap()).collect();
    let same = |other: &super::VulkanStream| {
        core::ptr::addr_eq((**other.line()).as_ref(), (*line).as_ref()) && other.slot() == slot
    };
    assert!(!others.iter().any(same), "used-up numbers are never handed out");
    assert_eq!(device.stats().exhausted, 1);
    drop((others, line));
    assert_eq!(device.close(), Ok(0));
}

#[test]
fn command_buffers_are_used_again_once_the_semaphore_has_passed_them() {
    let Some(device) = device("command buffers") else { return };
    let stream = device.stream().unwrap();
    for _ in 0..50 {
        stream.mark().unwrap();
        stream.synchronize().unwrap();
    }
    assert_eq!(stream.core().command_buffers(), 1);
    // Without a wait in between there are as many as are in flight at once.
    for _ in 0..50 {
        stream.mark().unwrap();
    }
    assert!(stream.core().command_buffers() <= 51);
    stream.synchronize().unwrap();
    drop(stream);
    let heir = device.stream().unwrap();
    assert!(heir.core().command_buffers() >= 1, "a dropped stream's commands are taken over");
    drop(heir);
    assert_eq!(device.close(), Ok(0));
}
