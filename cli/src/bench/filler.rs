//! Tasks that always have something to do.

use gpu_async_reactor::yield_now;
use std::cell::Cell;
use std::hint::black_box;

/// Steps of arithmetic in a poll, each waiting for the one before: about 1 us.
const STEPS: u64 = 700;

/// Computes a little in each poll, for ever, and counts the polls.
pub async fn filler(polls: &Cell<u64>) {
    let mut state = 1_u64;
    loop {
        for step in 0..STEPS {
            state = black_box(state).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ step;
        }
        polls.set(polls.get() + 1);
        yield_now().await;
    }
}
