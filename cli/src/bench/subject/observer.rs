//! Who notes when a device's words come, where the device cannot tell its time on the host's clock.

use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{Clock, Error, MonoNs, Result, SharedLine, Slot};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// How many instants are kept.
const KEPT: usize = 64;

/// A thread that spins on one word while a number is expected, and notes when it came. It takes a core for
/// that time; the instant is late by the way of a cache line, some 100 ns, where the core is its own.
pub struct Observer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    line: SharedLine,
    slot: Slot,
    expected: AtomicU64,
    ends: AtomicBool,
    seen: Mutex<VecDeque<(u64, MonoNs)>>,
}

impl Observer {
    /// Observes `slot` of `line`.
    ///
    /// # Errors
    ///
    /// That the system refuses a thread.
    pub fn start(line: SharedLine, slot: Slot) -> Result<Self> {
        let shared = Arc::new(Shared {
            line,
            slot,
            expected: AtomicU64::new(0),
            ends: AtomicBool::new(false),
            seen: Mutex::new(VecDeque::new()),
        });
        // Before anybody can expect a number, so that the first one is seen to come.
        let last = (*shared.line).as_ref().load(slot);
        let of_thread = shared.clone();
        let thread = thread::Builder::new()
            .name("observer".to_string())
            .spawn(move || of_thread.observe(last))
            .map_err(|error| Error::backend("start a thread", error.to_string()))?;
        Ok(Observer { shared, thread: Some(thread) })
    }

    /// A mark of `number` was queued.
    pub fn expect(&self, number: u64) {
        self.shared.expected.fetch_max(number, Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// When `number` came, which the status says it has.
    ///
    /// # Errors
    ///
    /// That the word does not show it within 100 ms.
    pub fn came(&self, number: u64) -> Result<MonoNs> {
        let clock = StdClock::new();
        let until = clock.monotonic_ns().after(gpu_async_reactor::DurNs::from_ms(100));
        loop {
            let seen = self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, at)) = seen.iter().find(|(word, _)| *word >= number) {
                return Ok(*at);
            }
            drop(seen);
            if clock.monotonic_ns() > until {
                let what = "the status says done and the word was not seen";
                return Err(Error::backend("observe the word", what));
            }
            thread::yield_now();
        }
    }
}

impl Shared {
    fn observe(&self, mut last: u64) {
        let clock = StdClock::new();
        let line = (*self.line).as_ref();
        while !self.ends.load(Ordering::Acquire) {
            let word = line.load(self.slot);
            if word > last {
                let now = clock.monotonic_ns();
                last = word;
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                if seen.len() == KEPT {
                    seen.pop_front();
                }
                seen.push_back((word, now));
            } else if last >= self.expected.load(Ordering::Acquire) {
                // Whoever expects more unparks, before or after this.
                thread::park();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It has nothing to panic with.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_async_reactor::{CompletionLine, Slot};

    #[test]
    fn each_number_has_the_instant_at_which_it_came_and_a_lost_one_is_an_error() {
        let line = CompletionLine::shared();
        let observer = Observer::start(line.clone(), Slot::ALL[3]).unwrap();
        let clock = StdClock::new();
        let mut before = clock.monotonic_ns();
        for number in 1..=100 {
            observer.expect(number);
            (*line).as_ref().store(Slot::ALL[3], number);
            let came = observer.came(number).unwrap();
            assert!(came >= before && came <= clock.monotonic_ns());
            before = came;
        }
        observer.expect(101);
        assert!(observer.came(101).is_err());
    }
}
