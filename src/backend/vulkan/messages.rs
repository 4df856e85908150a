//! The validation layer's messages.

use super::status;
use crate::core::error::Result;
use alloc::boxed::Box;
use alloc::sync::Arc;
use ash::{ext, vk};
use core::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Who hears the messages.
pub(super) type Sink = dyn Fn(&str) + Send + Sync;

/// A messenger and the listener it calls. Without [`destroy`](Self::destroy) both stay for good.
pub(super) struct Messages {
    calls: ext::debug_utils::Instance,
    messenger: vk::DebugUtilsMessengerEXT,
    /// From a box, which the messenger uses as long as it is there.
    sink: *mut Arc<Sink>,
}

// SAFETY: the sink may be called and dropped on any thread; the rest are handles and functions.
unsafe impl Send for Messages {}

impl Messages {
    /// A messenger of `instance`, which has `VK_EXT_debug_utils` enabled.
    pub(super) fn new(
        entry: &ash::Entry,
        instance: &ash::Instance,
        sink: Arc<Sink>,
    ) -> Result<Self> {
        use vk::{
            DebugUtilsMessageSeverityFlagsEXT as Severity, DebugUtilsMessageTypeFlagsEXT as Kind,
        };
        let calls = ext::debug_utils::Instance::new(entry, instance);
        let sink = Box::into_raw(Box::new(sink));
        let info = vk::DebugUtilsMessengerCreateInfoEXT::default()
            .message_severity(Severity::WARNING | Severity::ERROR)
            .message_type(Kind::GENERAL | Kind::VALIDATION | Kind::PERFORMANCE)
            .pfn_user_callback(Some(message))
            .user_data(sink.cast::<c_void>());
        // SAFETY: the instance is valid with the extension; the callback has the right type, and its data
        // lives until the messenger is destroyed.
        match unsafe { calls.create_debug_utils_messenger(&info, None) } {
            Ok(messenger) => Ok(Messages { calls, messenger, sink }),
            Err(result) => {
                // SAFETY: made above; no messenger knows it.
                drop(unsafe { Box::from_raw(sink) });
                Err(status::error("vkCreateDebugUtilsMessengerEXT", result))
            }
        }
    }

    /// Ends it.
    ///
    /// # Safety
    ///
    /// The instance is still there, and no Vulkan call of it is running.
    pub(super) unsafe fn destroy(self) {
        // SAFETY: promised by the caller; after the messenger is gone nobody uses the sink.
        unsafe {
            self.calls.destroy_debug_utils_messenger(self.messenger, None);
            drop(Box::from_raw(self.sink));
        }
    }
}

unsafe extern "system" fn message(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _kind: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    sink: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: Vulkan calls this with valid data and with the pointer that the messenger was made with, whose
    // box lives as long as the messenger. The sink is used through a shared reference only.
    let (data, sink) = unsafe { (&*data, &*sink.cast::<Arc<Sink>>()) };
    // SAFETY: the message is null or ends with a NUL, and lives as long as this call.
    let text = unsafe { data.message_as_c_str() };
    let text = text.unwrap_or(c"a message without text").to_string_lossy();
    // No panic may leave through the driver. What the sink leaves half done is the program's.
    let _ = catch_unwind(AssertUnwindSafe(|| sink(&text)));
    vk::FALSE
}
