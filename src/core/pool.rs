//! The pool that hands out slots and takes them back without ever confusing two users of one.
//!
//! A slot that is given back may still have a store on its way. It is handed out again only once
//! its last issued number was reached, and the next user's numbers go on from there: a late store
//! of a former user is then smaller than every number of the new one and completes nothing.
//! A slot whose number will never come (the device faulted, the store was lost) is retired.
//!
//! ```text
//! free --acquire--> leased --release, number reached-----> free
//!                   leased --release, number outstanding-> draining --reached, seen by acquire--> free
//!                   leased --retire----------------------> retired (for good, counted)
//! ```
//!
//! The pool is used through `&mut`; a backend puts it behind its own lock. Acquiring costs O(1)
//! amortised beside one look at each of at most [`DRAIN_LOOKS`] draining slots.

use super::error::{Error, ErrorCode, Result};
use super::line::{CompletionLine, OwnedDescriptor, SharedLine, Slot};
use alloc::{collections::VecDeque, string::ToString, vec::Vec};

/// How many draining slots one [`SlotPool::acquire`] looks at before it takes a fresh one.
pub const DRAIN_LOOKS: usize = 32;

/// Hands out the slots of lines that it makes as they are needed.
pub struct SlotPool<M> {
    make_line: M,
    free: Vec<SlotLease>,
    draining: VecDeque<SlotLease>,
    /// All but `draining`, which is how many there are of these.
    stats: SlotStats,
    /// Slots of lines of the callers' own, in use or with a number still outstanding.
    adopted: Vec<Adopted>,
}

struct Adopted {
    /// The address of the line, and the slot.
    place: (usize, Slot),
    issued: u64,
    leased: bool,
}

/// What became of the slots of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SlotStats {
    /// Lines made so far.
    pub lines: usize,
    /// Slots in use now.
    pub leased: usize,
    /// Slots given back whose last number has not been seen yet.
    pub draining: usize,
    /// Slots whose number will never come. They are never handed out again.
    pub retired: usize,
}

/// The right to issue the numbers of one slot. Not `Clone`: a slot has one issuer.
///
/// Dropping a lease instead of giving it back leaves the slot unused for good, which is safe.
pub struct SlotLease {
    line: SharedLine,
    slot: Slot,
    issued: u64,
}

impl SlotLease {
    /// The line.
    #[must_use]
    pub fn line(&self) -> &SharedLine {
        &self.line
    }

    /// The slot of the line.
    #[must_use]
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// The next number, larger than every number issued for this slot before.
    ///
    /// # Panics
    ///
    /// After 2^64 - 1 numbers, which at one number a nanosecond takes 584 years.
    pub fn issue(&mut self) -> u64 {
        self.issued = self.issued.checked_add(1).expect("a slot issues fewer than 2^64 numbers");
        self.issued
    }

    /// The number issued last, by this user of the slot or one before it; 0 if none was.
    #[must_use]
    pub fn last_issued(&self) -> u64 {
        self.issued
    }

    /// The descriptor of `number`.
    ///
    /// # Errors
    ///
    /// [`NeverIssued`](ErrorCode::NeverIssued) where `number` is larger than the last issued one: a
    /// wait for it could never end.
    pub fn descriptor(&self, number: u64) -> Result<OwnedDescriptor> {
        self.check_issued(number)?;
        Ok(OwnedDescriptor { line: self.line.clone(), slot: self.slot, target: number })
    }

    /// Refuses a number that was never issued.
    ///
    /// # Errors
    ///
    /// [`NeverIssued`](ErrorCode::NeverIssued).
    pub fn check_issued(&self, number: u64) -> Result<()> {
        if number <= self.issued {
            return Ok(());
        }
        Err(Error::never_issued(number, self.slot, self.issued))
    }

    fn drained(&self) -> bool {
        (*self.line).as_ref().load(self.slot) >= self.issued
    }

    fn place(&self) -> (usize, Slot) {
        (line_address(&self.line), self.slot)
    }
}

impl core::fmt::Debug for SlotLease {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SlotLease").field("slot", &self.slot).field("issued", &self.issued).finish()
    }
}

fn line_address(line: &SharedLine) -> usize {
    core::ptr::from_ref::<CompletionLine>((**line).as_ref()).addr()
}

impl Default for SlotPool<fn() -> Result<SharedLine>> {
    /// A pool of lines in host memory.
    fn default() -> Self {
        SlotPool::new(|| Ok(CompletionLine::shared()))
    }
}

impl<M: FnMut() -> Result<SharedLine>> SlotPool<M> {
    /// A pool that gets its lines, each fresh and all zero, from `make_line`.
    pub fn new(make_line: M) -> Self {
        SlotPool {
            make_line,
            free: Vec::new(),
            draining: VecDeque::new(),
            stats: SlotStats::default(),
            adopted: Vec::new(),
        }
    }

