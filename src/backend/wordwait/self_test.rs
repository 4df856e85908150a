//! Whether an armed wait really parks: asked of the CPU itself, since bits lie (F14, F15).
//!
//! Emulators execute the instructions as no-ops; hypervisors trap them; a `wfe` may find its event
//! register set for ever. So a probe looks at what happens:
//!
//! 1. [`ALONE`] waits of [`ALONE_WAIT`] on a line that nobody stores to. More than half of them
//!    returning within [`SHORT`] is a CPU that does not park. Each wait is judged by itself: a thread
//!    that was descheduled makes one wait long and not the whole test.
//! 2. [`STORES`] waits into which another thread stores, in the line's *last* word, while the monitor is
//!    armed by its first: a monitor that watches less than a line fails. A wait counts as ended by
//!    the store if it ended before its deadline, not by the kernel's cap, and within [`SOON`] of
//!    the store. More than half must be.
//!
//! The storing thread leaves the CPU of the waiting one (on Linux, by its own affinity, which ends with it):
//! on the same CPU an interrupt would end the wait before the store. A thread that may use one CPU only
//! starts one that may use the others, for the millisecond of the test. Where there are no others,
//! nobody but a device can store during a wait, and the second part is left out.
//!
//! Together 1 to 3 ms: the waits of the first part, a start of a thread, and some 250 us a store. A
//! thread that does not come to store makes it longer, by [`PATIENCE`] at the most.

use super::monitor::{Ended, LONGEST_WAIT, Monitor};
use super::scale::Scale;
use super::unsupported::{SelfTestFault, Unsupported};
use crate::core::line::{CompletionLine, LINE_WORDS, Slot};
use crate::core::time::{DurNs, MonoNs};
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

pub(super) const ALONE: u32 = 16;
pub(super) const ALONE_WAIT: DurNs = DurNs::from_us(50);
/// A wait that sleeps lasts longer than this: the kernel's usual cap is 18 us or more. One that does not takes less
/// than 1 us to return, and some us where an emulator executes what stands around it.
pub(super) const SHORT: DurNs = DurNs::from_us(10);

pub(super) const STORES: u32 = 5;
/// How long after it was asked the storing thread stores, so that the wait has begun. It spins: the timer
/// of a sleep may interrupt the waiting CPU as well, just when the store is to end the wait.
const STORE_AFTER: DurNs = DurNs::from_us(200);
/// From the store to the end of the wait, at most.
pub(super) const SOON: DurNs = DurNs::from_us(25);
/// How long to wait for all stores, on a machine that is too busy to run the storing thread.
pub(super) const PATIENCE: DurNs = DurNs::from_ms(2_000);

/// A line alone on its page, as a device's lines are: emulators that notice stores at all may notice
/// them by the page, and only in pages that the storing CPU did not write to before.
#[derive(Default)]
#[repr(C, align(4096))]
struct OwnPage(CompletionLine);

const LAST_WORD: Slot = Slot::ALL[LINE_WORDS - 1];

/// The whole test.
pub(super) fn run<M: Monitor + Sync>(
    monitor: &M,
    scale: &Scale,
    clock: impl Fn() -> MonoNs + Sync,
) -> Result<(), Unsupported> {
    alone(monitor, scale)?;
    let here = cpus::present();
    let OwnPage(line) = &OwnPage::default();
    // When the storing thread stored last. On the clock, since the counters of two CPUs may differ.
    let stored_at = AtomicU64::new(0);
    let (ask, asked) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let storing = || {
            if tell.send(cpus::leave(here)).is_err() {
                return;
            }
            for number in asked {
                let at = clock().after(STORE_AFTER);
                while clock() < at {
                    core::hint::spin_loop();
                }
                // Ordered by the release store behind it.
                stored_at.store(clock().0, Ordering::Relaxed);
                line.store(LAST_WORD, number);
            }
        };
        let name = "word-wait-self-test".into();
        if thread::Builder::new().name(name).spawn_scoped(scope, storing).is_err() {
            let fault = SelfTestFault::NoThread;
            return Err(Unsupported::SelfTest { fault, count: 0, of: STORES });
        }
        if told.recv() != Ok(true) {
            return Ok(());
        }
        // Moved in, so that the end of the test ends the thread.
        let ask = move |number| _ = ask.send(number);
        let stored_at = || MonoNs(stored_at.load(Ordering::Relaxed));
        stores(monitor, scale, &clock, line, ask, stored_at)
    })
}

