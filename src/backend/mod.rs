//! Devices: one module for each interface to one. A backend implements
//! [`DeviceStream`](crate::DeviceStream) and knows nothing of hosts, nor of other backends. The word
//! wait is the one that is no device: the CPU's means to watch what devices write.
//!
//! [`lease`] is what all of them share: buffers that a device is using. `mapped` is what the backends
//! share whose device writes words in page-locked host memory by an operation of its streams.
//!
//! What a wait answers after a fault of the device, and what a program can do then, by vendor and
//! version, is in `docs/recovery.md`, which the documentation shows as `recovery`.

#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(feature = "hip")]
pub mod hip;
pub mod lease;
#[cfg(any(feature = "cuda", feature = "hip"))]
pub mod mapped;
#[cfg(any(test, all(feature = "metal", target_vendor = "apple")))]
pub mod metal;
#[cfg(doc)]
pub mod recovery {
    #![cfg_attr(feature = "software", doc = include_str!("../../docs/recovery.md"))]
}
#[cfg(feature = "software")]
pub mod software;
#[cfg(feature = "vulkan")]
pub mod vulkan;
#[cfg(feature = "wordwait")]
pub mod wordwait;
