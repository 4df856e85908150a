//! Opening the loader, an instance and a device.

use super::clock::DeviceClock;
use super::device::VulkanDevice;
use super::gpu::{Gpu, name_of};
use super::messages::{Messages, Sink};
use super::queue::VulkanQueue;
use super::status::{self, unsupported};
use crate::core::error::{Error, ErrorCode, Result};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::{ext, khr, vk};
use core::ffi::CStr;
use core::fmt;
use std::ffi::OsString;

/// How a [`VulkanDevice`] is opened.
#[derive(Clone)]
pub struct VulkanDeviceBuilder {
    library: Option<OsString>,
    choice: Choice,
    sink: Option<Arc<Sink>>,
    timestamps: bool,
}

#[derive(Clone, Debug)]
enum Choice {
    First,
    Index(usize),
    Name(String),
}

/// A physical device, as [`VulkanDeviceBuilder::list`] finds it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct VulkanDeviceInfo {
    /// For [`VulkanDeviceBuilder::index`].
    pub index: usize,
    /// As the driver gives it.
    pub name: String,
    /// The kind of device: discrete, integrated, virtual, software or other.
    pub kind: &'static str,
    /// The version of Vulkan: major, minor, patch.
    pub api: (u32, u32, u32),
    /// The driver's version, a number of the driver's own.
    pub driver: u32,
    /// Why it cannot be opened, where it cannot.
    pub usable: Result<()>,
}

/// What this backend made and destroys: the device, the messenger, the instance.
pub(super) struct Owned {
    messages: Option<Messages>,
}

impl Owned {
    /// Destroys them.
    ///
    /// # Safety
    ///
    /// Everything else that was made of the device is destroyed, nothing runs on it, and no handle of it is
    /// used any more.
    pub(super) unsafe fn destroy(self, gpu: &Gpu) {
        // SAFETY: promised by the caller; the messenger is of the instance and goes before it.
        unsafe {
            gpu.device.destroy_device(None);
            if let Some(messages) = self.messages {
                messages.destroy();
            }
            gpu.instance.destroy_instance(None);
        }
    }
}

impl VulkanDeviceBuilder {
    pub(super) fn new() -> Self {
        let choice = Choice::First;
        VulkanDeviceBuilder { library: None, choice, sink: None, timestamps: false }
    }

    /// Opens this library instead of the system's loader (`libvulkan.so.1`, `vulkan-1.dll`,
    /// `libvulkan.dylib`).
    #[must_use]
    pub fn library(mut self, path: impl Into<OsString>) -> Self {
        self.library = Some(path.into());
        self
    }

    /// Chooses the device at `index` of [`list`](Self::list).
    #[must_use]
    pub fn index(mut self, index: usize) -> Self {
        self.choice = Choice::Index(index);
        self
    }

    /// Chooses the first device whose name has `part` in it, upper and lower case alike.
    #[must_use]
    pub fn named(mut self, part: impl Into<String>) -> Self {
        self.choice = Choice::Name(part.into());
        self
    }

    /// Puts the validation layer (`VK_LAYER_KHRONOS_validation`) below, and hands its warnings and errors to
    /// `sink`, for development: every call then costs microseconds.
    ///
    /// `sink` is called within Vulkan calls, on whatever thread made them, with locks of this backend
    /// held: it must not use the device. Its panics are caught and dropped.
    #[must_use]
    pub fn validation(mut self, sink: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.sink = Some(Arc::new(sink));
        self
    }

    /// Lets the device write its time at each mark, for
    /// [`VulkanStream::completed_at`](super::VulkanStream::completed_at). Costs each mark two more commands.
    #[must_use]
    pub fn timestamps(mut self, on: bool) -> Self {
        self.timestamps = on;
        self
    }

    /// The physical devices of the loader, in its order.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), but for those of a single device.
    pub fn list(&self) -> Result<Vec<VulkanDeviceInfo>> {
        let entry = self.load()?;
        let (instance, messages) = make_instance(&entry, None)?;
        debug_assert!(messages.is_none());
        let listed = physical_devices(&instance).map(|found| {
            found
                .iter()
                .enumerate()
                .map(|(index, &device)| info(&instance, index, device))
                .collect()
        });
        // SAFETY: made here, and nothing was made of it.
        unsafe { instance.destroy_instance(None) };
        listed
    }

