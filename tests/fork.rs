//! A child that was forked while devices, watchers and leases were in use, by threads that do not
//! exist in it.
//!
//! One test, alone in its process: a fork copies what every other thread is in the middle of. Each
//! child is bounded by an alarm and ends by `_exit`; its status says how it went.
#![cfg(all(unix, feature = "software"))]

mod common;

use common::{Watchdog, descriptor, wait_for};
use gpu_async_reactor::backend::lease::{DeviceBuffer, Lease, LeaseStream, PinnedBuffer, Reclaim};
use gpu_async_reactor::backend::software::{
    Fault, Hang, QueryFault, SoftwareBuffer, SoftwareDevice, SoftwareStream, StoreFault, Work,
};
use gpu_async_reactor::host::{
    ParkPolicy, StdClock, StdIdle, WatchError, WatchOptions, WatchPolicy, Watcher,
};
use gpu_async_reactor::{
    CompletionLine, DeviceStream, Doorbell, DurNs, Error, ErrorCode, Result, SharedLine, Slot,
    ThreadPort, WaitPlan, run_inline,
};
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

/// Longer than a child takes on a busy machine, shorter than what it would wait for in vain.
const CHILD_SECONDS: u32 = 15;
const FORKS: usize = 30;

/// What stays longer than a child may take, should it wait for it.
const PATIENCE: DurNs = DurNs::from_ms(60_000);

