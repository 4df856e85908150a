//! The state of an idling thread, and who changes it.
//!
//! ```text
//!             1                    4
//!  RUNNING ------> ASLEEP ------------------.
//!   ^ ^ |            |                      v
//!   | | '------------+---------------> NOTIFIED
//!   | |       3      |                      |
//!   | '--------------'  2                   |
//!   '---------------------------------------'  5
//! ```
//!
//! | edge | by | function | |
//! |---|---|---|---|
//! | 1 | the idling thread | [`fall_asleep`](IdleState::fall_asleep) | right before it enters the kernel |
//! | 2 | the idling thread | [`rise`](IdleState::rise) | the kernel returned and nobody notified |
//! | 3 | any thread | [`notify`](IdleState::notify) | no system call: the thread looks before it sleeps |
//! | 4 | any thread | [`notify`](IdleState::notify) | the caller wakes the sleeper in the kernel |
//! | 5 | the idling thread | [`take`](IdleState::take), [`rise`](IdleState::rise) | the notification is used up |
//!
//! A notification is sticky: whenever it comes, the next sleep or park sees it. Two of them before
//! the thread looks are one.
//!
//! # The interleaving that must not lose a wake
//!
//! ```text
//! idler:     take() -> no | fall_asleep() ........ kernel: sleep while ASLEEP
//! notifier:  ...(a).......|.........(b)...........|..(c)..
//! ```
//!
//! (a) The word is NOTIFIED, edge 1 fails, the idler does not enter the kernel. (b) Edge 4: the
//! notifier calls the kernel, which finds nobody to wake; but the word is no longer ASLEEP, and the
//! kernel compares it when it puts the idler to sleep, so it does not. (c) Edge 4: the kernel wakes
//! it. A plain store of ASLEEP in place of edge 1's compare-exchange would lose (a).
//!
//! # Memory ordering
//!
//! `notify` is a release and whatever uses it up an acquire: what the notifier did before is visible
//! to the idler after its sleep. Every change is a read-modify-write, so a second notifier that finds
//! NOTIFIED still hands on what the first one published.

use core::sync::atomic::Ordering;

const RUNNING: u32 = 0;
/// The value that the kernel compares.
pub(in crate::host) const ASLEEP: u32 = 1;
const NOTIFIED: u32 = 2;

/// The state, in a word that the kernel can compare.
pub struct IdleState<W>(pub W);

/// An atomic word: the real one, or the model checker's.
#[allow(missing_docs, reason = "the methods of AtomicU32")]
pub trait Word {
    fn load(&self, order: Ordering) -> u32;
    fn swap(&self, value: u32, order: Ordering) -> u32;
    fn compare_exchange(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32>;
}

macro_rules! word {
    ($name:ty, $atomic:ty) => {
        impl Word for $name {
            fn load(&self, order: Ordering) -> u32 {
                <$atomic>::load(self, order)
            }

            fn swap(&self, value: u32, order: Ordering) -> u32 {
                <$atomic>::swap(self, value, order)
            }

            fn compare_exchange(
                &self,
                current: u32,
                new: u32,
                success: Ordering,
                failure: Ordering,
            ) -> Result<u32, u32> {
                <$atomic>::compare_exchange(self, current, new, success, failure)
            }
        }
    };
}

word!(&core::sync::atomic::AtomicU32, core::sync::atomic::AtomicU32);
#[cfg(loom)]
word!(&loom::sync::atomic::AtomicU32, loom::sync::atomic::AtomicU32);

impl<W: Word> IdleState<W> {
    /// Whether a notification waits: a relaxed load, for the looks of a spin.
    #[inline]
    pub fn is_notified(&self) -> bool {
        self.0.load(Ordering::Relaxed) == NOTIFIED
    }

    /// Uses up a notification; `false` if there is none.
    #[inline]
    pub fn take(&self) -> bool {
        self.is_notified()
            && self
                .0
                .compare_exchange(NOTIFIED, RUNNING, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Declares the thread asleep, unless a notification waits: `false` then, and it must not sleep.
    pub fn fall_asleep(&self) -> bool {
        self.0.compare_exchange(RUNNING, ASLEEP, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Declares the thread awake again, uses up a notification, and says whether there was one.
    pub fn rise(&self) -> bool {
        self.0.swap(RUNNING, Ordering::Acquire) == NOTIFIED
    }

    /// Notifies. `true` where the thread sleeps in the kernel: the caller wakes it there.
    pub fn notify(&self) -> bool {
        self.0.swap(NOTIFIED, Ordering::AcqRel) == ASLEEP
    }
}