    /// Opens the device.
    ///
    /// Costs what the driver takes to start, typically 10 to 100 ms. The loader and the drivers are
    /// never unloaded, since their threads may outlive a device.
    ///
    /// # Errors
    ///
    /// - [`LibraryMissing`](ErrorCode::LibraryMissing), [`SymbolMissing`](ErrorCode::SymbolMissing) for
    ///   the loader.
    /// - [`Unsupported`](ErrorCode::Unsupported) without a device, without the one that was chosen, or where it
    ///   lacks Vulkan 1.2, timeline semaphores, a queue, coherent memory, or what else was asked for.
    /// - A [`Backend`](ErrorCode::Backend) error with the number and name of a failed call's result.
    pub fn open(self) -> Result<VulkanDevice> {
        let entry = self.load()?;
        let (instance, messages) = make_instance(&entry, self.sink.clone())?;
        match self.open_on(&entry, &instance) {
            Ok(gpu) => Ok(VulkanDevice::over(gpu, Some(Owned { messages }))),
            Err(error) => {
                // SAFETY: made here; the device, if it was made, is destroyed again.
                unsafe {
                    if let Some(messages) = messages {
                        messages.destroy();
                    }
                    instance.destroy_instance(None);
                }
                Err(error)
            }
        }
    }

    fn load(&self) -> Result<ash::Entry> {
        // SAFETY: loading runs the initialisers of the system's Vulkan loader, or of the library that
        // the program named, which it thereby trusts; what is loaded has the loader's ABI.
        let entry = unsafe {
            match &self.library {
                Some(path) => ash::Entry::load_from(path),
                None => ash::Entry::load(),
            }
        };
        let entry = entry.map_err(|error| {
            let name =
                self.library.as_ref().map_or("libvulkan".into(), |path| path.to_string_lossy());
            match error {
                ash::LoadingError::LibraryLoadFailure(why) => {
                    Error::new(ErrorCode::LibraryMissing, [name.as_ref(), &why.to_string()])
                }
                ash::LoadingError::MissingEntryPoint(_) => {
                    Error::new(ErrorCode::SymbolMissing, [name.as_ref(), "vkGetInstanceProcAddr"])
                }
            }
        })?;
        // Never unloaded: a count of the library is kept for good.
        core::mem::forget(entry.clone());
        // SAFETY: the entry was loaded just now.
        let version = unsafe { entry.try_enumerate_instance_version() }
            .map_err(|result| status::error("vkEnumerateInstanceVersion", result))?;
        match version {
            Some(version) if vk::api_version_minor(version) >= 1 => Ok(entry),
            _ => Err(unsupported("a device of Vulkan 1.2", "the loader is of Vulkan 1.0")),
        }
    }

    fn open_on(&self, entry: &ash::Entry, instance: &ash::Instance) -> Result<Gpu> {
        let found = physical_devices(instance)?;
        let physical = self.choose(instance, &found)?;
        // SAFETY: the physical device is one of the instance.
        let properties = unsafe { instance.get_physical_device_properties(physical) };
        check(instance, physical)?;
        let (family, stamp_bits) = queue_family(instance, physical, &properties)?;
        let extensions = self.extensions(entry, instance, physical, stamp_bits)?;
        let priorities = [1.0];
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(family)
            .queue_priorities(&priorities)];
        let mut timeline =
            vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
        let create = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .push_next(&mut timeline);
        // SAFETY: the family is one of the device's with at least one queue; the feature and the
        // extensions were found to be there.
        let device = unsafe { instance.create_device(physical, &create, None) }
            .map_err(|result| status::error("vkCreateDevice", result))?;
        // SAFETY: the device was made with one queue of this family.
        let queue = unsafe { device.get_device_queue(family, 0) };
        let queue = VulkanQueue::new(queue, family, None);
        let clock = (self.timestamps).then(|| {
            let period = properties.limits.timestamp_period;
            // SAFETY: the extension is enabled, and its domains and the bits of the queue were checked.
            unsafe { DeviceClock::new(instance, &device, period, stamp_bits) }
        });
        // SAFETY: all of these were made here and belong together; they are destroyed by the last
        // `close`, or leaked.
        unsafe { Gpu::new(instance.clone(), physical, device.clone(), queue, clock) }
            // SAFETY: made above; nothing was made of it.
            .inspect_err(|_| unsafe { device.destroy_device(None) })
    }

    fn choose(
        &self,
        instance: &ash::Instance,
        found: &[vk::PhysicalDevice],
    ) -> Result<vk::PhysicalDevice> {
        if found.is_empty() {
            return Err(unsupported("a Vulkan device", "the loader knows of no device"));
        }
        // SAFETY: the physical devices are those of the instance.
        let properties = |&device: &vk::PhysicalDevice| unsafe {
            instance.get_physical_device_properties(device)
        };
        let among = || {
            let names: Vec<_> = found.iter().map(|device| name_of(&properties(device))).collect();
            format!("there are: {}", names.join(", "))
        };
        match &self.choice {
            Choice::Index(index) => found
                .get(*index)
                .copied()
                .ok_or_else(|| unsupported(format!("Vulkan device {index}"), among())),
            Choice::Name(part) => found
                .iter()
                .find(|device| {
                    let name = name_of(&properties(device)).to_lowercase();
                    name.contains(&part.to_lowercase())
                })
                .copied()
                .ok_or_else(|| unsupported(format!("a Vulkan device named {part}"), among())),
            Choice::First => {
                let usable = found.iter().filter(|device| check(instance, **device).is_ok());
                let best = usable.min_by_key(|device| rank(properties(device).device_type));
                // Where none is usable, the first one's reason is told.
                Ok(best.copied().unwrap_or(found[0]))
            }
        }
    }

    /// The extensions that the device is made with.
    fn extensions(
        &self,
        entry: &ash::Entry,
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        stamp_bits: u32,
    ) -> Result<Vec<*const core::ffi::c_char>> {
        // SAFETY: the physical device is one of the instance.
        let there = unsafe { instance.enumerate_device_extension_properties(physical) }
            .map_err(|result| status::error("vkEnumerateDeviceExtensionProperties", result))?;
        let has = |name: &CStr| there.iter().any(|it| it.extension_name_as_c_str() == Ok(name));
        let mut names = Vec::new();
        // A device that translates to another interface says so, and must then be told that it may.
        if has(khr::portability_subset::NAME) {
            names.push(khr::portability_subset::NAME.as_ptr());
        }
        if self.timestamps {
            let missing = |why| Err(unsupported("the device's time of a mark", why));
            if !cfg!(target_os = "linux") {
                return missing("it is known on Linux alone, where the clocks are the same");
            }
            if stamp_bits == 0 {
                return missing("the queue writes no timestamps");
            }
            let calibrated = ext::calibrated_timestamps::NAME;
            if !has(calibrated) || !has_clocks(entry, instance, physical)? {
                return missing("VK_EXT_calibrated_timestamps with CLOCK_MONOTONIC is not there");
            }
            names.push(calibrated.as_ptr());
        }
        Ok(names)
    }
}

