//! A thread that does one thing when it is told to, a random time later: the device that stores, or the
//! thread that wakes. It says when it did it.

use crate::latency::Random;
use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{Clock, DurNs, MonoNs};
use std::fs::File;
use std::hint;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// What the thread does: the store, the wake. It is called right after the time was taken.
pub type Action = Arc<dyn Fn() + Send + Sync>;

/// The shortest time from the command to the action: whoever waits in the kernel sleeps by then.
const LEAST_DELAY: DurNs = DurNs::from_us(100);
/// How much longer it can be.
const SPREAD_NS: u64 = 64_000;

/// Made by the thread that waits.
pub struct Trigger {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    random: Random,
    losses: Losses,
    left_out: u64,
}

/// How often the thread that made it lost its core to another thread while it had work.
struct Losses {
    status: File,
    counted: u64,
}

impl Losses {
    fn new() -> Self {
        let status = File::open("/proc/thread-self/status").expect("a Linux system");
        let mut losses = Losses { status, counted: 0 };
        losses.any_more();
        losses
    }

    /// Whether it happened since this was last asked.
    fn any_more(&mut self) -> bool {
        let mut text = [0; 4_096];
        let read = self.status.read_at(&mut text, 0).expect("the file stays readable");
        let text = String::from_utf8_lossy(&text[..read]);
        let count = text.split_once("nonvoluntary_ctxt_switches:").expect("a line of the file").1;
        let count = count.split_whitespace().next().and_then(|count| count.parse().ok());
        let count = count.expect("a number");
        std::mem::replace(&mut self.counted, count) != count
    }
}

#[derive(Default)]
struct Shared {
    /// When to act, or [`NOTHING`] or [`END`].
    at: AtomicU64,
    /// When it acted.
    acted: AtomicU64,
    action: Mutex<Option<Action>>,
}

const NOTHING: u64 = 0;
const END: u64 = u64::MAX;

fn now() -> MonoNs {
    StdClock::new().monotonic_ns()
}

impl Trigger {
    pub fn new() -> Self {
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        let thread = thread::spawn(move || of_thread.run());
        Trigger {
            shared,
            thread: Some(thread),
            random: Random(1),
            losses: Losses::new(),
            left_out: 0,
        }
    }

    /// What it does from now on.
    pub fn set_action(&mut self, action: Action) {
        *self.shared.action() = Some(action);
    }

    /// Tells it to act, 100 to 164 us from now.
    pub fn fire(&mut self) {
        self.losses.any_more();
        let delay = LEAST_DELAY.0 + self.random.below(SPREAD_NS);
        self.shared.at.store(now().after(DurNs(delay)).0, Ordering::Release);
    }

    /// How many nanoseconds ago it acted: asked first by whoever was woken. Contains one clock read.
    ///
    /// NaN, a sample that [`rounds`](crate::latency::rounds) leaves out, where the thread that made the
    /// trigger lost its core since it fired: that says what else runs on the machine, and would be the
    /// whole p99 of whoever spins.
    pub fn since(&mut self) -> f64 {
        let woke = now();
        let mut acted = self.shared.acted.swap(0, Ordering::Acquire);
        while acted == 0 {
            hint::spin_loop();
            acted = self.shared.acted.swap(0, Ordering::Acquire);
        }
        if self.losses.any_more() {
            self.left_out += 1;
            return f64::NAN;
        }
        woke.0 as f64 - acted as f64
    }

    /// For the notes of a section.
    pub fn left_out(&self) -> String {
        format!(
            "{} samples left out: the waiting thread had lost its core to another program",
            self.left_out
        )
    }
}

impl Shared {
    fn action(&self) -> std::sync::MutexGuard<'_, Option<Action>> {
        self.action.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let at = loop {
                match self.at.load(Ordering::Acquire) {
                    NOTHING => hint::spin_loop(),
                    END => return,
                    at => break MonoNs(at),
                }
            };
            let action = self.action().clone().expect("an action was set");
            self.at.store(NOTHING, Ordering::Relaxed);
            while now() < at {
                hint::spin_loop();
            }
            let acted = now();
            action();
            // Told afterwards: before the action it would be one more line to fetch from the other core.
            self.acted.store(acted.0, Ordering::Release);
        }
    }
}

impl Drop for Trigger {
    fn drop(&mut self) {
        self.shared.at.store(END, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the trigger thread runs to its end");
        }
    }
}
