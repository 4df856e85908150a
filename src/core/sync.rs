//! One facade for the atomics of the wake protocols, so that the same source runs under the model
//! checker (`RUSTFLAGS="--cfg loom"`). Reference counts stay those of `alloc`: a `Waker` is made
//! from them.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
