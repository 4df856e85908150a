//! The waits that have not ended, so that the age of the oldest one can be read at any time.
//!
//! Waits begin in the order of the clock, so a list in the order of their beginnings has the oldest
//! one first. It is doubly linked through a slab: a wait begins and ends in O(1) and allocates only
//! while more waits are pending than ever before. However long one wait hangs and however many
//! others come and go meanwhile, the list is as long as the number of pending waits.
//!
//! The thread of a runtime may itself be what is stuck, in a driver call for example. What other
//! threads read is therefore published in two atomics at each beginning and end.

use crate::core::time::{Clock, DurNs, MonoNs};
use crate::host::StdClock;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The end of the list.
const NONE: u32 = u32::MAX;
/// The published beginning of the oldest wait while nothing is pending.
const NOTHING: u64 = u64::MAX;

/// The pending waits of one runtime.
#[derive(Default)]
pub(super) struct PendingWaits {
    list: RefCell<List>,
    published: Arc<Published>,
}

struct Published {
    count: AtomicUsize,
    oldest: AtomicU64,
}

impl Default for Published {
    fn default() -> Self {
        Published { count: AtomicUsize::new(0), oldest: AtomicU64::new(NOTHING) }
    }
}

struct List {
    nodes: Vec<Node>,
    first: u32,
    last: u32,
    /// The first free node; free nodes are linked by `later`.
    free: u32,
    len: usize,
}

struct Node {
    point: &'static str,
    since: MonoNs,
    earlier: u32,
    later: u32,
}

impl Default for List {
    fn default() -> Self {
        List { nodes: Vec::new(), first: NONE, last: NONE, free: NONE, len: 0 }
    }
}

/// A wait that is pending until this is dropped.
pub(super) struct PendingWait<'p> {
    waits: &'p PendingWaits,
    node: u32,
}

/// The pending waits of one point.
#[derive(Clone, Copy)]
pub(super) struct PendingAt {
    pub(super) count: u64,
    /// When the oldest of them began.
    pub(super) since: MonoNs,
}

impl PendingWaits {
    /// A wait at `point` begins at `now`.
    pub(super) fn begin(&self, point: &'static str, now: MonoNs) -> PendingWait<'_> {
        let mut list = self.list.borrow_mut();
        let node = list.push(point, now);
        self.publish(&list);
        PendingWait { waits: self, node }
    }

    /// When the oldest pending wait began.
    pub(super) fn oldest(&self) -> Option<MonoNs> {
        self.list.borrow().oldest()
    }

    /// The pending waits by point. Costs a step for each pending wait.
    pub(super) fn by_point(&self) -> BTreeMap<&'static str, PendingAt> {
        let list = self.list.borrow();
        let mut points = BTreeMap::new();
        let mut at = list.first;
        while let Some(node) = list.nodes.get(at as usize) {
            // The first one met is the oldest one of its point.
            let entry = PendingAt { count: 0, since: node.since };
            points.entry(node.point).or_insert(entry).count += 1;
            at = node.later;
        }
        points
    }

    /// What other threads may read.
    pub(super) fn health(&self, clock: StdClock) -> RuntimeHealth {
        RuntimeHealth { published: self.published.clone(), clock }
    }

    fn publish(&self, list: &List) {
        let oldest = list.oldest().map_or(NOTHING, |since| since.0);
        self.published.oldest.store(oldest, Ordering::Relaxed);
        self.published.count.store(list.len, Ordering::Relaxed);
    }
}

impl Drop for PendingWait<'_> {
    fn drop(&mut self) {
        let mut list = self.waits.list.borrow_mut();
        list.remove(self.node);
        self.waits.publish(&list);
    }
}

impl List {
    fn oldest(&self) -> Option<MonoNs> {
        self.nodes.get(self.first as usize).map(|node| node.since)
    }

    fn push(&mut self, point: &'static str, since: MonoNs) -> u32 {
        let node = Node { point, since, earlier: self.last, later: NONE };
        let at = match self.nodes.get(self.free as usize) {
            Some(free) => {
                let at = core::mem::replace(&mut self.free, free.later);
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        match self.nodes.get_mut(self.last as usize) {
            Some(last) => last.later = at,
            None => self.first = at,
        }
        self.last = at;
        self.len += 1;
        at
    }

    fn remove(&mut self, at: u32) {
        let Node { earlier, later, .. } = self.nodes[at as usize];
        match self.nodes.get_mut(earlier as usize) {
            Some(node) => node.later = later,
            None => self.first = later,
        }
        match self.nodes.get_mut(later as usize) {
            Some(node) => node.earlier = earlier,
            None => self.last = earlier,
        }
        self.nodes[at as usize].later = core::mem::replace(&mut self.free, at);
        self.len -= 1;
    }
}

/// Whether the waits of a runtime get on, readable from any thread: for a health check, which must
/// not depend on the thread that it checks. Made by [`Handle::health`](super::Handle::health).
///
/// A read is one or two relaxed loads and a read of the clock, without a lock, also while the thread
/// of the runtime is stuck in a driver call. It shows a moment shortly before. Once the runtime and
/// its handles are gone, nothing is pending any more.
#[derive(Clone)]
pub struct RuntimeHealth {
    published: Arc<Published>,
    clock: StdClock,
}

impl RuntimeHealth {
    /// The number of waits that have begun and not ended.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.published.count.load(Ordering::Relaxed)
    }

    /// The age of the oldest of them; `None` if none is pending. A wait that hangs makes it grow
    /// without limit, whatever other waits do.
    #[must_use]
    pub fn oldest_pending(&self) -> Option<DurNs> {
        let since = self.published.oldest.load(Ordering::Relaxed);
        (since != NOTHING).then(|| self.clock.monotonic_ns().since(MonoNs(since)))
    }
}

impl core::fmt::Debug for RuntimeHealth {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RuntimeHealth")
            .field("pending", &self.pending())
            .field("oldest_pending", &self.oldest_pending())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_oldest_pending_wait_is_known_whatever_order_waits_end_in(
            steps in proptest::collection::vec((any::<bool>(), any::<proptest::sample::Index>()), 1..200),
        ) {
            let waits = PendingWaits::default();
            let health = waits.health(StdClock::new());
            let mut model: Vec<(PendingWait<'_>, MonoNs, &'static str)> = Vec::new();
            let mut most = 0;
            for (now, (begin, pick)) in steps.into_iter().enumerate() {
                let now = MonoNs(now as u64);
                if begin || model.is_empty() {
                    let point = ["prefill", "decode"][now.0 as usize % 2];
                    model.push((waits.begin(point, now), now, point));
                } else {
                    model.remove(pick.index(model.len()));
                }
                most = most.max(model.len());
                prop_assert_eq!(waits.oldest(), model.first().map(|&(_, since, _)| since));
                prop_assert_eq!(health.pending(), model.len());
                prop_assert_eq!(health.oldest_pending().is_some(), !model.is_empty());
                for (point, pending) in waits.by_point() {
                    let mut of_point = model.iter().filter(|&&(_, _, own)| own == point);
                    prop_assert_eq!(of_point.clone().count() as u64, pending.count);
                    prop_assert_eq!(of_point.next().unwrap().1, pending.since);
                }
                prop_assert!(waits.list.borrow().nodes.len() <= most, "ended waits leave nothing");
            }
        }
    }
}
