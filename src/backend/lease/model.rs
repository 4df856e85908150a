//! The reclaim list under the model checker: every interleaving of dropped leases with sweeps.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release --lib model`.

use super::node::Place;
use super::{DeviceBuffer, LeaseCounts, LeaseStats, LeaseStream, Reclaim};
use crate::core::error::Result;
use crate::core::line::{CompletionLine, SharedLine, Slot};
use crate::core::port::DeviceStream;
use alloc::{sync::Arc, vec::Vec};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// A stream whose status is its word.
struct WordStream {
    line: SharedLine,
    reclaim: Reclaim,
}

impl DeviceStream for WordStream {
    fn line(&self) -> &SharedLine {
        &self.line
    }

    fn slot(&self) -> Slot {
        Slot::ALL[0]
    }

    fn query(&self) -> Result<bool> {
        Ok(true)
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn mark(&self) -> Result<u64> {
        Ok(1)
    }

    fn query_mark(&self, number: u64) -> Result<bool> {
        Ok((*self.line).as_ref().load(Slot::ALL[0]) >= number)
    }

    fn synchronize_mark(&self, _: u64) -> Result<()> {
        Ok(())
    }
}

impl LeaseStream for WordStream {
    fn reclaim(&self) -> &Reclaim {
        &self.reclaim
    }
}

/// Counts its destructions.
struct Counted(Arc<AtomicUsize>);

// SAFETY: no memory at all: a dangling address is valid for zero bytes.
unsafe impl DeviceBuffer for Counted {
    fn address(&self) -> NonNull<u8> {
        NonNull::dangling()
    }

    fn bytes(&self) -> usize {
        0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn every_dropped_lease_is_reclaimed_once_and_a_later_lease_finds_each_whose_number_is_there() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let counts = Arc::new(LeaseCounts::default());
        let dropped = Arc::new(AtomicUsize::new(0));
        let reclaim = Reclaim::new(counts.clone());
        let stream = Arc::new(WordStream { line: CompletionLine::shared(), reclaim });
        let dropping: Vec<_> = [1, 2]
            .into_iter()
            .map(|number| {
                let stream = stream.clone();
                let dropped = dropped.clone();
                thread::spawn(move || {
                    let leased_on: Arc<dyn LeaseStream> = stream.clone();
                    stream.reclaim.leased();
                    stream.reclaim.wait(Place::new(Counted(dropped), &leased_on), number);
                })
            })
            .collect();
        let device = {
            let line = stream.line.clone();
            thread::spawn(move || (*line).as_ref().store(Slot::ALL[0], 1))
        };
        // Finds none, one or both; what is pending goes back.
        stream.reclaim.sweep_reached(&*stream);
        stream.sweep();
        dropping.into_iter().for_each(|thread| thread.join().unwrap());
        device.join().unwrap();
        stream.reclaim.sweep_reached(&*stream);
        assert_eq!(dropped.load(Ordering::Relaxed), 1, "the one that is done, once");
        (*stream.line).as_ref().store(Slot::ALL[0], 2);
        stream.reclaim.sweep_reached(&*stream);
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
        assert_eq!(counts.get(), LeaseStats::default());
    });
}
