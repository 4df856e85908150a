//! Operations of a ring: what they do, that their buffers outlive them where the kernel may still
//! write, and that their number is not bounded by the ring's.
#![cfg(all(feature = "io-uring", target_os = "linux", not(loom)))]

use gpu_async_reactor::host::uring::{
    IoBuf, IoBufMut, Kernel, RingMode, SetupCall, SetupCalls, uring_leaked,
};
use gpu_async_reactor::host::{ParkPolicy, StdClock, UringHandle, UringIdle};
use gpu_async_reactor::{Clock, DurNs, Executor, Idle, MonoNs, Reactor, yield_now};
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

const BOUND: DurNs = DurNs::from_ms(5_000);

fn now() -> MonoNs {
    StdClock::new().monotonic_ns()
}

fn ring_with(entries: u32, calls: &dyn SetupCalls) -> Option<UringIdle> {
    match UringIdle::with_calls(StdClock::new(), ParkPolicy::default(), entries, calls) {
        Ok(idle) => Some(idle),
        Err(why) => {
            println!("skipped: no io_uring here: {why}");
            None
        }
    }
}

fn ring(entries: u32) -> Option<UringIdle> {
    ring_with(entries, &Kernel)
}

/// Runs the tasks that `spawn` makes, and `main`, on the ring.
fn run<T>(idle: &mut UringIdle, main: impl Future<Output = T>) -> T {
    let reactor = Reactor::new(StdClock::new());
    let mut executor: Executor<Task> = Executor::new();
    executor.run_until(&reactor, idle, BOUND, main).unwrap().0
}

fn pair() -> (Arc<OwnedFd>, Arc<OwnedFd>) {
    let (one, other) = UnixStream::pair().unwrap();
    (Arc::new(one.into()), Arc::new(other.into()))
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A buffer that says when it is dropped. Its memory is then kept, full of a pattern, to see whether
/// the kernel still writes to it.
struct Watched {
    bytes: Vec<u8>,
    grave: Arc<Grave>,
}

#[derive(Default)]
struct Grave(Mutex<Vec<Vec<u8>>>);

const DEAD: u8 = 0xDE;

impl Grave {
    /// How many buffers were dropped. Nobody has written to them since.
    fn drops(&self) -> usize {
        let buried = self.0.lock().unwrap();
        for bytes in &*buried {
            assert!(bytes.iter().all(|&byte| byte == DEAD), "written to after it was dropped");
        }
        buried.len()
    }
}

impl Watched {
    fn new(capacity: usize) -> (Self, Arc<Grave>) {
        let grave = Arc::new(Grave::default());
        (Watched::of(&grave, Vec::with_capacity(capacity)), grave)
    }

    fn of(grave: &Arc<Grave>, bytes: Vec<u8>) -> Self {
        Watched { bytes, grave: grave.clone() }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        bytes.resize(bytes.capacity(), DEAD);
        self.grave.0.lock().unwrap().push(bytes);
    }
}

// SAFETY: the vector inside owns its memory, and nobody else reaches it.
unsafe impl IoBufMut for Watched {
    fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        self.bytes.spare()
    }

    unsafe fn advance(&mut self, count: usize) {
        // SAFETY: the caller's promise is the same about the vector.
        unsafe { self.bytes.advance(count) };
    }
}

// SAFETY: as above.
unsafe impl IoBuf for Watched {
    fn bytes(&self) -> &[u8] {
        self.bytes.bytes()
    }
}

/// Idles until `what` holds.
fn idle_until(idle: &mut UringIdle, what: impl Fn() -> bool) {
    while !what() {
        idle.sleep_until(now().after(DurNs::from_us(200)));
    }
}

