//! Vulkan: a queue with a timeline semaphore.
