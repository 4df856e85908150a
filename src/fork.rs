//! Whether this process is a child that was forked after something was made.
//!
//! A driver's state, its threads and its memory mappings do not survive `fork` in the child, and
//! neither do the threads of a software device or a watcher; a lock that one of these held stays
//! locked for ever. What was made before the fork must then make no driver call, take no lock and
//! wait for nobody: it answers [`Forked`](crate::ErrorCode::Forked), and is forgotten instead of
//! dropped ([`Own`]).
//!
//! A handler of `pthread_atfork` counts forks in the child, so that asking is one relaxed load and
//! a comparison, and no system call. What is made in the child is the child's own. The same word says
//! that the process is exiting (`exit.rs`), which the same load finds.
//!
//! Code that this library calls on a thread of its own (work of a software device, a status, a
//! waker) and that forks must end its child itself, as is usual: by `exec` or `_exit`.
//!
//! Source: `pthread_atfork` of POSIX.1-2017. Not called by `vfork`, nor by a raw `clone`.

use crate::core::error::{Error, ErrorCode, Result};
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
#[cfg(unix)]
use core::sync::atomic::AtomicBool;
#[cfg(any(feature = "cuda", feature = "hip"))]
use core::sync::atomic::AtomicU64;
use core::sync::atomic::{AtomicU32, Ordering};

/// How many forks lie between the first process and this one, as far as the handler was there, and
/// [`EXITING`].
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The process is exiting.
const EXITING: u32 = 1 << 31;

/// Makes every [`check`](Birth::check) of this process fail from now on.
#[cfg(all(unix, any(feature = "cuda", feature = "hip", feature = "vulkan")))]
pub(crate) fn begin_exit() {
    GENERATION.fetch_or(EXITING, Ordering::SeqCst);
}

/// The process in which something was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Birth(u32);

impl Birth {
    /// The present process.
    pub(crate) fn here() -> Self {
        register();
        Birth(GENERATION.load(Ordering::Relaxed) & !EXITING)
    }

    /// Whether the present process is a forked child of that one.
    #[inline]
    pub(crate) fn is_forked(self) -> bool {
        // Relaxed: the handler ran on the child's only thread, before any other code of the child.
        GENERATION.load(Ordering::Relaxed) & !EXITING != self.0
    }

    /// Refuses `call` in a forked child, and while the process is exiting.
    #[inline]
    pub(crate) fn check(self, call: &str) -> Result<()> {
        self.check_by(call, Ordering::Relaxed)
    }

    /// The same by a load of this order.
    #[inline]
    pub(crate) fn check_by(self, call: &str, order: Ordering) -> Result<()> {
        let now = GENERATION.load(order);
        if now == self.0 { Ok(()) } else { Err(self.refusal(call, now)) }
    }

    #[cold]
    fn refusal(self, call: &str, now: u32) -> Error {
        let is_exiting = now & !EXITING == self.0;
        if is_exiting { Error::new(ErrorCode::Exiting, [call]) } else { forked(call) }
    }
}

/// The process that asked first, where something of it may be held by threads of its own. Asking takes no
/// lock, which a child would wait for if it was forked in the middle of it.
#[cfg(any(feature = "cuda", feature = "hip"))]
#[derive(Debug)]
pub(crate) struct FirstBirth(AtomicU64);

#[cfg(any(feature = "cuda", feature = "hip"))]
impl FirstBirth {
    /// Nobody has asked yet.
    pub(crate) const fn new() -> Self {
        FirstBirth(AtomicU64::new(0))
    }

    /// The process that asked first; the present one where nobody has.
    pub(crate) fn get(&self) -> Birth {
        let here = Birth::here();
        let first =
            self.0.compare_exchange(0, u64::from(here.0) + 1, Ordering::Relaxed, Ordering::Relaxed);
        first.map_or_else(|first| Birth((first - 1) as u32), |_| here)
    }
}

/// A value of one process: dropped there, forgotten in a child that was forked since.
#[derive(Debug)]
pub(crate) struct Own<T> {
    birth: Birth,
    value: ManuallyDrop<T>,
}

impl<T> Own<T> {
    /// `value`, of the present process.
    pub(crate) fn new(value: T) -> Self {
        Own::of(Birth::here(), value)
    }

    /// `value`, of the process of something else.
    pub(crate) fn of(birth: Birth, value: T) -> Self {
        Own { birth, value: ManuallyDrop::new(value) }
    }

    /// Where it is of.
    #[inline]
    pub(crate) fn birth(&self) -> Birth {
        self.birth
    }
}

impl<T: Clone> Clone for Own<T> {
    /// In a child too it stays a value of the process that the original is of.
    fn clone(&self) -> Self {
        Own { birth: self.birth, value: self.value.clone() }
    }
}

impl<T> Deref for Own<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Own<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if !self.birth.is_forked() {
            // SAFETY: dropped once, here, and nothing uses it after this destructor.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// The error of `call` in a forked child.
#[cold]
pub(crate) fn forked(call: &str) -> Error {
    Error::new(ErrorCode::Forked, [call])
}

#[cfg(unix)]
fn register() {
    extern "C" fn in_the_child() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    // Not a `Once`, which a child would wait for if it was forked in the middle of it. Two threads
    // that come here at once register two handlers, which count a fork twice.
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if REGISTERED.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: the handler is a function of this program, which is never unloaded while it can
    // fork with this library in use; it takes no lock, allocates nothing and does not unwind.
    let status = unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
    // ENOMEM is the one failure there is. Forks then go unnoticed, as without this module.
    debug_assert_eq!(status, 0, "pthread_atfork");
    REGISTERED.store(true, Ordering::Release);
}

/// Without `fork` there is nothing to notice.
#[cfg(not(unix))]
fn register() {}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[cfg(any(feature = "cuda", feature = "hip"))]
    #[test]
    fn the_first_who_asks_stays_the_first() {
        let (asked, later) = (FirstBirth::new(), Birth::here());
        assert_eq!(asked.get(), later);
        let of_a_parent = FirstBirth(AtomicU64::new(u64::from(later.0.wrapping_sub(1)) + 1));
        assert!(of_a_parent.get().is_forked() && of_a_parent.get() != later);
    }

    #[test]
    fn a_child_knows_what_was_made_before_the_fork() {
        let before = Birth::here();
        assert!(!before.is_forked());
        // SAFETY: the child only reads an atomic and ends by `_exit`, both async-signal-safe.
        let child = unsafe {
            match libc::fork() {
                0 => {
                    let own = Birth(GENERATION.load(Ordering::Relaxed) & !EXITING);
                    libc::_exit(if before.is_forked() && !own.is_forked() { 7 } else { 1 })
                }
                child => child,
            }
        };
        assert!(child > 0, "fork");
        let mut status = 0;
        // SAFETY: `status` outlives the call, and the child is this process's own.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 7));
        assert!(!before.is_forked());
    }
}
