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

use crate::host::std_idle::state::IdleState;
use alloc::{sync::Arc, task::Wake};
use core::sync::atomic::AtomicU32;
use rustix::fd::OwnedFd;
use rustix::thread::futex;

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
    word: AtomicU32,
    pub(super) bell: Bell,
}

impl Unparker {
    pub(super) fn new(bell: Bell) -> Arc<Self> {
        Arc::new(Unparker { word: AtomicU32::new(0), bell })
    }

    pub(super) fn state(&self) -> IdleState<&AtomicU32> {
        IdleState(&self.word)
    }

    pub(super) fn word(&self) -> &AtomicU32 {
        &self.word
    }

    /// The bell rang: makes it ready to ring again.
    pub(super) fn reset(&self) {
        if let Bell::Event(counter) = &self.bell {
            // It does not block, and fails only where the counter is 0 already.
            let _ = rustix::io::read(counter, &mut [0; 8]);
        }
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
        // Neither can fail: the address is valid, and the counter is far from its maximum.
        match &self.bell {
            Bell::Futex => _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1),
            Bell::Event(counter) => _ = rustix::io::write(counter, &1_u64.to_ne_bytes()),
        }
    }
}
