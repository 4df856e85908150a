//! Results of Vulkan calls as errors, with their number and their name.

use crate::core::error::{Error, ErrorCode};
use alloc::format;
use alloc::string::String;
use ash::vk;

/// The error of `call` that failed with `result`.
#[cold]
pub(super) fn error(call: &str, result: vk::Result) -> Error {
    Error::status(call, i64::from(result.as_raw()), &format!("{result:?}"))
}

/// The device or its driver lacks `what`.
#[cold]
pub(super) fn unsupported(what: impl Into<String>, why: impl Into<String>) -> Error {
    Error::new(ErrorCode::Unsupported, [what.into(), why.into()])
}

/// The device was closed before `call`.
#[cold]
pub(super) fn closed(call: &str) -> Error {
    Error::new(ErrorCode::Closed, [call])
}

/// What was given to `call` is of another device.
#[cold]
pub(super) fn foreign(call: &str, what: &str) -> Error {
    Error::new(ErrorCode::ForeignContext, [call, what])
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_result_keeps_its_number_and_gets_its_name() {
        let lost = error("vkQueueSubmit", vk::Result::ERROR_DEVICE_LOST);
        assert_eq!(lost.status_number(), Some(-4));
        assert_eq!(lost.to_string(), "vkQueueSubmit: -4 ERROR_DEVICE_LOST");
        let unknown = error("vkQueueSubmit", vk::Result::from_raw(-77));
        assert_eq!(unknown.to_string(), "vkQueueSubmit: -77 -77");
    }
}
