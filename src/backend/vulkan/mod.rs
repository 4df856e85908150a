//! Vulkan: a queue whose submissions store a number behind their work and signal a timeline semaphore to
//! it.
//!
//! The semaphore is the status and the blocking wait; the word, an 8-byte `vkCmdUpdateBuffer` into mapped
//! coherent memory, is what a wait watches without a driver call. The word is a hint, as Vulkan orders
//! it before the signal but promises nothing of when it is seen: nothing is handed back, freed or used
//! again before the semaphore says so.
//!
//! ```no_run
//! use gpu_async_reactor::backend::vulkan::VulkanDevice;
//! use gpu_async_reactor::host::Runtime;
//!
//! let device = VulkanDevice::open()?;
//! let runtime = Runtime::builder("spin:backstop_us=1000", "gpu-reactor").device(device.caps()).build()?;
//! let stream = device.stream()?;
//! stream.fill(&device.buffer(1 << 20)?, 7, 100)?; // or `submit`, with command buffers of one's own
//! let mut port = runtime.port(stream);
//! runtime.block_on(runtime.wait("step", &mut port))??;
//! drop(port);
//! assert_eq!(device.close()?, 0);
//! # Ok::<(), gpu_async_reactor::Error>(())
//! ```
//!
//! # The way of a submission
//!
//! ```text
//! submit()/mark() -> recorded -> the queue's lock -> device -> word, doorbell, semaphore
//!   stream.rs, issue.rs  record.rs   queue.rs                    pages.rs
//! dropped -> what the device may still use -> used again, or freed by close()
//!   issue.rs    remains.rs                       shared.rs
//! ```
//!
//! # Needs
//!
//! A loader, which is opened at run time; a device of Vulkan 1.2 or later with `timelineSemaphore`, and
//! memory that is host-visible and coherent, of which every device has some. No extension.
//!
//! # Faults
//!
//! The first call that reports `VK_ERROR_DEVICE_LOST` is the answer of every later one, which makes no call of
//! the driver. What a program does then is in `docs/recovery.md`.
//!
//! # Cost
//!
//! A mark is five recorded commands, or seven with a doorbell, and one `vkQueueSubmit`; a warm stream
//! allocates nothing for it. A status is one `vkGetSemaphoreCounterValue`. `examples/vulkan_wait.rs`
//! prints what these take.

mod buffer;
mod clock;
mod commands;

mod device;
mod gpu;
mod issue;
mod lease;
mod memory;
mod messages;
mod open;
mod pages;
mod queue;
mod record;
mod remains;
mod shared;
mod status;
mod stream;
mod submission;
#[cfg(test)]
mod tests;

pub use ash;
pub use buffer::{PinnedBuffer, VulkanBuffer};
pub use clock::TIMESTAMPS_KEPT;
pub use device::{RawDevice, VulkanDevice, VulkanStats};
pub use open::{VulkanDeviceBuilder, VulkanDeviceInfo};
pub use queue::{QueueLock, VulkanQueue};
pub use stream::{VulkanCalls, VulkanStream};
pub use submission::Submission;
