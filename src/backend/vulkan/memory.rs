//! Buffers with memory of their own.
//!
//! Everything here is one `VkBuffer` bound to one `VkDeviceMemory`: whole pages, never a part of
//! somebody else's. Drivers limit how many there are (`maxMemoryAllocationCount`, at least 4096),
//! which is far above what lines and pinned buffers need, since both are kept and used again.

use super::gpu::Gpu;
use super::status::unsupported;
use crate::core::error::{Error, Result};
use alloc::format;
use ash::vk;
use core::ptr::NonNull;

/// What all sizes are a multiple of.
pub(super) const PAGE: u64 = 4096;

/// What an allocation is for, which says what kinds of memory serve it, the best first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    /// The host reads what the device wrote: mapped and coherent, cached where there is such memory.
    HostReads,
    /// The device alone uses it.
    DeviceOnly,
}

impl Use {
    fn wanted(self) -> &'static [vk::MemoryPropertyFlags] {
        use vk::MemoryPropertyFlags as Flags;
        const COHERENT: Flags =
            Flags::from_raw(Flags::HOST_VISIBLE.as_raw() | Flags::HOST_COHERENT.as_raw());
        const LOCAL: Flags = Flags::DEVICE_LOCAL;
        const ANY: Flags = Flags::empty();
        const CACHED: Flags = Flags::from_raw(COHERENT.as_raw() | Flags::HOST_CACHED.as_raw());
        match self {
            Use::HostReads => &[CACHED, COHERENT],
            Use::DeviceOnly => &[LOCAL, ANY],
        }
    }

    /// For messages.
    fn name(self) -> &'static str {
        match self {
            Use::HostReads => "memory that host and device share",
            Use::DeviceOnly => "memory of the device",
        }
    }

    fn usage(self) -> vk::BufferUsageFlags {
        let copies = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
        match self {
            Use::HostReads => copies,
            Use::DeviceOnly => copies | vk::BufferUsageFlags::STORAGE_BUFFER,
        }
    }
}

/// A buffer, its memory, and where the host sees it.
pub(super) struct Allocation {
    pub(super) buffer: vk::Buffer,
    pub(super) bytes: u64,
    pub(super) kind: Use,
    memory: vk::DeviceMemory,
    address: Option<NonNull<u8>>,
}

// SAFETY: the handles are numbers. The address is that of a mapping, which belongs to no thread; who
// reads and writes there is for the owner of the allocation to say.
unsafe impl Send for Allocation {}
// SAFETY: as above; nothing here changes through a shared reference.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// `bytes` (a multiple of the page's) for `kind`; what the host sees of them is zero.
    ///
    /// # Errors
    ///
    /// `Unsupported` without a kind of memory that serves, one of `vkAllocateMemory` for more than a heap
    /// has, and those of the Vulkan calls; nothing is left behind then.
    pub(super) fn new(gpu: &Gpu, bytes: u64, kind: Use) -> Result<Self> {
        debug_assert!(bytes > 0 && bytes % PAGE == 0);
        // Before the buffer is made: some drivers have a bound for those as well.
        find(gpu, u32::MAX, bytes, kind)?;
        let info = vk::BufferCreateInfo::default().size(bytes).usage(kind.usage());
        // SAFETY: the device is valid, the size is not 0, and the usage and sharing mode (exclusive)
        // need no feature.
        let buffer =
            gpu.checked("vkCreateBuffer", unsafe { gpu.device.create_buffer(&info, None) })?;
        let memory = match Self::memory_for(gpu, buffer, kind) {
            Ok(memory) => memory,
            Err(error) => {
                // SAFETY: the buffer was just made here and nothing uses it.
                unsafe { gpu.device.destroy_buffer(buffer, None) };
                return Err(error);
            }
        };
        let mut made = Allocation { buffer, bytes, kind, memory, address: None };
        match made.bind_and_map(gpu) {
            Ok(()) => Ok(made),
            Err(error) => {
                // SAFETY: just made here; nothing uses it.
                unsafe { made.destroy(gpu) };
                Err(error)
            }
        }
    }

    fn memory_for(gpu: &Gpu, buffer: vk::Buffer, kind: Use) -> Result<vk::DeviceMemory> {
        // SAFETY: the buffer is one of this device.
        let needs = unsafe { gpu.device.get_buffer_memory_requirements(buffer) };
        let index = find(gpu, needs.memory_type_bits, needs.size, kind)?;
        let info =
            vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(index);
        // SAFETY: the size is not 0 and at most that of the heap, and the type is one of this device. Types
        // that need a feature are never chosen.
        gpu.checked("vkAllocateMemory", unsafe { gpu.device.allocate_memory(&info, None) })
    }

    fn bind_and_map(&mut self, gpu: &Gpu) -> Result<()> {
        // SAFETY: both are new and of this device, the buffer is unbound, and offset 0 has every
        // alignment; the memory is as large as the buffer requires.
        let bound = unsafe { gpu.device.bind_buffer_memory(self.buffer, self.memory, 0) };
        gpu.checked("vkBindBufferMemory", bound)?;
        if self.kind == Use::DeviceOnly {
            return Ok(());
        }
        let flags = vk::MemoryMapFlags::empty();
        // SAFETY: the memory is host-visible, as chosen, and not mapped yet; the range lies within
        // the allocation, which is at least as large as the buffer.
        let mapped = unsafe { gpu.device.map_memory(self.memory, 0, self.bytes, flags) };
        let address = gpu.checked("vkMapMemory", mapped)?.cast::<u8>();
        let length = usize::try_from(self.bytes).expect("`find` refuses what is longer");
        // SAFETY: the mapping is valid for writes of this length, and neither the device nor another
        // thread uses this memory yet.
        unsafe { address.write_bytes(0, length) };
        self.address = NonNull::new(address);
        Ok(())
    }

    /// Where the host sees it.
    ///
    /// # Panics
    ///
    /// Where it does not.
    pub(super) fn address(&self) -> NonNull<u8> {
        self.address.expect("the device alone uses this memory")
    }

    /// Frees it.
    ///
    /// # Safety
    ///
    /// `gpu` made it, no submission that is not complete uses the buffer, and nobody keeps a
    /// reference into the mapping.
    pub(super) unsafe fn destroy(self, gpu: &Gpu) {
        // SAFETY: promised by the caller. Freeing memory unmaps it (`vkFreeMemory`).
        unsafe {
            gpu.device.destroy_buffer(self.buffer, None);
            gpu.device.free_memory(self.memory, None);
        }
    }
}

