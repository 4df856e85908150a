//! A real device some of whose functions fail when they are told to.
//!
//! The functions of a device are pointers in a table that `ash` fills; here the table is filled with
//! functions that look for a rule first and call the real one otherwise. The backend gets the table by
//! `VulkanDevice::from_raw`, as a program's own device. Cases run one at a time, so that the rules can be
//! static.

use crate::setup::Messages;
use gpu_async_reactor::backend::vulkan::ash::vk;
use gpu_async_reactor::backend::vulkan::{QueueLock, RawDevice, VulkanDevice, ash};
use std::collections::HashMap;
use std::ffi::c_void;
use std::mem::transmute;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The next call but `skip` of a function returns `result` instead of being made; so do all later
/// ones where it is `lasting`.
struct Rule {
    call: &'static str,
    skip: u32,
    result: vk::Result,
    lasting: bool,
}

static RULE: Mutex<Option<Rule>> = Mutex::new(None);
static REAL: Mutex<Option<HashMap<&'static str, usize>>> = Mutex::new(None);
/// What every counter shows; 0 for the truth.
static FORGED: AtomicU64 = AtomicU64::new(0);

/// Whether stores into words are lost.
static LOSING: AtomicBool = AtomicBool::new(false);

/// From now on no recorded store does anything.
pub fn lose_stores() {
    LOSING.store(true, Ordering::SeqCst);
}

pub fn fail(call: &'static str, skip: u32, result: vk::Result) {
    *RULE.lock().unwrap() = Some(Rule { call, skip, result, lasting: false });
}

pub fn fail_always(call: &'static str, result: vk::Result) {
    *RULE.lock().unwrap() = Some(Rule { call, skip: 0, result, lasting: true });
}

pub fn forge_counters(value: u64) {
    FORGED.store(value, Ordering::SeqCst);
}

/// Nothing fails any more. Says whether a rule was still waiting for its call.
pub fn repair() -> bool {
    FORGED.store(0, Ordering::SeqCst);
    LOSING.store(false, Ordering::SeqCst);
    RULE.lock().unwrap().take().is_some_and(|rule| !rule.lasting)
}

fn intercept(call: &str) -> Option<vk::Result> {
    let mut rule = RULE.lock().unwrap();
    let found = rule.as_mut().filter(|rule| rule.call == call)?;
    if found.skip > 0 {
        found.skip -= 1;
        return None;
    }
    let result = found.result;
    if !found.lasting {
        *rule = None;
    }
    Some(result)
}

fn real(call: &str) -> usize {
    REAL.lock().unwrap().as_ref().expect("a device was broken")[call]
}

macro_rules! functions {
    ($($call:literal $name:ident($($arg:ident: $kind:ty),*);)*) => {
        $(
            unsafe extern "system" fn $name($($arg: $kind),*) -> vk::Result {
                if let Some(result) = intercept($call) {
                    return result;
                }
                type Real = unsafe extern "system" fn($($kind),*) -> vk::Result;
                // SAFETY: the address is that of this function, as the device's driver gave it.
                let real = unsafe { transmute::<usize, Real>(real($call)) };
                // SAFETY: the arguments are the caller's.
                unsafe { real($($arg),*) }
            }
        )*

        /// The functions that can fail.
        pub const CALLS: &[&str] = &[$($call),*];

        fn replacement(call: &str) -> Option<(&'static str, *const c_void)> {
            match call {
                $($call => Some(($call, $name as *const c_void)),)*
                _ => None,
            }
        }
    };
}

type Alloc = *const vk::AllocationCallbacks<'static>;