    /// A slot that nobody uses.
    ///
    /// # Errors
    ///
    /// That of `make_line`, where a new line was needed.
    pub fn acquire(&mut self) -> Result<SlotLease> {
        if self.free.is_empty() {
            self.sweep(DRAIN_LOOKS);
        }
        if self.free.is_empty() {
            let line = (self.make_line)()?;
            self.stats.lines += 1;
            let lease = |&slot: &Slot| SlotLease { line: line.clone(), slot, issued: 0 };
            self.free.extend(Slot::ALL.iter().rev().map(lease));
        }
        let lease = self.free.pop().expect("a line has slots");
        self.stats.leased += 1;
        Ok(lease)
    }

    /// The slot of a line of the caller's own, as long as this pool has not handed it out. Its
    /// numbers go on from what the word shows, or from the last number issued through this pool
    /// where that is still outstanding. Costs one look at each adopted slot.
    ///
    /// # Errors
    ///
    /// [`SlotTaken`](ErrorCode::SlotTaken) where this pool has handed it out, and it was not
    /// released since.
    pub fn adopt(&mut self, line: SharedLine, slot: Slot) -> Result<SlotLease> {
        let issued = (*line).as_ref().load(slot);
        let mut lease = SlotLease { line, slot, issued };
        match self.adopted.iter_mut().find(|adopted| adopted.place == lease.place()) {
            Some(taken) if taken.leased => {
                return Err(Error::new(ErrorCode::SlotTaken, [slot.index().to_string()]));
            }
            Some(outstanding) => {
                lease.issued = issued.max(outstanding.issued);
                outstanding.leased = true;
            }
            None => self.adopted.push(Adopted { place: lease.place(), issued, leased: true }),
        }
        self.stats.leased += 1;
        Ok(lease)
    }

    /// Gives a slot back. If its last number is still outstanding, it drains first.
    pub fn release(&mut self, lease: SlotLease) {
        self.stats.leased -= 1;
        if let Some(at) = self.adopted.iter().position(|adopted| adopted.place == lease.place()) {
            if lease.drained() {
                self.adopted.swap_remove(at);
            } else {
                self.adopted[at].issued = lease.issued;
                self.adopted[at].leased = false;
            }
        } else if lease.drained() {
            self.free.push(lease);
        } else {
            self.draining.push_back(lease);
        }
    }

    /// Takes a slot out of use for good: its outstanding number will never come.
    pub fn retire(&mut self, lease: SlotLease) {
        self.stats.leased -= 1;
        self.put_away(lease);
    }

    fn put_away(&mut self, lease: SlotLease) {
        self.stats.retired += 1;
        // The store may still land, at any time: this count of the line is never given back, so the
        // memory stays. An adopted place stays taken.
        core::mem::forget(lease.line);
    }

    /// What became of the slots.
    #[must_use]
    pub fn stats(&self) -> SlotStats {
        SlotStats { draining: self.draining.len(), ..self.stats }
    }

    /// Retires every draining slot: the device that would have stored their numbers is gone.
    pub fn retire_draining(&mut self) {
        while let Some(lease) = self.draining.pop_front() {
            self.put_away(lease);
        }
    }

    /// Lets go of the slots that nobody uses and no store can reach, and so of lines without others:
    /// they are not handed out again. What is leased or drains now can be let go of later.
    pub fn let_go(&mut self) {
        self.sweep(self.draining.len());
        self.free.clear();
    }

