//! The floor: a loop that looks at the word.

use super::{Kind, Subject};
use crate::trigger::{Action, Trigger};
use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{Clock, CompletionLine, SharedLine, Slot, reached};
use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};

pub fn all() -> Vec<Box<dyn Subject>> {
    vec![Box::new(Spin::new(false)), Box::new(Spin::new(true))]
}

struct Spin {
    line: SharedLine,
    stored: u64,
    /// Does what a wait must do once it has seen the word: asks the status, and reads the clock for the
    /// time that the wait took.
    asks: bool,
}

const SLOT: Slot = Slot::ALL[0];

impl Spin {
    fn new(asks: bool) -> Self {
        Spin { line: CompletionLine::shared(), stored: 0, asks }
    }
}

/// Stores the next number into the first word of `line`.
pub fn store_next(line: &SharedLine) -> Action {
    let line = line.clone();
    std::sync::Arc::new(move || {
        let word: &AtomicU64 = &(*line).as_ref().words[SLOT.index()];
        // One issuer: a load and a store.
        word.store(word.load(Ordering::Relaxed) + 1, Ordering::Release);
    })
}

impl Subject for Spin {
    fn name(&self) -> &str {
        if self.asks { "raw spin, then a status query and a clock read" } else { "raw spin" }
    }

    fn kind(&self) -> Kind {
        if self.asks { Kind::Peer } else { Kind::RawSpin }
    }

    fn action(&self) -> Action {
        store_next(&self.line)
    }

    fn wait(&mut self, trigger: &mut Trigger, waits: usize) -> Vec<f64> {
        let (clock, line) = (StdClock::new(), (*self.line).as_ref());
        let mut wait = || {
            self.stored += 1;
            trigger.fire();
            while !reached(line, SLOT, self.stored) {
                hint::spin_loop();
            }
            if self.asks {
                assert!(hint::black_box(reached(line, SLOT, self.stored)));
                hint::black_box(clock.monotonic_ns());
            }
            trigger.since()
        };
        (0..waits).map(|_| wait()).collect()
    }
}
