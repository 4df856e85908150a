//! No store is lost between a look and a wait (F3), under the model checker (`scripts/check-models`).
//!
//! The modelled CPU's monitor is a count of the line's stores: an arm remembers it, and a wait lasts while
//! it is unchanged. A store changes the word first and is noticed by the monitor afterwards, so that the
//! arm may fall between the two. The waits have no deadline here: a lost store is a deadlock, which loom
//! reports.

use super::monitor::{Ended, Monitor, park};
use super::scale::Scale;
use crate::core::line::{CompletionLine, Slot, reached};
use crate::core::time::{DurNs, MonoNs};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::cell::Cell;
use std::vec::Vec;

const SLOT: Slot = Slot::ALL[0];

#[derive(Default)]
struct Cache {
    line: CompletionLine,
    stores: Mutex<u64>,
    noticed: Condvar,
}

impl Cache {
    /// A device, or another CPU.
    fn store(&self, slot: Slot, number: u64) {
        self.line.store(slot, number);
        *self.stores.lock().unwrap() += 1;
        self.noticed.notify_one();
    }
}

struct Cpu {
    cache: Arc<Cache>,
    armed: Cell<u64>,
}

impl Monitor for Cpu {
    fn ticks(&self) -> u64 {
        0
    }

    fn arm(&self, _: &CompletionLine) {
        self.armed.set(*self.cache.stores.lock().unwrap());
    }

    fn wait(&self, _: u64) -> Ended {
        let mut stores = self.cache.stores.lock().unwrap();
        while *stores == self.armed.get() {
            stores = self.cache.noticed.wait(stores).unwrap();
        }
        Ended::Unknown
    }
}

fn parks(target: u64, stores: &'static [(Slot, u64)]) {
    loom::model(move || {
        let cache = Arc::new(Cache::default());
        let device = {
            let cache = cache.clone();
            thread::spawn(move || {
                stores.iter().for_each(|(slot, number)| cache.store(*slot, *number));
            })
        };
        let cpu = Cpu { cache: cache.clone(), armed: Cell::new(0) };
        let scale = Scale { hz: 1, error_ppm: 0 };
        let looks = Cell::new(Vec::new());
        let ready = |line: &CompletionLine| {
            let seen = reached(line, SLOT, target);
            let mut all = looks.take();
            all.push(seen);
            looks.set(all);
            seen
        };
        let parked = park(&cpu, &scale, || MonoNs(0), &cache.line, ready, DurNs::MAX);
        assert!(parked.ready && reached(&cache.line, SLOT, target));
        assert_eq!(looks.take().iter().filter(|seen| **seen).count(), 1);
        // Each store ends one wait at most, whether or not it makes anything ready.
        assert!(parked.waits <= stores.len() as u64);
        device.join().unwrap();
    });
}

#[test]
fn model_a_store_at_any_point_of_a_park_ends_it() {
    parks(1, &[(SLOT, 1)]);
}

#[test]
fn model_stores_that_make_nothing_ready_do_not_hide_the_one_that_does() {
    parks(2, &[(SLOT, 1), (Slot::ALL[5], 9), (SLOT, 2)]);
}