/// Counts its drops.
struct Flag(Arc<AtomicUsize>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Memory whose end is seen.
struct Flagged(PinnedBuffer, #[expect(dead_code, reason = "for its drop")] Flag);

// SAFETY: the memory is that of a `PinnedBuffer`, which meets the contract and is nobody else's.
unsafe impl DeviceBuffer for Flagged {
    fn address(&self) -> NonNull<u8> {
        self.0.address()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// A stream of the program's own that does not know of forks: all is done at once.
struct Done {
    line: SharedLine,
    reclaim: Reclaim,
}

impl DeviceStream for Done {
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

    fn query_mark(&self, _: u64) -> Result<bool> {
        Ok(true)
    }

    fn synchronize_mark(&self, _: u64) -> Result<()> {
        Ok(())
    }
}

impl LeaseStream for Done {
    fn reclaim(&self) -> &Reclaim {
        &self.reclaim
    }
}

/// What the parent has made, and a child has a copy of.
struct Parent {
    device: SoftwareDevice,
    stream: SoftwareStream,
    hang: Hang,
    locked: SoftwareBuffer,
    lease: Lease<PinnedBuffer>,
    last_handle: Lease<PinnedBuffer>,
    watcher: Watcher,
    waiting: Pin<Box<dyn Future<Output = Result<(), WatchError>> + Send>>,
    fresh: Pin<Box<dyn Future<Output = Result<(), WatchError>> + Send>>,
    unpolled: Pin<Box<dyn Future<Output = Result<(), WatchError>> + Send>>,
    /// The last handle of a stream that has a buffer waiting which is done.
    ended: Arc<dyn LeaseStream>,
    /// The same of a stream of the program's own.
    own: Arc<dyn LeaseStream>,
    dropped: Arc<AtomicUsize>,
}

/// What other threads use all the time, so that a fork finds its locks held now and then.
struct Busy {
    stream: SoftwareStream,
    device: SoftwareDevice,
    hang: Hang,
}

impl Busy {
    fn new() -> Self {
        let device = SoftwareDevice::new().unwrap();
        Busy { stream: device.stream().unwrap(), device, hang: Hang::new() }
    }
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn boxed<F>(watch: F) -> Pin<Box<dyn Future<Output = Result<(), WatchError>> + Send>>
where
    F: Future<Output = Result<gpu_async_reactor::Waited, WatchError>> + Send + 'static,
{
    Box::pin(async move { watch.await.map(drop) })
}

impl Parent {
    fn new(busy: &Busy) -> Self {
        let device = SoftwareDevice::new().unwrap();
        let stream = device.stream().unwrap();
        let hang = Hang::new();
        let dropped: Arc<AtomicUsize> = Arc::default();
        let flag = Flag(dropped.clone());
        stream.queue(Work::new().hang(&hang).run(move || drop(flag))).unwrap();
        let (lease, ()) = stream.lease(PinnedBuffer::new(64), |_| Ok(())).unwrap();
        // Its own stream's handle is gone, and nobody but the lease has that.
        let (last_handle, ()) =
            device.stream().unwrap().lease(PinnedBuffer::new(64), |_| Ok(())).unwrap();
        drop(stream.lease(PinnedBuffer::new(64), |_| Ok(())).unwrap());
        let policy = WatchPolicy { patience: PATIENCE, ..WatchPolicy::SAVING };
        let watcher = Watcher::new(policy).unwrap();
        let number = lease.ticket().number();
        let options = WatchOptions::new(DurNs::from_ms(1));
        let watch = || {
            let (of_stream, flag) = (lease.stream().clone(), Flag(dropped.clone()));
            boxed(watcher.watch(lease.descriptor(), options, move || {
                let _ = &flag;
                of_stream.query_mark(number)
            }))
        };
        let (mut waiting, fresh, unpolled) = (watch(), watch(), watch());
        assert!(waiting.as_mut().poll(&mut context()).is_pending());
        let locked = SoftwareBuffer::new(8);
        let ends = busy.device.stream().unwrap();
        let flagged = Flagged(PinnedBuffer::new(8), Flag(dropped.clone()));
        let (early, ()) = ends.lease(flagged, |_| Ok(())).unwrap();
        let ended = early.stream().clone();
        drop(early);
        ends.synchronize().unwrap();
        drop(ends);
        let own = Done { line: CompletionLine::shared(), reclaim: Reclaim::default() };
        let own: Arc<dyn LeaseStream> = Arc::new(own);
        let flagged = Flagged(PinnedBuffer::new(8), Flag(dropped.clone()));
        drop(Lease::new(own.clone(), flagged, |_| Ok(())).unwrap());
        Parent {
            device,
            stream,
            hang,
            locked,
            lease,
            last_handle,
            watcher,
            waiting,
            fresh,
            unpolled,
            ended,
            own,
            dropped,
        }
    }

    /// Every call in a child, then every drop.
    fn use_in_child(self) {
        let Parent { device, stream, hang, locked, lease, last_handle, .. } = &self;
        forked(device.stream());
        forked(device.stream_on(&Doorbell::new()));
        assert!(device.caps().store.unwrap_err().contains("before the process was forked"));
        device.lose(Fault::new(1, "NOT_HERE"));
        device.close();
        assert_eq!(device.slots().leased, 0);
        assert_eq!(device.calls().total(), 0);

        forked(stream.query());
        forked(stream.synchronize());
        forked(stream.mark());
        forked(stream.query_mark(1));
        forked(stream.synchronize_mark(1));
        forked(stream.delay(DurNs::ZERO));
        forked(stream.run(|| {}));
        forked(stream.queue(Work::new()));
        stream.inject_store(StoreFault::Lost);
        stream.inject_query(QueryFault::Hang(hang.clone()));
        assert_eq!((stream.stamp_of(1), stream.sweep()), (None, 0));

        hang.release();
        assert_eq!((hang.is_released(), hang.holding()), (false, 0));
        // A thread of the parent's has its lock for ever.
        panic::set_hook(Box::new(|_| {}));
        assert!(catch_unwind(|| locked.read(<[u8]>::len)).is_err());
        assert!(catch_unwind(|| locked.write(0, &[1])).is_err());
        drop(panic::take_hook());
        assert_eq!(locked.len(), 8);

        forked(stream.lease(PinnedBuffer::new(8), |_| -> Result<()> { panic!("is not called") }));
        forked(stream.read_back::<u8, _>(locked, 0..8, PinnedBuffer::new(8)));
        forked(stream.upload(PinnedBuffer::new(8), locked, 0));
        forked(lease.stream().query());
        forked(lease.stream().synchronize());
        forked(lease.stream().mark());
        assert_eq!((lease.stream().sweep(), last_handle.stream().sweep()), (0, 0));

        let Parent {
            device,
            stream,
            hang,
            lease,
            last_handle,
            watcher,
            mut waiting,
            mut fresh,
            unpolled,
            ended,
            own,
            dropped,
            locked,
        } = self;
        is_forked(lease.try_take().unwrap_err().error().unwrap());
        let plan = WaitPlan::parse("spin:backstop_us=1000").unwrap();
        let idle = StdIdle::with(StdClock::new(), ParkPolicy::default());
        let (mut port, clock) =
            (ThreadPort::new(last_handle.stream().clone(), idle), StdClock::new());
        let waited = run_inline(last_handle.wait(&plan, None, &mut port, &clock)).unwrap();
        is_forked(waited.unwrap_err().error().unwrap());
        drop(port);

        let options = WatchOptions::new(DurNs::from_ms(1));
        let mut newest = boxed(watcher.watch(descriptor(&stream, 1), options, || Ok(false)));
        for watch in [&mut waiting, &mut fresh, &mut newest] {
            match watch.as_mut().poll(&mut context()) {
                Poll::Ready(Err(WatchError::Watcher(error))) => is_forked(&error),
                other => panic!("{other:?}"),
            }
        }
        // One handle of each twice, and a watch that was never polled.
        drop((watcher.clone(), device.clone(), hang.clone()));
        drop((waiting, fresh, newest, unpolled, watcher));
        assert_eq!(own.sweep(), 0);
        drop((stream, device, hang, locked, ended, own));
        assert_eq!(
            dropped.load(Ordering::SeqCst),
            0,
            "what the parent's threads have is not dropped"
        );
    }
}

fn forked<T>(answer: Result<T>) {
    is_forked(&answer.err().expect("a call that does not work in a child"));
}

fn is_forked(error: &Error) {
    assert_eq!(error.code(), ErrorCode::Forked, "{error}");
}

/// A device, a lease and a watcher of this process's own.
fn use_fresh_ones() {
    let device = SoftwareDevice::new().unwrap();
    let stream = device.stream().unwrap();
    let source = SoftwareBuffer::from(vec![1, 2, 3, 4]);
    let readback = stream.read_back::<u8, _>(&source, 0..4, PinnedBuffer::new(4)).unwrap();
    stream.synchronize().unwrap();
    let landed = readback.try_read().unwrap();
    assert_eq!(*landed, [1, 2, 3, 4]);
    drop(stream.lease(landed.into_buffer(), |_| Ok(())).unwrap());
    stream.synchronize().unwrap();
    assert_eq!(stream.sweep(), 1);
    assert!(device.caps().store.is_ok());

    let watcher = Watcher::new(WatchPolicy::SAVING).unwrap();
    let stream = Arc::new(stream);
    let number = stream.mark().unwrap();
    let options = WatchOptions::new(DurNs::from_ms(1));
    let mut watch = pin!(watcher.watch_stream(stream.clone(), number, options));
    loop {
        if let Poll::Ready(ended) = watch.as_mut().poll(&mut context()) {
            ended.unwrap();
            break;
        }
        thread::yield_now();
    }
    device.close();
}

/// Runs `code` in a forked child, and says whether it came to its end in time.
fn in_child(code: impl FnOnce()) -> bool {
    // SAFETY: the child has one thread, and calls what this test is about: code that must work where
    // the locks of other threads are held for ever. It ends by `_exit`, at the latest by its alarm.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        // SAFETY: without a handler the alarm ends the process.
        unsafe { libc::alarm(CHILD_SECONDS) };
        let went = catch_unwind(AssertUnwindSafe(code));
        // SAFETY: it ends this process at once.
        unsafe { libc::_exit(if went.is_ok() { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` outlives the call, and the child is this process's own.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7
}

#[test]
fn a_forked_child_gets_an_error_from_every_call_and_waits_for_nobody_and_its_own_devices_work() {
    // The standard library's threads take a lock of its own when they start and end, which a child would
    // wait for in vain. So this one is forked while none does: the worker has begun, since it has worked.
    let settled = SoftwareDevice::builder().workers(1).build().unwrap();
    let stream = settled.stream().unwrap();
    stream.synchronize_mark(stream.mark().unwrap()).unwrap();
    assert!(in_child(use_fresh_ones), "devices and watchers of the child's own work");
    drop((stream, settled));
    let _watchdog = Watchdog::new("fork");
    let stop = AtomicBool::new(false);
    let busy = Busy::new();
    thread::scope(|scope| {
        // Threads that hold the locks of a device, of a stream and of a hang, now and then.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let stream = busy.device.stream().unwrap();
                drop(stream.lease(PinnedBuffer::new(8), |_| Ok(())).unwrap());
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(busy.stream.stamp_of(1).is_none() && !busy.hang.is_released());
            }
        });
        let gone_on = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..FORKS {
                in_parent_and_child(&busy);
            }
        }));
        stop.store(true, Ordering::Relaxed);
        assert!(gone_on.is_ok(), "see above");
    });
}

fn in_parent_and_child(busy: &Busy) {
    let parent = Parent::new(busy);
    let (dropped, locked) = (parent.dropped.clone(), parent.locked.clone());
    let (held, go) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            locked.read(|_| {
                held.store(true, Ordering::Release);
                wait_for(|| go.load(Ordering::Acquire));
            });
        });
        wait_for(|| held.load(Ordering::Acquire));
        // SAFETY: the child, whose memory is its own, uses and drops these copies; the parent forgets
        // them and goes on with the originals.
        let copies =
            unsafe { (std::ptr::read(&raw const parent), std::ptr::read(&raw const *busy)) };
        let copies = std::mem::ManuallyDrop::new(copies);
        let went = in_child(|| {
            let (parent, busy) = std::mem::ManuallyDrop::into_inner(copies);
            parent.use_in_child();
            busy.hang.release();
            drop(busy);
        });
        go.store(true, Ordering::Release);
        assert!(went, "the child failed, or waited for somebody");
    });
    // The parent is as before.
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
    let Parent { device, stream, hang, lease, mut waiting, .. } = parent;
    hang.release();
    stream.synchronize().unwrap();
    assert_eq!(lease.try_take().unwrap().bytes(), 64);
    assert_eq!(stream.sweep(), 1);
    wait_for(|| stream.query().unwrap());
    while waiting.as_mut().poll(&mut context()).is_pending() {
        thread::yield_now();
    }
    device.close();
}