/// The type of memory for `size` bytes that serve `kind`, among those of `bits`.
fn find(gpu: &Gpu, bits: u32, size: u64, kind: Use) -> Result<u32> {
    let choose = |size| choose(&gpu.memory, bits, size, kind.wanted());
    // More than the address space holds no slice can be of.
    if let Some(index) = choose(size).filter(|_| isize::try_from(size).is_ok()) {
        return Ok(index);
    }
    if choose(0).is_some() {
        return Err(too_long(size));
    }
    let why = format!("no memory type of {} is visible to this process and coherent", gpu.name);
    Err(unsupported(kind.name(), why))
}

/// The error for more bytes than any heap has, of which Vulkan must not be asked.
#[cold]
pub(super) fn too_long(bytes: impl core::fmt::Display) -> Error {
    Error::backend("vkAllocateMemory", format!("{bytes} bytes are more than a heap of memory has"))
}

/// The first type of memory allowed by `bits`, of a heap of at least `size` bytes, that has all of `wanted[0]`,
/// or of `wanted[1]`, and so on.
fn choose(
    memory: &vk::PhysicalDeviceMemoryProperties,
    bits: u32,
    size: u64,
    wanted: &[vk::MemoryPropertyFlags],
) -> Option<u32> {
    use vk::MemoryPropertyFlags as Flags;
    // Each needs a feature, or an image, that nobody asked for.
    let never = Flags::DEVICE_COHERENT_AMD
        | Flags::DEVICE_UNCACHED_AMD
        | Flags::PROTECTED
        | Flags::LAZILY_ALLOCATED;
    let types = &memory.memory_types[..memory.memory_type_count as usize];
    wanted.iter().find_map(|&wanted| {
        let serves = |(index, kind): &(u32, &vk::MemoryType)| {
            let flags = kind.property_flags;
            let heap = memory.memory_heaps[kind.heap_index as usize].size;
            let allowed = bits >> index & 1 == 1 && !flags.intersects(never);
            allowed && size <= heap && flags.contains(wanted)
        };
        (0..).zip(types).find(serves).map(|(index, _)| index)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vk::MemoryPropertyFlags as Flags;

    const HEAP: u64 = 1 << 20;

    fn memory(flags: &[Flags]) -> vk::PhysicalDeviceMemoryProperties {
        let memory_type_count = flags.len() as u32;
        let mut memory =
            vk::PhysicalDeviceMemoryProperties { memory_type_count, ..Default::default() };
        memory.memory_heaps[0].size = HEAP;
        for (kind, &flags) in memory.memory_types.iter_mut().zip(flags) {
            kind.property_flags = flags;
        }
        memory
    }

    #[test]
    fn cached_coherent_memory_comes_before_coherent_and_nothing_else_serves_the_host() {
        let coherent = Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
        let types = memory(&[
            Flags::DEVICE_LOCAL,
            Flags::HOST_VISIBLE | Flags::HOST_CACHED,
            coherent | Flags::HOST_CACHED | Flags::DEVICE_COHERENT_AMD,
            coherent,
            coherent | Flags::HOST_CACHED,
        ]);
        let choose = |bits| choose(&types, bits, 1, Use::HostReads.wanted());
        assert_eq!(choose(0b11111), Some(4));
        assert_eq!(choose(0b01111), Some(3));
        assert_eq!(choose(0b00111), None, "uncoherent, or of a feature that is off");
    }

    #[test]
    fn a_device_without_memory_of_its_own_takes_what_there_is() {
        let types = memory(&[Flags::HOST_VISIBLE | Flags::HOST_COHERENT]);
        assert_eq!(choose(&types, 1, HEAP, Use::DeviceOnly.wanted()), Some(0));
        assert_eq!(choose(&types, 1, HEAP + 1, Use::DeviceOnly.wanted()), None, "too long");
    }
}
