//! The doorbell's count of wakes under the model checker: a ring for a wake alone never hides a ring
//! for a store, in whatever order the two and the reader come.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release --lib model`.

use super::scan::Seen;
use crate::core::doorbell::Doorbell;
use crate::core::sync::{AtomicU32, Ordering};
use alloc::sync::Arc;
use loom::thread;

#[test]
fn a_ring_for_a_wake_hides_no_ring_for_a_store() {
    loom::model(|| {
        let doorbell = Doorbell::new();
        let slot = Arc::new(AtomicU32::new(0));
        let mut last = Seen::now(&doorbell);
        let (bell, word) = (doorbell.clone(), slot.clone());
        let device = thread::spawn(move || {
            word.store(1, Ordering::Relaxed);
            bell.ring();
        });
        let bell = doorbell.clone();
        let waker = thread::spawn(move || bell.ring_for_wake());

        let mut found = false;
        let mut look = || {
            let seen = Seen::now(&doorbell);
            if seen.rung_since(&last) {
                last = seen;
                found |= slot.load(Ordering::Relaxed) == 1;
            }
        };
        (look(), look());
        device.join().unwrap();
        waker.join().unwrap();
        look();
        assert!(found, "the store was rung for and no look has scanned for it");
    });
}