#[test]
fn a_tcp_echo_over_loopback_goes_through_the_ring_at_both_ends() {
    let Some(mut idle) = ring(64) else { return };
    let handle = idle.handle();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let listener = Arc::new(OwnedFd::from(listener));
    const CLIENTS: usize = 20;
    const MESSAGE: usize = 100_000;
    let reactor = Reactor::new(StdClock::new());
    let mut executor: Executor<Task> = Executor::new();
    let spawner = executor.spawner();
    let server = handle.clone();
    executor.spawn(Box::pin(async move {
        for _ in 0..CLIENTS {
            let peer = Arc::new(server.accept(&listener).await.unwrap());
            let server = server.clone();
            spawner.spawn(Box::pin(async move {
                let mut buffer = Vec::with_capacity(4096);
                loop {
                    buffer.clear();
                    let (received, filled) = server.recv(&peer, buffer).await;
                    if received.unwrap() == 0 {
                        break;
                    }
                    let (sent, returned) = server.send_all(&peer, filled).await;
                    sent.unwrap();
                    buffer = returned;
                }
            }));
        }
    }));
    for client in 0..CLIENTS {
        let handle = handle.clone();
        executor.spawn(Box::pin(async move {
            let socket = Arc::new(socket_for(to));
            handle.connect(&socket, to).await.unwrap();
            let message: Vec<u8> = (0..MESSAGE).map(|at| (at * 7 + client) as u8).collect();
            let mut echoed = Vec::with_capacity(MESSAGE);
            let sending = async {
                let (sent, message) = handle.send_all(&socket, message).await;
                sent.unwrap();
                message
            };
            let receiving = async {
                // Each receive brings a part.
                while echoed.len() < MESSAGE {
                    let (received, filled) =
                        handle.recv(&socket, std::mem::take(&mut echoed)).await;
                    assert_ne!(received.unwrap(), 0);
                    echoed = filled;
                }
                echoed
            };
            let (message, echoed) = both(sending, receiving).await;
            assert!(message == echoed);
        }));
    }
    executor.run(&reactor, &mut idle, BOUND).unwrap();
    let stats = handle.stats();
    println!("{stats:?}");
    assert_eq!((stats.in_flight, stats.orphans), (0, 0));
}

fn socket_for(to: SocketAddr) -> OwnedFd {
    use rustix::net::{AddressFamily, SocketType, socket};
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    socket(family, SocketType::STREAM, None).unwrap()
}

