//! Code of the program that a ring runs on the idling thread: wakers, and the destructors of buffers.
//! What it makes ready is run at once, and its panics cost nobody else anything.
#![cfg(all(feature = "io-uring", target_os = "linux", not(loom)))]

mod ring;

use gpu_async_reactor::host::uring::IoBufMut;
use gpu_async_reactor::host::{Runtime, StdClock};
use gpu_async_reactor::{Clock, DurNs, Executor, Idle, MonoNs, Reactor};
use ring::{BOUND, Task, now, pair, poll_once, ring};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// A pool of one buffer, and the task that waits for it.
#[derive(Default)]
struct Pool {
    has_one: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

impl Pool {
    async fn take(&self) {
        poll_fn(|cx| {
            if self.has_one.take() {
                return Poll::Ready(());
            }
            *self.waiting.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn put(&self) {
        self.has_one.set(true);
        let waiting = self.waiting.take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

/// A buffer that does something when it is dropped.
struct OnDrop<F: FnMut()>(Vec<u8>, F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.1)();
    }
}

// SAFETY: the vector inside owns its memory, and nobody else reaches it.
unsafe impl<F: FnMut() + 'static> IoBufMut for OnDrop<F> {
    fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        self.0.spare()
    }

    unsafe fn advance(&mut self, count: usize) {
        // SAFETY: the caller's promise is the same about the vector.
        unsafe { self.0.advance(count) };
    }
}

/// How long after a receive was dropped a task runs that waits for its buffer, while all else sleeps
/// until an alarm `far` away.
fn time_until_the_buffer_is_used(far: DurNs) -> Option<DurNs> {
    let mut idle = ring(8)?;
    let handle = idle.handle();
    let (reader, _writer) = pair();
    let pool = Rc::new(Pool::default());
    let reactor = Reactor::new(StdClock::new());
    let (dropped_at, took) = (Cell::new(MonoNs(0)), Cell::new(None));
    let mut executor: Executor<Task> = Executor::new();
    executor.spawn(Box::pin(async {
        pool.take().await;
        took.set(Some(now().since(dropped_at.get())));
    }));
    let main = async {
        let of_buffer = pool.clone();
        let buffer = OnDrop(Vec::with_capacity(64), move || of_buffer.put());
        let mut receive = handle.recv(&reader, buffer);
        assert!(poll_once(&mut receive).is_pending());
        // The kernel has it after that.
        handle.timeout(now()).await.unwrap();
        dropped_at.set(now());
        drop(receive);
        reactor.alarm(now().after(far)).await;
    };
    executor.run_until(&reactor, &mut idle, BOUND, main).unwrap();
    Some(took.get().expect("it ran"))
}

#[test]
fn a_wake_by_the_drop_of_a_buffer_ends_the_sleep_that_the_buffer_was_freed_in() {
    let far = DurNs::from_ms(400);
    let mut all = Vec::new();
    for _ in 0..5 {
        let Some(took) = time_until_the_buffer_is_used(far) else { return };
        all.push(took);
    }
    let best = *all.iter().min().unwrap();
    println!("the task that waits for the buffer ran {best} after the drop at best");
    assert!(best < DurNs::from_ms(100), "{best} at best: only the alarm ended the sleep");
}

/// A payload whose destructor panics too.
struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("the destructor of a payload");
    }
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic_any(PanicsOnDrop);
    }
}

#[derive(Default)]
struct Counts(AtomicUsize);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn one_waker_or_buffer_that_panics_keeps_no_other_from_being_woken_or_freed() {
    let Ok(runtime) = Runtime::builder("poll", "io-uring").strict().build() else { return };
    let ring = runtime.uring().unwrap().clone();
    let (counts, freed) = (Arc::new(Counts::default()), Rc::new(Cell::new(0)));
    let (good, bad) = (Waker::from(counts.clone()), Waker::from(Arc::new(Panics)));
    let mut operations: Vec<_> = (0..10).map(|_| ring.nop()).collect();
    for (at, operation) in operations.iter_mut().enumerate() {
        let mut cx = Context::from_waker(if at == 3 { &bad } else { &good });
        assert!(Pin::new(operation).poll(&mut cx).is_pending());
    }
    // Ten receives that the kernel has, dropped: every second buffer panics when it is freed.
    let (reader, _writer) = pair();
    let receives: Vec<_> = (0..10)
        .map(|at| {
            let freed = freed.clone();
            let buffer = OnDrop(Vec::with_capacity(8), move || {
                freed.set(freed.get() + 1);
                if at % 2 == 0 {
                    panic_any(PanicsOnDrop);
                }
            });
            let mut receive = ring.recv(&reader, buffer);
            assert!(poll_once(&mut receive).is_pending());
            receive
        })
        .collect();
    let handle = runtime.handle();
    let sleep = |ms| {
        let handle = handle.clone();
        async move { handle.sleep_until(handle.clock().monotonic_ns().after(DurNs::from_ms(ms))).await }
    };
    // Its payload must not be dropped, if it comes out here.
    let ran = catch_unwind(AssertUnwindSafe(|| runtime.block_on(sleep(5)).unwrap()));
    assert!(ran.map_err(std::mem::forget).is_ok(), "the panic of a waker went through the runtime");
    assert_eq!(counts.0.load(Ordering::SeqCst), 9, "all the others, by the first run");
    assert_eq!(ring.stats().panics, 1);
    drop(receives);
    while ring.stats().orphans > 0 {
        runtime.block_on(sleep(1)).unwrap().unwrap();
    }
    assert_eq!((freed.get(), ring.stats().panics), (10, 6));
    operations.iter_mut().for_each(|operation| assert!(poll_once(operation).is_ready()));
    // The runtime is as before.
    assert!(runtime.block_on(async move { ring.nop().await }).unwrap().is_ok());
}

#[test]
fn the_panic_of_a_buffer_that_its_owner_drops_is_the_owners_and_the_others_are_woken() {
    let Some(mut idle) = ring(2) else { return };
    let handle = idle.handle();
    let counts = Arc::new(Counts::default());
    let good = Waker::from(counts.clone());
    let (reader, writer) = pair();
    rustix::io::write(&*writer, b"here").unwrap();
    let mut receive =
        handle.recv(&reader, OnDrop(Vec::with_capacity(8), || panic!("a buffer's destructor")));
    assert!(poll_once(&mut receive).is_pending());
    while handle.stats().completed == 0 {
        idle.sleep_until(now().after(DurNs::from_us(200)));
    }
    let mut nop = handle.nop();
    assert!(Pin::new(&mut nop).poll(&mut Context::from_waker(&good)).is_pending());
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(receive)));
    assert!(dropped.is_err(), "it unwinds out of the drop that the program wrote");
    idle.sleep_until(now().after(DurNs::from_ms(50)));
    assert_eq!(counts.0.load(Ordering::SeqCst), 1);
    assert_eq!((handle.stats().panics, handle.stats().in_flight), (0, 1));
    assert!(poll_once(&mut nop).is_ready());
}