impl fmt::Debug for VulkanDeviceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VulkanDeviceBuilder")
            .field("library", &self.library)
            .field("choice", &self.choice)
            .field("validation", &self.sink.is_some())
            .field("timestamps", &self.timestamps)
            .finish()
    }
}

/// An instance, with a messenger where somebody listens.
fn make_instance(
    entry: &ash::Entry,
    sink: Option<Arc<Sink>>,
) -> Result<(ash::Instance, Option<Messages>)> {
    // SAFETY: the entry is loaded, for this and the next call.
    let there = unsafe { entry.enumerate_instance_extension_properties(None) }
        .map_err(|result| status::error("vkEnumerateInstanceExtensionProperties", result))?;
    let has = |name: &CStr| there.iter().any(|it| it.extension_name_as_c_str() == Ok(name));
    let (mut layers, mut extensions) = (Vec::new(), Vec::new());
    let mut flags = vk::InstanceCreateFlags::empty();
    if has(khr::portability_enumeration::NAME) {
        extensions.push(khr::portability_enumeration::NAME.as_ptr());
        flags |= vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR;
    }
    if sink.is_some() {
        // SAFETY: as above.
        let known = unsafe { entry.enumerate_instance_layer_properties() }
            .map_err(|result| status::error("vkEnumerateInstanceLayerProperties", result))?;
        const LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";
        if !known.iter().any(|layer| layer.layer_name_as_c_str() == Ok(LAYER)) {
            return Err(unsupported("validation", "VK_LAYER_KHRONOS_validation is not installed"));
        }
        layers.push(LAYER.as_ptr());
        extensions.push(ext::debug_utils::NAME.as_ptr());
    }
    let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_2);
    let info = vk::InstanceCreateInfo::default()
        .flags(flags)
        .application_info(&application)
        .enabled_layer_names(&layers)
        .enabled_extension_names(&extensions);
    // SAFETY: the layers and extensions were found to be there (the layer brings the messenger's).
    let instance =
        unsafe { entry.create_instance(&info, None) }.map_err(|result| match result {
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => no_driver(),
            result => status::error("vkCreateInstance", result),
        })?;
    let Some(sink) = sink else { return Ok((instance, None)) };
    match Messages::new(entry, &instance, sink) {
        Ok(messages) => Ok((instance, Some(messages))),
        Err(error) => {
            // SAFETY: made here; nothing was made of it.
            unsafe { instance.destroy_instance(None) };
            Err(error)
        }
    }
}

/// What loaders answer without a driver differs; it means this.
fn no_driver() -> Error {
    unsupported("a Vulkan device", "the loader knows of no driver")
}

