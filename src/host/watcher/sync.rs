//! The locks of the watcher's protocols, or the model checker's. Atomics are those of the core's
//! facade.

#[cfg(not(loom))]
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(loom)]
pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};

/// Locks, whoever panicked before: no code of a user runs under a lock of the watcher.
#[inline]
pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
