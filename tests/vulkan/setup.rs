//! A device under the validation layer, and what the cases queue on it.

use gpu_async_reactor::backend::vulkan::ash::vk;
use gpu_async_reactor::backend::vulkan::{
    Submission, VulkanBuffer, VulkanDevice, VulkanDeviceBuilder, VulkanStream,
};
use gpu_async_reactor::host::{ParkPolicy, StdClock, StdIdle};
use gpu_async_reactor::{DeviceStream, DurNs, Result, WaitPlan, reached};
use std::sync::{Arc, Mutex};

/// Why no case can run here.
pub fn missing() -> Option<String> {
    let listed = match VulkanDevice::builder().list() {
        Err(error) => return Some(error.to_string()),
        Ok(listed) => listed,
    };
    match listed.iter().find(|device| device.usable.is_ok()) {
        None => Some(format!("no device that can be used among {listed:?}")),
        Some(_) => {
            let validated = VulkanDevice::builder().validation(|_| {}).open();
            validated.map(|device| assert_eq!(device.close(), Ok(0))).err().map(|e| e.to_string())
        }
    }
}

/// A device whose validation messages fail the case.
pub struct Checked {
    device: VulkanDevice,
    messages: Messages,
    may_leak: bool,
}

#[derive(Clone, Default)]
pub struct Messages(Arc<Mutex<Vec<String>>>);

impl Messages {
    pub fn builder(&self) -> VulkanDeviceBuilder {
        let messages = self.0.clone();
        VulkanDevice::builder().validation(move |text| {
            eprintln!("validation: {text}");
            messages.lock().unwrap().push(text.to_string());
        })
    }

    pub fn assert_none(&self) {
        let messages = self.0.lock().unwrap();
        assert!(messages.is_empty(), "{} validation message(s)", messages.len());
    }
}

pub fn device() -> Checked {
    device_by(|builder| builder)
}

pub fn device_by(set: impl FnOnce(VulkanDeviceBuilder) -> VulkanDeviceBuilder) -> Checked {
    let messages = Messages::default();
    let device = set(messages.builder()).open().unwrap();
    Checked { device, messages, may_leak: false }
}

impl std::ops::Deref for Checked {
    type Target = VulkanDevice;

    fn deref(&self) -> &VulkanDevice {
        &self.device
    }
}

impl Checked {
    /// The case leaves something behind on purpose.
    pub fn leaks(&mut self) {
        self.may_leak = true;
    }
}

/// Everything was dropped before this: the end frees all of it, and the layer, which looks for what was
/// left at `vkDestroyDevice`, has nothing to say.
impl Drop for Checked {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        if !self.may_leak {
            assert_eq!(self.device.close(), Ok(0), "{:?}", self.device.stats());
        }
        self.messages.assert_none();
    }
}

pub fn plan(text: &str) -> WaitPlan {
    WaitPlan::parse(text).unwrap()
}

pub fn idle() -> StdIdle {
    StdIdle::with(StdClock::new(), ParkPolicy::default())
}

/// Whether the word of `number` is there.
pub fn seen(stream: &VulkanStream, number: u64) -> bool {
    reached((**stream.line()).as_ref(), stream.slot(), number)
}

/// Work that takes about `ms` milliseconds or more, as fills of 16 MiB measured once.
pub fn busy(device: &VulkanDevice, stream: &VulkanStream, ms: u64) -> VulkanBuffer {
    let buffer = device.buffer(16 << 20).unwrap();
    let began = std::time::Instant::now();
    stream.fill(&buffer, 1, 1).unwrap();
    stream.synchronize().unwrap();
    let one = began.elapsed().as_nanos().max(1) as u64;
    let times = (ms * 1_000_000).div_ceil(one).clamp(1, 1_000);
    stream.fill(&buffer, 2, times as u32).unwrap();
    buffer
}

/// A timeline semaphore of the test's own that holds the queue up until it is opened. Left alone, it goes with
/// its device, which is leaked in these cases.
pub struct Gate<'d> {
    device: &'d VulkanDevice,
    semaphore: vk::Semaphore,
}

impl<'d> Gate<'d> {
    pub fn new(device: &'d VulkanDevice) -> Self {
        let mut kind =
            vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the device has timeline semaphores, which it was opened with.
        let semaphore = unsafe { device.raw().create_semaphore(&info, None) }.unwrap();
        Gate { device, semaphore }
    }

    /// Queues the wait for the gate: nothing behind it on the queue runs before it is opened.
    pub fn hold(&self, stream: &VulkanStream) -> Result<u64> {
        let waits = [(self.semaphore, 1, vk::PipelineStageFlags::ALL_COMMANDS)];
        let work = Submission { waits: &waits, ..Submission::default() };
        // SAFETY: the semaphore is of the same device and is destroyed after the queue is idle.
        unsafe { stream.submit(&work) }
    }

    pub fn open(&self) {
        let info = vk::SemaphoreSignalInfo::default().semaphore(self.semaphore).value(1);
        // SAFETY: the semaphore is a timeline one at 0, and only the host signals it, once.
        unsafe { self.device.raw().signal_semaphore(&info) }.unwrap();
    }

    /// Waits for the queue and destroys the semaphore.
    pub fn end(self) {
        self.device.queue().with(|queue| {
            // SAFETY: the queue is the case's alone under its lock; after it nothing uses the semaphore.
            unsafe {
                self.device.raw().queue_wait_idle(queue).unwrap();
                self.device.raw().destroy_semaphore(self.semaphore, None);
            }
        });
    }
}

pub const BOUND: DurNs = DurNs::from_us(100);
pub const PARKS: [&str; 3] = ["poll", "spin:backstop_us=2000", "flag:park_us=100,backstop_us=2000"];
