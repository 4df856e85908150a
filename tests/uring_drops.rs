//! Operations whose futures are dropped, forgotten, or outlive their idle: buffers outlive them where
//! the kernel may still write, and nothing is left behind.
#![cfg(all(feature = "io-uring", target_os = "linux", not(loom)))]

mod ring;

use gpu_async_reactor::host::uring::{IoBufMut, uring_leaked};
use gpu_async_reactor::host::{StdClock, UringHandle};
use gpu_async_reactor::{DurNs, Executor, Idle, Reactor, yield_now};
use ring::{BOUND, Grave, Task, Watched, idle_until, now, pair, poll_once, ring, run};
use std::cell::Cell;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::rc::Rc;
use std::sync::Arc;

#[test]
fn f50_a_dropped_receive_frees_its_buffer_only_once_the_kernel_has_let_go_of_it() {
    let Some(mut idle) = ring(8) else { return };
    let handle = idle.handle();
    let (reader, writer) = pair();
    let (buffer, grave) = Watched::new(64);
    let mut receive = handle.recv(&reader, buffer);
    assert!(poll_once(&mut receive).is_pending());
    // In the kernel, where nothing comes for it.
    idle.sleep_until(now().after(DurNs::from_us(100)));
    assert_eq!(handle.stats().submitted, 1);
    drop(receive);
    assert_eq!(grave.drops(), 0, "its completion has not come");
    assert_eq!((handle.stats().in_flight, handle.stats().orphans), (1, 1));
    idle_until(&mut idle, || grave.drops() == 1);
    assert_eq!((handle.stats().in_flight, handle.stats().orphans), (0, 0));
    rustix::io::write(&*writer, &[1; 64]).unwrap();
    idle.sleep_until(now().after(DurNs::from_us(200)));
    assert_eq!(grave.drops(), 1);
}

#[test]
fn an_operation_that_was_dropped_before_it_was_submitted_never_reaches_the_kernel() {
    let Some(mut idle) = ring(8) else { return };
    let handle = idle.handle();
    let (reader, writer) = pair();
    let (buffer, grave) = Watched::new(64);
    let mut receive = handle.recv(&reader, buffer);
    assert!(poll_once(&mut receive).is_pending());
    drop(receive);
    assert_eq!(grave.drops(), 1, "at once: the kernel never had it");
    let (never_polled, its_grave) = Watched::new(64);
    drop(handle.recv(&reader, never_polled));
    assert_eq!(its_grave.drops(), 1);
    run(&mut idle, async {
        assert_eq!(handle.send(&writer, "to the next one").await.0.unwrap(), 15);
        let (received, _) = handle.recv(&reader, Vec::with_capacity(64)).await;
        assert_eq!(received.unwrap(), 15, "the dropped one took nothing");
    });
    assert_eq!(grave.drops(), 1);
    assert_eq!(handle.stats().submitted, 2);
}

#[test]
fn a_dropped_operation_makes_room_for_the_next_one_on_the_same_descriptor() {
    let Some(mut idle) = ring(8) else { return };
    let handle = idle.handle();
    let (reader, writer) = pair();
    let reactor = Reactor::new(StdClock::new());
    run(&mut idle, async {
        let grave = Arc::new(Grave::default());
        for round in 0..200_u8 {
            let buffer = Watched::of(&grave, Vec::with_capacity(16));
            let mut receive = handle.recv(&reader, buffer);
            assert!(poll_once(&mut receive).is_pending());
            if round % 2 == 0 {
                // Let it reach the kernel.
                handle.timeout(now()).await.unwrap();
            }
            drop(receive);
            let mut next = handle.recv(&reader, Vec::with_capacity(16));
            assert!(poll_once(&mut next).is_pending());
            handle.send(&writer, vec![round]).await.0.unwrap();
            let (received, bytes) = next.await;
            assert_eq!((received.unwrap(), bytes), (1, vec![round]));
        }
        while grave.drops() < 200 {
            handle.timeout(now()).await.unwrap();
        }
    });
    drop(reactor);
    assert_eq!(handle.stats().in_flight, 0);
}

#[test]
fn a_result_that_nobody_collects_is_freed_with_its_future() {
    let Some(mut idle) = ring(8) else { return };
    let handle = idle.handle();
    let (reader, writer) = pair();
    let (buffer, grave) = Watched::new(16);
    let mut receive = handle.recv(&reader, buffer);
    assert!(poll_once(&mut receive).is_pending());
    rustix::io::write(&*writer, b"here").unwrap();
    while handle.stats().completed == 0 {
        idle.sleep_until(now().after(DurNs::from_us(200)));
    }
    assert_eq!(grave.drops(), 0, "it is the future's");
    drop(receive);
    assert_eq!(grave.drops(), 1, "at once: the kernel has let go of it");
    assert_eq!(handle.stats().in_flight, 0);
}

