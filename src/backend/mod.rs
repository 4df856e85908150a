//! Devices: one module for each interface to one. A backend implements
//! [`DeviceStream`](crate::DeviceStream) and knows nothing of hosts, nor of other backends. The word
//! wait is the one that is no device: the CPU's means to watch what devices write.

#[cfg(feature = "software")]
pub mod software;
#[cfg(feature = "wordwait")]
pub mod wordwait;
