//! Operations of a ring: what they do, and that their number is not bounded by the ring's.
#![cfg(all(feature = "io-uring", target_os = "linux", not(loom)))]

mod ring;

use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::host::uring::{Kernel, RingMode, SetupCall, SetupCalls};
use gpu_async_reactor::{DurNs, Executor, Idle, MonoNs, Reactor};
use ring::{BOUND, Task, now, pair, poll_once, ring, ring_with, run};
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

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
        // Reading appends, and reads nothing at the end of the file.
        let (read, buffer) = handle.read_at(&file, buffer, 0).await;
        assert_eq!((read.unwrap(), &buffer[..]), (11, &b"Worldhello World"[..]));
        let (read, _) = handle.read(&file, buffer).await;
        assert_eq!(read.unwrap(), 0, "the position is at the end");
    });
}

#[test]
fn a_full_vector_is_read_into_from_its_beginning_and_one_without_capacity_is_an_error() {
    let Some(mut idle) = ring(8) else { return };
    let handle = idle.handle();
    let (reader, writer) = pair();
    run(&mut idle, async {
        // Full: a buffer of its length, which it keeps.
        handle.send_all(&writer, "hello").await.0.unwrap();
        let (received, buffer) = handle.recv(&reader, vec![7; 64]).await;
        assert_eq!((received.unwrap(), buffer.len(), &buffer[..6]), (5, 64, &b"hello\x07"[..]));
        handle.send_all(&writer, "world").await.0.unwrap();
        let (read, buffer) = handle.read(&reader, buffer).await;
        assert_eq!((read.unwrap(), buffer.len(), &buffer[..6]), (5, 64, &b"world\x07"[..]));
        // Longer than the buffer: what fits, and the rest for the next one.
        handle.send_all(&writer, "hello").await.0.unwrap();
        let (received, buffer) = handle.recv(&reader, vec![0; 2]).await;
        assert_eq!((received.unwrap(), buffer), (2, b"he".to_vec()));
        // Room for a part: after the contents, and no further than the capacity.
        let mut partly = Vec::with_capacity(8);
        partly.resize(partly.capacity() - 2, 7);
        let length = partly.len();
        let (received, buffer) = handle.recv(&reader, partly).await;
        assert_eq!((received.unwrap(), &buffer[length..]), (2, &b"ll"[..]));
        assert!(buffer[..length].iter().all(|&byte| byte == 7));
        let (received, buffer) = handle.recv(&reader, buffer).await;
        assert_eq!((received.unwrap(), &buffer[..2]), (1, &b"o\x07"[..]), "it is full now");
        // No byte to read into: never taken for the end of the file.
        let submitted = handle.stats().submitted;
        let polled = [
            poll_once(&mut handle.recv(&reader, Vec::new())),
            poll_once(&mut handle.read(&reader, Vec::new())),
            poll_once(&mut handle.read_at(&reader, Vec::new(), 0)),
        ];
        for ended in polled {
            let Poll::Ready((refused, buffer)) = ended else { panic!("it asked the kernel") };
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
            assert_eq!(buffer.capacity(), 0);
        }
        assert_eq!(handle.stats().submitted, submitted, "the kernel was not asked");
        // And the end itself.
        drop(writer);
        let (received, buffer) = handle.recv(&reader, vec![7; 4]).await;
        assert_eq!((received.unwrap(), buffer), (0, vec![7; 4]));
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
fn half_a_queue_of_operations_is_submitted_without_waiting_for_an_idle_thread() {
    let Some(idle) = ring(64) else { return };
    let handle = idle.handle();
    let mut operations: Vec<_> = (0..32).map(|_| handle.nop()).collect();
    let (last, others) = operations.split_last_mut().unwrap();
    others.iter_mut().for_each(|operation| assert!(poll_once(operation).is_pending()));
    assert_eq!((handle.stats().submitted, handle.stats().enters), (0, 0));
    assert!(poll_once(last).is_pending());
    assert_eq!((handle.stats().submitted, handle.stats().enters), (32, 1));
}
