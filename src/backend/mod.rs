//! Devices: one module for each interface to one. A backend implements
//! [`DeviceStream`](crate::DeviceStream) and knows nothing of hosts, nor of other backends.

#[cfg(feature = "software")]
pub mod software;
