//! The floor: a loop that looks at the word.

use super::{Kind, Subject};
use crate::trigger::{Action, Trigger};
use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{Clock, SharedLine, Slot, reached};
use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};

pub fn all(line: &SharedLine) -> Vec<Box<dyn Subject>> {
    [false, true].map(|asks| Box::new(Spin { line: line.clone(), asks }) as _).into()
}

struct Spin {
    line: SharedLine,
    /// Does what a wait must do once it has seen the word: asks the status, and reads the clock for the
    /// time that the wait took.
    asks: bool,
}

const SLOT: Slot = Slot::ALL[0];

fn word(line: &SharedLine) -> &AtomicU64 {
    &(**line).as_ref().words[SLOT.index()]
}

/// The number that is stored next into the first word of `line`.
pub fn next_number(line: &SharedLine) -> u64 {
    word(line).load(Ordering::Relaxed) + 1
}

/// Stores the next number into the first word of `line`.
pub fn store_next(line: &SharedLine) -> Action {
    let line = line.clone();
    std::sync::Arc::new(move || {
        let word = word(&line);
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
            let number = next_number(&self.line);
            trigger.fire();
            while !reached(line, SLOT, number) {
                hint::spin_loop();
            }
            if self.asks {
                assert!(hint::black_box(reached(line, SLOT, number)));
                hint::black_box(clock.monotonic_ns());
            }
            trigger.since()
        };
        (0..waits).map(|_| wait()).collect()
    }
}
