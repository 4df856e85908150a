//! Ending a thread's wait in its ring from any other thread.
//!
//! The word and its states are those of `StdIdle`: see `std_idle/state.rs` for the drawing, the
//! losing interleaving and the memory ordering. What differs is where the thread sleeps. It waits for
//! any completion of its ring, and one operation of the ring is the [`Bell`]: armed before the first
//! wait and after each time that it rang, and left armed in between, so that it costs nothing on the
//! way into a wait.
//!
//! ```text
//!   idler:     fall_asleep() | arm, unless armed | kernel: wait for a completion
//!   notifier:  ....(a).......|........(b)........|...........(c)...
//! ```
//!
//! (a) The word is NOTIFIED, so `fall_asleep` fails and the idler does not wait. (b), (c) The
//! notifier finds ASLEEP and rings. Where the bell is armed, ringing completes it, and the wait ends
//! by that completion, also if it comes before the wait begins: completions stay in the queue. Where
//! it is being armed, the kernel compares the word (futex) or the counter (event) as it arms: it
//! finds the change, and completes the operation at once.
//!
//! A notifier may be slow between the word and the ring, and ring when the idler has gone on: the
//! next wait then ends for no reason, finds no notification, and is taken up again.
//!
//! # Without the ring
//!
//! Where the ring is lost, and in a forked child, the thread sleeps on the word itself, as that of
//! `StdIdle`, and a notifier wakes it there. A notifier that finds ASLEEP finds `left` as the thread
//! set it before: `leave_the_ring` ends with a release fence, the word is changed after that, and the
//! notifier's swap of it acquires.

use crate::fork::Own;
use crate::host::kernel::Bed;
use crate::host::std_idle::state::{ASLEEP, IdleState};
use crate::core::time::MonoNs;
use alloc::{sync::Arc, task::Wake};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use rustix::fd::OwnedFd;

/// What completes the ring's own operation.
#[derive(Debug)]
pub(super) enum Bell {
    /// A futex wait on the word (Linux 6.7).
    Futex,
    /// A poll of an event counter, which is reset each time that it rang.
    Event(OwnedFd),
}

/// One word, shared by the idle and its wakers.
#[derive(Debug)]
pub(super) struct Unparker {
    bed: Bed,
    /// The ring's, hence of the process that made it: its counter is shared with a forked child.
    bell: Own<Bell>,
    /// The thread sleeps in no ring any more.
    left: AtomicBool,
}

impl Unparker {
    pub(super) fn new(bell: Bell) -> Arc<Self> {
        let left = AtomicBool::new(false);
        Arc::new(Unparker { bed: Bed::new(0), bell: Own::new(bell), left })
    }

    pub(super) fn state(&self) -> IdleState<&AtomicU32> {
        IdleState(self.bed.word())
    }

    pub(super) fn word(&self) -> &AtomicU32 {
        self.bed.word()
    }

    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// The bell rang: makes it ready to ring again.
    pub(super) fn reset(&self) {
        if let Bell::Event(counter) = &*self.bell {
            // It does not block, and fails only where the counter is 0 already.
            let _ = rustix::io::read(counter, &mut [0; 8]);
        }
    }

    /// The thread never sleeps in the ring again. Called by that thread. A notifier that finds it in
    /// the wait that it is about to leave rings the bell in vain, and its notification is found.
    pub(super) fn leave_the_ring(&self) {
        self.left.store(true, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// Takes the armed bell's waiter off the word.
    pub(super) fn dequeue_bell(&self) {
        if let Bell::Futex = *self.bell {
            self.bed.wake();
        }
    }

    /// Sleeps on the word itself until `at` or a notification, or less. The thread was declared
    /// asleep, and there is no ring to sleep in.
    pub(super) fn sleep(&self, at: MonoNs) {
        self.bed.sleep(ASLEEP, at);
    }

    fn is_in_no_ring(&self) -> bool {
        self.left.load(Ordering::Relaxed) || self.bell.birth().is_forked()
    }
}

impl Wake for Unparker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// One swap; a system call only where the thread waits in its ring.
    fn wake_by_ref(self: &Arc<Self>) {
        if !self.state().notify() {
            return;
        }
        match &*self.bell {
            // It cannot fail: the counter is far from its maximum.
            Bell::Event(counter) if !self.is_in_no_ring() => {
                let _ = rustix::io::write(counter, &1_u64.to_ne_bytes());
            }
            Bell::Event(_) | Bell::Futex => self.bed.wake(),
        }
    }
}
