//! Leases on a stream that is not of this library: what they take of it and what they do not.

use gpu_async_reactor::backend::lease::{
    DeviceBuffer, Lease, LeaseCounts, LeaseStats, LeaseStream, PinnedBuffer, Reclaim,
};
use gpu_async_reactor::{CompletionLine, DeviceStream, Error, ErrorCode, Result, SharedLine, Slot};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A device that does what the test says.
struct Scripted {
    line: SharedLine,
    issued: AtomicU64,
    done: AtomicU64,
    error: Mutex<Option<ErrorCode>>,
    panics: AtomicBool,
    /// Says done of everything.
    lies: bool,
    reclaim: Arc<Reclaim>,
}

impl Scripted {
    fn new(reclaim: Arc<Reclaim>) -> Self {
        Scripted {
            line: CompletionLine::shared(),
            issued: AtomicU64::new(0),
            done: AtomicU64::new(0),
            error: Mutex::new(None),
            panics: AtomicBool::new(false),
            lies: false,
            reclaim,
        }
    }

    fn fail(&self, error: Option<ErrorCode>) {
        *self.error.lock().unwrap() = error;
    }
}

impl DeviceStream for Scripted {
    fn line(&self) -> &SharedLine {
        &self.line
    }

    fn slot(&self) -> Slot {
        Slot::ALL[0]
    }

    fn query(&self) -> Result<bool> {
        self.query_mark(self.issued.load(Ordering::SeqCst))
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn mark(&self) -> Result<u64> {
        Ok(self.issued.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn query_mark(&self, number: u64) -> Result<bool> {
        assert!(!self.panics.load(Ordering::SeqCst), "a status that panics");
        match *self.error.lock().unwrap() {
            Some(code) => Err(Error::new(code, ["query_mark", "stream"])),
            None => Ok(self.lies || self.done.load(Ordering::SeqCst) >= number),
        }
    }

    fn synchronize_mark(&self, _: u64) -> Result<()> {
        Ok(())
    }
}

impl LeaseStream for Scripted {
    fn reclaim(&self) -> &Reclaim {
        &self.reclaim
    }
}

struct Counted(PinnedBuffer, Arc<AtomicUsize>);

// SAFETY: the memory is that of a `PinnedBuffer`, which meets the contract and is nobody else's.
unsafe impl DeviceBuffer for Counted {
    fn address(&self) -> NonNull<u8> {
        self.0.address()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

struct Rig {
    counts: Arc<LeaseCounts>,
    reclaim: Arc<Reclaim>,
    stream: Arc<Scripted>,
    dropped: Arc<AtomicUsize>,
}

impl Rig {
    fn new() -> Self {
        let counts = Arc::new(LeaseCounts::default());
        let reclaim = Arc::new(Reclaim::new(counts.clone()));
        let stream = Arc::new(Scripted::new(reclaim.clone()));
        Rig { counts, reclaim, stream, dropped: Arc::default() }
    }

    fn lease(&self) -> Lease<Counted> {
        let buffer = Counted(PinnedBuffer::new(8), self.dropped.clone());
        Lease::new(self.stream.clone(), buffer, |_| Ok(())).unwrap().0
    }

    fn dropped(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }
}

fn stats(leased: usize, waiting: usize, leaked: usize) -> LeaseStats {
    LeaseStats { leased, waiting, leaked, panicked: 0 }
}

#[test]
fn a_list_whose_stream_said_no_last_word_leaks_and_counts_what_waits() {
    let rig = Rig::new();
    drop(rig.lease());
    drop(rig.lease());
    rig.stream.done.store(2, Ordering::SeqCst);
    let Rig { counts, reclaim, stream, dropped } = rig;
    drop(stream);
    drop(reclaim);
    assert_eq!((dropped.load(Ordering::SeqCst), counts.get()), (0, stats(0, 0, 2)));
}

#[test]
fn a_sweep_without_its_stream_leaks_and_counts() {
    let rig = Rig::new();
    drop(rig.lease());
    let Rig { counts, reclaim, stream, .. } = rig;
    drop(stream);
    assert_eq!((reclaim.sweep(), counts.get()), (0, stats(0, 0, 1)));
}

#[test]
fn a_status_that_panics_in_a_sweep_loses_no_waiting_buffer() {
    let rig = Rig::new();
    (0..3).for_each(|_| drop(rig.lease()));
    rig.stream.panics.store(true, Ordering::SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| rig.stream.sweep())).is_err());
    assert_eq!(rig.counts.get(), stats(3, 3, 0));
    rig.stream.panics.store(false, Ordering::SeqCst);
    rig.stream.done.store(2, Ordering::SeqCst);
    assert_eq!(rig.stream.sweep(), 2);
    (*rig.stream.line).as_ref().store(Slot::ALL[0], 3);
    rig.stream.done.store(3, Ordering::SeqCst);
    drop(rig.lease());
    assert_eq!((rig.dropped(), rig.counts.get()), (3, stats(1, 1, 0)), "found by the next lease");
}

#[test]
fn a_status_that_cannot_be_asked_here_and_now_says_nothing_about_the_device() {
    let rig = Rig::new();
    drop(rig.lease());
    for code in [ErrorCode::ForeignThread, ErrorCode::Captured] {
        rig.stream.fail(Some(code));
        assert_eq!((rig.stream.sweep(), rig.counts.get()), (0, stats(1, 1, 0)));
    }
    rig.stream.fail(None);
    rig.stream.done.store(1, Ordering::SeqCst);
    assert_eq!((rig.stream.sweep(), rig.counts.get()), (1, stats(0, 0, 0)));
}

#[test]
fn only_the_stream_of_a_lease_can_say_that_it_is_over() {
    let rig = Rig::new();
    drop(rig.lease());
    let liar = Scripted { lies: true, ..Scripted::new(rig.reclaim.clone()) };
    (*liar.line).as_ref().store(Slot::ALL[0], u64::MAX);
    assert_eq!(liar.sweep(), 0);
    let of_liar: Arc<dyn LeaseStream> = Arc::new(liar);
    let next = Lease::new(of_liar, PinnedBuffer::new(8), |_| Ok(())).unwrap().0;
    assert_eq!((rig.dropped(), rig.counts.get()), (0, stats(2, 1, 0)));
    assert!(next.try_take().is_ok(), "its own leases are its own business");
}