/// The first part.
pub(super) fn alone<M: Monitor>(monitor: &M, scale: &Scale) -> Result<(), Unsupported> {
    let OwnPage(line) = &OwnPage::default();
    let short = scale.ticks(SHORT);
    let returned_at_once = || {
        monitor.arm(line);
        let began = monitor.ticks();
        let ended = monitor.wait(began.saturating_add(scale.ticks(ALONE_WAIT)));
        // The CPU itself says that a cap ended it, so it waited, however short the cap.
        monitor.ticks().saturating_sub(began) < short && ended != Ended::Capped
    };
    let count = (0..ALONE).filter(|_| returned_at_once()).count() as u32;
    if count > ALONE / 2 {
        let fault = SelfTestFault::ReturnsAtOnce;
        return Err(Unsupported::SelfTest { fault, count, of: ALONE });
    }
    Ok(())
}

/// The second part. `ask` makes somebody store a number soon; `stored_at` says when that was.
pub(super) fn stores<M: Monitor>(
    monitor: &M,
    scale: &Scale,
    clock: impl Fn() -> MonoNs,
    line: &CompletionLine,
    mut ask: impl FnMut(u64),
    stored_at: impl Fn() -> MonoNs,
) -> Result<(), Unsupported> {
    let give_up = clock().after(PATIENCE);
    // Whether the store of `number` ended the wait that it fell into; `None` if it never came.
    let ended_by_store = |number: u64| {
        loop {
            monitor.arm(line);
            if line.load(LAST_WORD) >= number {
                // It came between two waits.
                return Some(false);
            }
            let until = monitor.ticks().saturating_add(scale.ticks(LONGEST_WAIT));
            let ended = monitor.wait(until);
            let in_time = monitor.ticks() < until;
            if line.load(LAST_WORD) >= number {
                let soon = clock().since(stored_at()) <= SOON;
                return Some(soon && in_time && ended != Ended::Capped);
            }
            if clock() >= give_up {
                return None;
            }
        }
    };
    let mut count = 0;
    for number in 1..=STORES {
        ask(number.into());
        match ended_by_store(number.into()) {
            Some(true) => {}
            Some(false) => count += 1,
            None => {
                let fault = SelfTestFault::NoStore;
                return Err(Unsupported::SelfTest {
                    fault,
                    count: STORES + 1 - number,
                    of: STORES,
                });
            }
        }
    }
    if count > STORES / 2 {
        let fault = SelfTestFault::IgnoresStores;
        return Err(Unsupported::SelfTest { fault, count, of: STORES });
    }
    Ok(())
}

/// Which CPUs threads run on.
#[cfg(target_os = "linux")]
mod cpus {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

    pub(super) fn present() -> usize {
        sched_getcpu()
    }

    /// Keeps the calling thread off `cpu`; whether there is another one for it.
    pub(super) fn leave(cpu: usize) -> bool {
        let mut others = sched_getaffinity(None).unwrap_or_default();
        others.unset(cpu);
        if others.count() == 0 {
            (0..CpuSet::MAX_CPU).filter(|other| *other != cpu).for_each(|other| others.set(other));
        }
        // The kernel takes those that there are and that the process may use; it refuses none at all.
        sched_setaffinity(None, &others).is_ok()
    }
}

/// Which CPUs threads run on: left to the system.
#[cfg(not(target_os = "linux"))]
mod cpus {
    pub(super) fn present() {}

    pub(super) fn leave(_: ()) -> bool {
        std::thread::available_parallelism().map_or(true, |several| several.get() > 1)
    }
}