    /// Frees those of the next `looks` draining slots whose numbers were reached.
    fn sweep(&mut self, looks: usize) {
        for _ in 0..looks.min(self.draining.len()) {
            let lease = self.draining.pop_front().expect("counted above");
            if lease.drained() {
                self.free.push(lease);
            } else {
                self.draining.push_back(lease);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn land(lease: &OwnedDescriptor) {
        (*lease.line).as_ref().store(lease.slot, lease.target);
    }

    #[test]
    fn a_slot_with_an_outstanding_number_is_not_handed_out_and_its_late_store_completes_nothing() {
        let mut pool = SlotPool::default();
        let mut first = pool.acquire().unwrap();
        let number = first.issue();
        let late = first.descriptor(number).unwrap();
        let place = first.place();
        pool.release(first);
        assert_eq!(pool.stats().draining, 1);

        let others: Vec<SlotLease> = (0..20).map(|_| pool.acquire().unwrap()).collect();
        assert!(others.iter().all(|lease| lease.place() != place), "the store is on its way");
        others.into_iter().for_each(|lease| pool.retire(lease));

        land(&late);
        let again: Vec<SlotLease> = (0..8).map(|_| pool.acquire().unwrap()).collect();
        let mut again = again.into_iter().find(|lease| lease.place() == place).expect("drained");
        let next = again.issue();
        let waited = again.descriptor(next).unwrap();
        land(&late);
        assert!(!waited.is_complete(), "numbers go on, so the former user's completes nothing");
        land(&waited);
        assert!(waited.is_complete());
    }

    #[test]
    fn a_thousand_streams_fit_on_125_lines_and_reuse_them() {
        let mut pool = SlotPool::default();
        for _ in 0..3 {
            let leases: Vec<SlotLease> = (0..1000).map(|_| pool.acquire().unwrap()).collect();
            let mut places: Vec<_> = leases.iter().map(SlotLease::place).collect();
            places.sort_unstable();
            places.dedup();
            assert_eq!((places.len(), pool.stats().lines), (1000, 125));
            leases.into_iter().for_each(|lease| pool.release(lease));
        }
        assert_eq!(pool.stats().leased, 0);
    }

    #[test]
    fn a_retired_slot_is_counted_and_never_comes_back() {
        let mut pool = SlotPool::default();
        let mut lease = pool.acquire().unwrap();
        lease.issue();
        let place = lease.place();
        pool.retire(lease);
        let rest: Vec<SlotLease> = (0..16).map(|_| pool.acquire().unwrap()).collect();
        assert!(rest.iter().all(|lease| lease.place() != place));
        assert_eq!((pool.stats().retired, pool.stats().leased), (1, 16));
    }

    #[test]
    fn what_is_let_go_of_leaves_the_lines_to_those_who_use_them() {
        let mut pool = SlotPool::default();
        let mut used = pool.acquire().unwrap();
        let number = used.issue();
        let line = used.line().clone();
        pool.let_go();
        assert_eq!(alloc::sync::Arc::strong_count(&line), 2, "the user's and the one here");
        let outstanding = used.descriptor(number).unwrap();
        pool.release(used);
        pool.let_go();
        assert_eq!(pool.stats().draining, 1, "its store is on its way");
        land(&outstanding);
        pool.let_go();
        assert_eq!((pool.stats().draining, pool.stats().leased), (0, 0));
        drop(outstanding);
        assert_eq!(alloc::sync::Arc::strong_count(&line), 1);
    }

    #[test]
    fn what_is_draining_is_retired_with_its_device() {
        let mut pool = SlotPool::default();
        let mut lease = pool.acquire().unwrap();
        lease.issue();
        pool.release(lease);
        pool.retire_draining();
        let stats = pool.stats();
        assert_eq!((stats.draining, stats.retired, stats.leased), (0, 1, 0));
    }

    #[test]
    fn a_slot_of_ones_own_line_is_taken_once_and_goes_on_behind_an_outstanding_number() {
        let mut pool = SlotPool::default();
        let line = CompletionLine::shared();
        let slot = Slot::ALL[5];
        let mut lease = pool.adopt(line.clone(), slot).unwrap();
        let twice = pool.adopt(line.clone(), slot).unwrap_err();
        assert_eq!(twice.code(), ErrorCode::SlotTaken);
        assert_eq!(twice.to_string(), "slot 5 of this line is taken already");
        assert_eq!((lease.issue(), lease.issue()), (1, 2));
        pool.release(lease);
        let mut again = pool.adopt(line.clone(), slot).unwrap();
        assert_eq!(again.issue(), 3, "1 and 2 may still land");
        (*line).as_ref().store(slot, 3);
        pool.release(again);
        assert_eq!(pool.adopt(line, slot).unwrap().last_issued(), 3);
    }

    #[test]
    fn a_number_that_was_never_issued_cannot_be_waited_for() {
        let mut pool = SlotPool::default();
        let mut lease = pool.acquire().unwrap();
        lease.issue();
        assert!(lease.descriptor(1).is_ok());
        let error = lease.descriptor(2).unwrap_err();
        assert_eq!(error.code(), ErrorCode::NeverIssued);
        assert_eq!(error.args()[0], "2");
    }

    #[test]
    fn the_error_of_a_line_maker_comes_through_and_the_pool_goes_on() {
        let mut fail = true;
        let mut pool = SlotPool::new(|| {
            if core::mem::take(&mut fail) {
                return Err(Error::backend("map a line", "no memory"));
            }
            Ok(CompletionLine::shared())
        });
        assert_eq!(pool.acquire().unwrap_err().code(), ErrorCode::Backend);
        assert_eq!(pool.acquire().unwrap().slot(), Slot::ALL[0]);
    }
}