/// Whether the other end of `stream` is closed.
fn is_closed(stream: &TcpStream) -> bool {
    use std::io::Read;
    stream.set_nonblocking(true).unwrap();
    match (&mut &*stream).read(&mut [0; 1]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

#[test]
fn a_connection_accepted_for_a_dropped_future_is_closed() {
    let Some(mut idle) = ring(8) else { return };
    let handle = idle.handle();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let listener = Arc::new(OwnedFd::from(listener));
    // Accepted, but its future is dropped before it was told.
    let mut accept = handle.accept(&listener);
    assert!(poll_once(&mut accept).is_pending());
    idle.sleep_until(now().after(DurNs::from_us(100)));
    let client = TcpStream::connect(to).unwrap();
    while handle.stats().completed == 0 {
        idle.sleep_until(now().after(DurNs::from_us(200)));
    }
    drop(accept);
    idle_until(&mut idle, || is_closed(&client));
    // Dropped while it waits, and then a client comes: the next one accepts it.
    let mut accept = handle.accept(&listener);
    assert!(poll_once(&mut accept).is_pending());
    idle.sleep_until(now().after(DurNs::from_us(100)));
    drop(accept);
    let next = handle.accept(&listener);
    run(&mut idle, async {
        handle.timeout(now()).await.unwrap();
        let client = TcpStream::connect(to).unwrap();
        let accepted = next.await.unwrap();
        assert!(!is_closed(&client));
        handle.close(accepted).await.unwrap();
    });
    assert_eq!(handle.stats().in_flight, 0);
}

#[test]
fn what_is_in_flight_when_the_ring_goes_is_waited_for_and_freed() {
    let Some(mut idle) = ring(8) else { return };
    let handle = idle.handle();
    let leaked = uring_leaked();
    let (reader, writer) = pair();
    let grave = Arc::new(Grave::default());
    for round in 0..50 {
        let buffer = Watched::of(&grave, Vec::with_capacity(16));
        let mut receive = handle.recv(&reader, buffer);
        assert!(poll_once(&mut receive).is_pending());
        if round % 3 == 0 {
            idle.sleep_until(now().after(DurNs::from_us(10)));
        }
    }
    let mut kept = handle.recv(&reader, Watched::new(16).0);
    assert!(poll_once(&mut kept).is_pending());
    drop((idle, handle));
    // This future keeps the ring; nothing brings it on any more.
    assert!(poll_once(&mut kept).is_pending());
    drop(kept);
    rustix::io::write(&*writer, &[1; 500]).unwrap();
    assert_eq!(grave.drops(), 50);
    assert_eq!(uring_leaked(), leaked);
}

#[test]
fn a_forgotten_future_leaks_its_buffer_and_nothing_else_breaks() {
    let Some(mut idle) = ring(8) else { return };
    let handle = idle.handle();
    // Each receive takes one message.
    let (reader, writer) = UnixDatagram::pair().unwrap();
    let (reader, writer) = (Arc::new(reader.into()), Arc::new(writer.into()));
    let (buffer, grave) = Watched::new(16);
    let mut receive = handle.recv(&reader, buffer);
    assert!(poll_once(&mut receive).is_pending());
    idle.sleep_until(now().after(DurNs::from_us(100)));
    std::mem::forget(receive);
    run(&mut idle, async {
        handle.send_all(&writer, "twice").await.0.unwrap();
        handle.send_all(&writer, "twice").await.0.unwrap();
        let (received, _) = handle.recv(&reader, Vec::with_capacity(16)).await;
        assert_eq!(received.unwrap(), 5);
    });
    assert_eq!(grave.drops(), 0);
}

#[test]
fn a_buffer_may_use_the_ring_from_its_drop_and_a_waker_from_its_wake() {
    /// Starts and drops an operation when it is dropped.
    struct Busy(Vec<u8>, UringHandle, Rc<Cell<u32>>);
    impl Drop for Busy {
        fn drop(&mut self) {
            let mut nop = self.1.nop();
            assert!(poll_once(&mut nop).is_pending());
            assert!(self.1.stats().in_flight > 0);
            self.2.set(self.2.get() + 1);
        }
    }
    // SAFETY: the vector inside owns its memory, and nobody else reaches it.
    unsafe impl IoBufMut for Busy {
        fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
            self.0.spare()
        }
        unsafe fn advance(&mut self, count: usize) {
            // SAFETY: the caller's promise is the same about the vector.
            unsafe { self.0.advance(count) };
        }
    }
    let Some(mut idle) = ring(8) else { return };
    let handle = idle.handle();
    let dropped = Rc::new(Cell::new(0));
    let (reader, _writer) = pair();
    for in_kernel in [false, true] {
        let buffer = Busy(Vec::with_capacity(16), handle.clone(), dropped.clone());
        let mut receive = handle.recv(&reader, buffer);
        assert!(poll_once(&mut receive).is_pending());
        if in_kernel {
            idle.sleep_until(now().after(DurNs::from_us(100)));
        }
        drop(receive);
    }
    idle_until(&mut idle, || dropped.get() == 2 && handle.stats().in_flight == 0);
}

#[test]
fn dropping_everything_at_any_await_of_an_exchange_leaves_nothing_behind() {
    let Some(mut idle) = ring(8) else { return };
    let handle = idle.handle();
    let grave = Arc::new(Grave::default());
    let mut made = 0;
    for polls in 0..40 {
        let (one, other) = pair();
        let reactor = Reactor::new(StdClock::new());
        let mut executor: Executor<Task> = Executor::new();
        let (here, there) = (handle.clone(), handle.clone());
        let buffers = [[1; 64].to_vec(), Vec::with_capacity(64)];
        let [mut message, mut echo] = buffers.map(|bytes| Watched::of(&grave, bytes));
        made += 2;
        executor.spawn(Box::pin(async move {
            for _ in 0..5 {
                message = here.send_all(&one, message).await.1;
                message.bytes.clear();
                message = here.recv(&one, message).await.1;
            }
        }));
        executor.spawn(Box::pin(async move {
            loop {
                echo.bytes.clear();
                let (received, filled) = there.recv(&other, echo).await;
                if received.unwrap() == 0 {
                    break;
                }
                echo = there.send_all(&other, filled).await.1;
            }
        }));
        let main = async {
            for _ in 0..polls {
                yield_now().await;
            }
        };
        executor.run_until(&reactor, &mut idle, BOUND, main).unwrap();
        drop(executor);
    }
    idle_until(&mut idle, || handle.stats().in_flight == 0);
    assert_eq!(grave.drops(), made);
}
