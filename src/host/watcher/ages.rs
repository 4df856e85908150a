//! Which pending watch is the oldest.
//!
//! Watches stand in the order in which they were taken up, which is that of their ages. Those that
//! have ended are passed over once they come to the front, and cleared out once they are more than
//! half.

use crate::core::reactor::waiters::Registration;
use crate::core::time::MonoNs;
use alloc::collections::VecDeque;

#[derive(Default)]
pub(super) struct Ages {
    began: VecDeque<(Registration, MonoNs)>,
}

impl Ages {
    /// A watch that began at `began` was taken up, beside `live` others at most; `is_live` knows
    /// them.
    pub(super) fn enter(
        &mut self,
        registration: Registration,
        began: MonoNs,
        live: usize,
        is_live: impl Fn(Registration) -> bool,
    ) {
        self.began.push_back((registration, began));
        if self.began.len() > 2 * live + 64 {
            self.began.retain(|&(registration, _)| is_live(registration));
        }
    }

    /// When the oldest live watch began; `MAX` if there is none.
    pub(super) fn oldest(&mut self, is_live: impl Fn(Registration) -> bool) -> MonoNs {
        while let Some(&(registration, began)) = self.began.front() {
            if is_live(registration) {
                return began;
            }
            self.began.pop_front();
        }
        MonoNs::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[test]
    fn the_oldest_is_found_and_what_has_ended_is_not_kept() {
        let mut ages = Ages::default();
        let first_live = Cell::new(0);
        let is_live = |registration: Registration| {
            registration.ticket >= first_live.get() || registration.ticket == 7
        };
        assert_eq!(ages.oldest(is_live), MonoNs::MAX);
        for ticket in 0..10_000 {
            let registration = Registration { place: 0, ticket };
            ages.enter(registration, MonoNs(ticket), 10, is_live);
            first_live.set(ticket.saturating_sub(8));
            assert!(ages.began.len() <= 2 * 10 + 65);
            assert_eq!(ages.oldest(is_live), MonoNs(first_live.get().min(7)));
        }
    }
}