/// Both results.
async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut first, mut second) = (None, None);
    std::future::poll_fn(move |cx| {
        if first.is_none() {
            first = ready_or_none(a.as_mut().poll(cx));
        }
        if second.is_none() {
            second = ready_or_none(b.as_mut().poll(cx));
        }
        match (first.take(), second.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (first, second) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}

fn ready_or_none<T>(poll: Poll<T>) -> Option<T> {
    if let Poll::Ready(value) = poll { Some(value) } else { None }
}

#[test]
fn files_are_written_and_read_at_offsets_and_at_their_position() {
    let Some(mut idle) = ring(8) else { return };
    let handle = idle.handle();
    let path = std::env::temp_dir().join(format!("uring-ops-{}", std::process::id()));
    let file = std::fs::File::options();
    let file = file.clone().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let file = Arc::new(OwnedFd::from(file));
    run(&mut idle, async {
        assert_eq!(handle.write(&file, "hello ").await.0.unwrap(), 6);
        assert_eq!(handle.write(&file, Arc::<[u8]>::from(&b"world"[..])).await.0.unwrap(), 5);
        assert_eq!(handle.write_at(&file, b"W".to_vec(), 6).await.0.unwrap(), 1);
        let (read, buffer) = handle.read_at(&file, Vec::with_capacity(64), 6).await;
        assert_eq!((read.unwrap(), &buffer[..]), (5, &b"World"[..]));
        // Reading appends; a full buffer and the end of the file read nothing.
        let (read, buffer) = handle.read_at(&file, buffer, 0).await;
        assert_eq!((read.unwrap(), &buffer[..]), (11, &b"Worldhello World"[..]));
        let (read, _) = handle.read_at(&file, Vec::new(), 0).await;
        assert_eq!(read.unwrap(), 0);
        let (read, _) = handle.read(&file, buffer).await;
        assert_eq!(read.unwrap(), 0, "the position is at the end");
    });
}

#[test]
fn errors_are_the_operations_results_and_give_the_buffer_back() {
    let Some(mut idle) = ring(8) else { return };
    let handle = idle.handle();
    let (one, other) = pair();
    drop(other);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = listener.local_addr().unwrap();
    drop(listener);
    run(&mut idle, async {
        let (sent, buffer) = handle.send(&one, b"into the void".to_vec()).await;
        assert_eq!(sent.unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!(buffer, b"into the void");
        let (received, buffer) = handle.recv(&one, Vec::with_capacity(8)).await;
        assert_eq!((received.unwrap(), buffer.capacity()), (0, 8));
        let socket = Arc::new(socket_for(nobody));
        let refused = handle.connect(&socket, nobody).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let not_a_listener = handle.accept(&one).await.unwrap_err();
        assert!(not_a_listener.raw_os_error().is_some());
    });
}

#[test]
fn a_dropped_receive_frees_its_buffer_only_once_the_kernel_has_let_go_of_it() {
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
fn a_thousand_operations_are_in_flight_on_a_ring_of_eight() {
    /// The modes of older kernels.
    struct Plain;
    impl SetupCalls for Plain {
        fn before(&self, call: SetupCall) -> io::Result<()> {
            match call {
                SetupCall::Setup(RingMode::Plain) | SetupCall::Register | SetupCall::Enter => {
                    Ok(())
                }
                _ => Err(io::Error::from_raw_os_error(22)),
            }
        }
    }
    for calls in [&Kernel as &dyn SetupCalls, &Plain] {
        let Some(mut idle) = ring_with(8, calls) else { return };
        let handle = idle.handle();
        let reactor = Reactor::new(StdClock::new());
        let pairs: Vec<_> = (0..20).map(|_| pair()).collect();
        let (timers, read) = (Cell::new(0), Cell::new(0));
        let mut executor: Executor<Task> = Executor::new();
        for index in 0..1_000_usize {
            let (handle, timers) = (&handle, &timers);
            executor.spawn(Box::pin(async move {
                let at = now().after(DurNs::from_us(3_000 + (index as u64 % 7) * 300));
                handle.timeout(at).await.unwrap();
                assert!(now() >= at);
                timers.set(timers.get() + 1);
            }));
            let (reader, read) = (&pairs[index % pairs.len()].0, &read);
            executor.spawn(Box::pin(async move {
                let (received, bytes) = handle.recv(reader, Vec::with_capacity(1)).await;
                assert_eq!((received.unwrap(), bytes), (1, vec![7]));
                read.set(read.get() + 1);
            }));
        }
        let (handle, pairs) = (&handle, &pairs);
        executor.spawn(Box::pin(async move {
            // All are under way; now fifty bytes for each pair, all at once.
            handle.timeout(now().after(DurNs::from_us(1_000))).await.unwrap();
            for (_, writer) in pairs {
                handle.send_all(writer, vec![7; 50]).await.0.unwrap();
            }
        }));
        executor.run(&reactor, &mut idle, BOUND).unwrap();
        assert_eq!((timers.get(), read.get()), (1_000, 1_000));
        let stats = handle.stats();
        println!("{:?}: {stats:?}", idle.mode());
        assert_eq!((stats.in_flight, stats.submitted), (0, stats.completed));
    }
}

#[test]
fn one_task_may_start_a_thousand_operations_that_end_at_once() {
    let Some(mut idle) = ring(8) else { return };
    let handle = idle.handle();
    run(&mut idle, async {
        let mut operations: Vec<_> = (0..1_000).map(|_| Some(handle.nop())).collect();
        std::future::poll_fn(|cx| {
            for operation in &mut operations {
                if let Some(running) = operation {
                    if let Poll::Ready(ended) = Pin::new(running).poll(cx) {
                        ended.unwrap();
                        *operation = None;
                    }
                }
            }
            match operations.iter().all(Option::is_none) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    });
    let stats = handle.stats();
    println!("{stats:?}");
    assert_eq!((stats.completed, stats.in_flight), (1_000, 0));
}

#[test]
fn operations_are_submitted_together_when_the_thread_idles() {
    let Some(mut idle) = ring(64) else { return };
    let handle = idle.handle();
    let mut operations: Vec<_> = (0..20).map(|_| handle.nop()).collect();
    operations.iter_mut().for_each(|operation| assert!(poll_once(operation).is_pending()));
    assert_eq!((handle.stats().submitted, handle.stats().enters), (0, 0));
    idle.sleep_until(MonoNs::MAX);
    assert_eq!((handle.stats().submitted, handle.stats().enters), (20, 1));
    operations.iter_mut().for_each(|operation| assert!(poll_once(operation).is_ready()));
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