functions! {
    "vkCreateSemaphore" create_semaphore(device: vk::Device, info: *const vk::SemaphoreCreateInfo<'_>, alloc: Alloc, out: *mut vk::Semaphore);
    "vkCreateCommandPool" create_command_pool(device: vk::Device, info: *const vk::CommandPoolCreateInfo<'_>, alloc: Alloc, out: *mut vk::CommandPool);
    "vkAllocateCommandBuffers" allocate_command_buffers(device: vk::Device, info: *const vk::CommandBufferAllocateInfo<'_>, out: *mut vk::CommandBuffer);
    "vkBeginCommandBuffer" begin_command_buffer(buffer: vk::CommandBuffer, info: *const vk::CommandBufferBeginInfo<'_>);
    "vkEndCommandBuffer" end_command_buffer(buffer: vk::CommandBuffer);
    "vkQueueSubmit" queue_submit(queue: vk::Queue, count: u32, infos: *const vk::SubmitInfo<'_>, fence: vk::Fence);
    "vkQueueWaitIdle" queue_wait_idle(queue: vk::Queue);
    "vkCreateBuffer" create_buffer(device: vk::Device, info: *const vk::BufferCreateInfo<'_>, alloc: Alloc, out: *mut vk::Buffer);
    "vkAllocateMemory" allocate_memory(device: vk::Device, info: *const vk::MemoryAllocateInfo<'_>, alloc: Alloc, out: *mut vk::DeviceMemory);
    "vkBindBufferMemory" bind_buffer_memory(device: vk::Device, buffer: vk::Buffer, memory: vk::DeviceMemory, offset: u64);
    "vkMapMemory" map_memory(device: vk::Device, memory: vk::DeviceMemory, offset: u64, size: u64, flags: vk::MemoryMapFlags, out: *mut *mut c_void);
    "vkWaitSemaphores" wait_semaphores(device: vk::Device, info: *const vk::SemaphoreWaitInfo<'_>, timeout: u64);
    "vkGetSemaphoreCounterValue" get_semaphore_counter_value(device: vk::Device, semaphore: vk::Semaphore, out: *mut u64);
}

unsafe extern "system" fn counter(
    device: vk::Device,
    semaphore: vk::Semaphore,
    out: *mut u64,
) -> vk::Result {
    match FORGED.load(Ordering::SeqCst) {
        // SAFETY: the arguments are the caller's.
        0 => unsafe { get_semaphore_counter_value(device, semaphore, out) },
        forged => {
            // SAFETY: the caller's place for the value.
            unsafe { out.write(forged) };
            vk::Result::SUCCESS
        }
    }
}

unsafe extern "system" fn update(
    buffer: vk::CommandBuffer,
    target: vk::Buffer,
    offset: u64,
    size: u64,
    data: *const c_void,
) {
    type Real = unsafe extern "system" fn(vk::CommandBuffer, vk::Buffer, u64, u64, *const c_void);
    if !LOSING.load(Ordering::SeqCst) {
        // SAFETY: the address is that of this function, as the device's driver gave it.
        let real = unsafe { transmute::<usize, Real>(real("vkCmdUpdateBuffer")) };
        // SAFETY: the arguments are the caller's.
        unsafe { real(buffer, target, offset, size, data) }
    }
}

/// A device that can be broken, over one that this backend opened.
pub struct Broken {
    pub device: VulkanDevice,
    base: VulkanDevice,
    pub messages: Messages,
}

impl Broken {
    pub fn new() -> Self {
        Self::locked_by(None)
    }

    /// One whose queue is used under the program's own lock.
    pub fn locked_by(lock: Option<Arc<dyn QueueLock>>) -> Self {
        repair();
        let messages = Messages::default();
        let base = messages.builder().open().unwrap();
        let (instance, handle) = (base.raw_instance().clone(), base.raw().handle());
        let mut found = HashMap::new();
        let load = |name: &std::ffi::CStr| {
            // SAFETY: the device is valid and of the instance; the name ends with a NUL.
            let real = unsafe { instance.get_device_proc_addr(handle, name.as_ptr()) };
            let real = real.map_or(std::ptr::null(), |real| real as *const c_void);
            if name == c"vkCmdUpdateBuffer" {
                found.insert("vkCmdUpdateBuffer", real.expose_provenance());
                return update as *const c_void;
            }
            match replacement(name.to_str().unwrap()) {
                Some(("vkGetSemaphoreCounterValue", _)) => {
                    found.insert("vkGetSemaphoreCounterValue", real.expose_provenance());
                    counter as *const c_void
                }
                Some((call, replacement)) => {
                    found.insert(call, real.expose_provenance());
                    replacement
                }
                None => real,
            }
        };
        // SAFETY: each function has the type of its name, the replaced ones included.
        let device = unsafe { ash::Device::load_with(load, handle) };
        *REAL.lock().unwrap() = Some(found);
        let raw = RawDevice {
            instance: base.raw_instance().clone(),
            physical_device: base.raw_physical_device(),
            device,
            queue: base.queue().with(|queue| queue),
            queue_family: base.queue().family(),
            lock,
        };
        // SAFETY: the handles are those of `base`, which has no stream and is closed after this device,
        // or never.
        let device = unsafe { VulkanDevice::from_raw(raw) }.unwrap();
        Broken { device, base, messages }
    }

    /// The device is repaired and nothing on it was lost: everything can be freed.
    pub fn end(self) {
        assert_eq!(self.device.close(), Ok(0), "{:?}", self.device.stats());
        assert_eq!(self.base.close(), Ok(0));
        self.messages.assert_none();
    }
}