fn physical_devices(instance: &ash::Instance) -> Result<Vec<vk::PhysicalDevice>> {
    // SAFETY: the instance is valid.
    unsafe { instance.enumerate_physical_devices() }.map_err(|result| match result {
        // What a loader without any driver answers.
        vk::Result::ERROR_INITIALIZATION_FAILED | vk::Result::ERROR_INCOMPATIBLE_DRIVER => {
            no_driver()
        }
        result => status::error("vkEnumeratePhysicalDevices", result),
    })
}

fn info(instance: &ash::Instance, index: usize, device: vk::PhysicalDevice) -> VulkanDeviceInfo {
    // SAFETY: the physical device is one of the instance.
    let properties = unsafe { instance.get_physical_device_properties(device) };
    let version = properties.api_version;
    VulkanDeviceInfo {
        index,
        name: name_of(&properties),
        kind: KINDS[rank(properties.device_type)],
        api: (
            vk::api_version_major(version),
            vk::api_version_minor(version),
            vk::api_version_patch(version),
        ),
        driver: properties.driver_version,
        usable: check(instance, device),
    }
}

/// The kinds of device, the faster ones first.
const KINDS: [&str; 5] = ["discrete", "integrated", "virtual", "software", "other"];

/// Which of [`KINDS`] a device is.
fn rank(kind: vk::PhysicalDeviceType) -> usize {
    match kind {
        vk::PhysicalDeviceType::DISCRETE_GPU => 0,
        vk::PhysicalDeviceType::INTEGRATED_GPU => 1,
        vk::PhysicalDeviceType::VIRTUAL_GPU => 2,
        vk::PhysicalDeviceType::CPU => 3,
        _ => 4,
    }
}

/// Refuses a device of a version before 1.2.
pub(super) fn check_version(properties: &vk::PhysicalDeviceProperties) -> Result<()> {
    let version = properties.api_version;
    let (major, minor) = (vk::api_version_major(version), vk::api_version_minor(version));
    if (major, minor) >= (1, 2) {
        return Ok(());
    }
    let why = format!("{} has Vulkan {major}.{minor}", name_of(properties));
    Err(unsupported("a device of Vulkan 1.2", why))
}

/// Refuses a device that lacks what every stream needs.
fn check(instance: &ash::Instance, physical: vk::PhysicalDevice) -> Result<()> {
    // SAFETY: the physical device is one of the instance.
    let properties = unsafe { instance.get_physical_device_properties(physical) };
    check_version(&properties)?;
    let mut timeline = vk::PhysicalDeviceTimelineSemaphoreFeatures::default();
    let mut features = vk::PhysicalDeviceFeatures2::default().push_next(&mut timeline);
    // SAFETY: as above; the structure asked for is of Vulkan 1.2, which the device has.
    unsafe { instance.get_physical_device_features2(physical, &mut features) };
    if timeline.timeline_semaphore == vk::FALSE {
        let why = format!("{} lacks the feature timelineSemaphore", name_of(&properties));
        return Err(unsupported("a timeline semaphore", why));
    }
    queue_family(instance, physical, &properties).map(drop)
}

/// The family of queues to use, and the bits of the timestamps it can write anew: one that computes, or else draws, or
/// else transfers. The first two transfer as well (`VkQueueFlagBits`).
fn queue_family(
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    properties: &vk::PhysicalDeviceProperties,
) -> Result<(u32, u32)> {
    // SAFETY: the physical device is one of the instance.
    let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
    let kinds = [vk::QueueFlags::COMPUTE, vk::QueueFlags::GRAPHICS, vk::QueueFlags::TRANSFER];
    let found = kinds.iter().find_map(|&kind| {
        let family = |family: &vk::QueueFamilyProperties| {
            family.queue_count > 0 && family.queue_flags.contains(kind)
        };
        families.iter().position(family)
    });
    let found = found.ok_or_else(|| {
        unsupported("a queue", format!("{} has none that transfers", name_of(properties)))
    })?;
    let family = &families[found];
    // A queue that only transfers cannot reset the queries (`vkCmdResetQueryPool`).
    let resets = family.queue_flags.intersects(vk::QueueFlags::COMPUTE | vk::QueueFlags::GRAPHICS);
    Ok((found as u32, if resets { family.timestamp_valid_bits } else { 0 }))
}

/// Whether the device can tell its time and the host's at one instant.
fn has_clocks(
    entry: &ash::Entry,
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
) -> Result<bool> {
    let calls = ext::calibrated_timestamps::Instance::new(entry, instance);
    // SAFETY: the physical device is one of the instance and has the extension.
    let domains = unsafe { calls.get_physical_device_calibrateable_time_domains(physical) }
        .map_err(|result| {
            status::error("vkGetPhysicalDeviceCalibrateableTimeDomainsEXT", result)
        })?;
    let needed = [vk::TimeDomainEXT::DEVICE, vk::TimeDomainEXT::CLOCK_MONOTONIC];
    Ok(needed.iter().all(|domain| domains.contains(domain)))
}
