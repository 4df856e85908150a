//! A TCP server on loopback and device work, on one thread that idles in an io_uring.
//!
//! ```text
//! cargo run --release --features io-uring --example uring_server
//! ```
//!
//! Each request is a number of microseconds. The server queues that much work on a stream of the
//! device, awaits it as a word of memory, and answers with what it measured, while it serves the
//! other connections. Sockets, timers and device work end the same sleep.
//!
//! The device is the embedded software device; the clients are a thread of the same program. It ends
//! by itself after a few hundred requests.

#[cfg(target_os = "linux")]
mod server {
    use gpu_async_reactor::backend::software::{SoftwareDevice, SoftwareStream};
    use gpu_async_reactor::host::{ParkPolicy, StdClock, UringHandle, UringIdle, thread_cpu_time};
    use gpu_async_reactor::{
        Clock, Doorbell, DurNs, Executor, Reactor, ReactorPort, WaitPlan, wait,
    };
    use std::error::Error;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::thread;

    type Result<T> = std::result::Result<T, Box<dyn Error>>;
    type Task<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

    const CONNECTIONS: usize = 4;
    const REQUESTS: u32 = 100;

    /// Serves one connection until the client closes it.
    async fn serve(
        socket: OwnedFd,
        ring: UringHandle,
        stream: SoftwareStream,
        plan: &WaitPlan,
        reactor: &Reactor<'static, StdClock>,
    ) -> Result<()> {
        let socket = Arc::new(socket);
        let mut port = ReactorPort::new(stream, reactor);
        let mut buffer = Vec::with_capacity(4);
        loop {
            buffer.clear();
            // A client's request is four bytes; a result may be partial.
            while buffer.len() < 4 {
                let (received, filled) = ring.recv(&socket, buffer).await;
                buffer = filled;
                if received? == 0 {
                    return Ok(());
                }
            }
            let work_us = u32::from_be_bytes(buffer[..4].try_into()?);
            port.stream().delay(DurNs::from_us(work_us.into()))?;
            let waited = wait(plan, None, &mut port, reactor).await?;
            let took_us = (waited.elapsed.0 / 1_000) as u32;
            buffer.clear();
            buffer.extend(took_us.to_be_bytes());
            let (sent, returned) = ring.send_all(&socket, buffer).await;
            sent?;
            buffer = returned;
        }
    }

    /// One client: requests of 200 to 700 us, one after the other. How much longer each took, in us.
    fn client(to: SocketAddr, seed: u32) -> std::io::Result<Vec<u64>> {
        let clock = StdClock::new();
        let mut socket = TcpStream::connect(to)?;
        socket.set_nodelay(true)?;
        let mut lateness = Vec::new();
        for request in 0..REQUESTS {
            let work_us = 200 + (request * 37 + seed * 101) % 500;
            let asked = clock.monotonic_ns();
            socket.write_all(&work_us.to_be_bytes())?;
            socket.read_exact(&mut [0; 4])?;
            let took = clock.monotonic_ns().since(asked);
            lateness.push((took.0 / 1_000).saturating_sub(work_us.into()));
        }
        Ok(lateness)
    }

    pub fn main() -> Result<()> {
        let clock = StdClock::new();
        let mut idle = match UringIdle::new(clock, ParkPolicy::SAVING) {
            Ok(idle) => idle,
            Err(why) => {
                println!("no io_uring here: {why}");
                return Ok(());
            }
        };
        let ring = idle.handle();
        // The waits are parks, so that the thread idles, in the ring, where nothing is ready. The
        // ring's idle looks at the doorbell by its policy: no instruction of the CPU is needed.
        let plan = WaitPlan::parse("flag:park_us=1000,backstop_us=1000")?;
        let doorbell = Doorbell::new();
        let reactor = Reactor::with_doorbell(clock, &doorbell);
        let device = SoftwareDevice::new()?;

        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let listener = Arc::new(OwnedFd::from(listener));
        let clients = thread::spawn(move || {
            let clients = (0..CONNECTIONS as u32)
                .map(|seed| thread::spawn(move || client(address, seed)))
                .collect::<Vec<_>>();
            clients
                .into_iter()
                .map(|client| client.join().expect("a client runs through"))
                .collect()
        });

        let (began, cpu) = (clock.monotonic_ns(), thread_cpu_time());
        let mut executor: Executor<Task> = Executor::new();
        let spawner = executor.spawner();
        let accepting = async {
            let mut serving = Vec::new();
            for _ in 0..CONNECTIONS {
                let socket = ring.accept(&listener).await?;
                let stream = device.stream_on(&doorbell)?;
                let task = serve(socket, ring.clone(), stream, &plan, &reactor);
                serving.push(spawner.spawn(Box::pin(task)));
            }
            for connection in serving {
                connection.await??;
            }
            Result::Ok(())
        };
        let (served, stats) =
            executor.run_until(&reactor, &mut idle, DurNs::from_ms(1), accepting)?;
        served?;
        let took = clock.monotonic_ns().since(began);

        let lateness: Vec<std::io::Result<Vec<u64>>> = clients.join().expect("they run through");
        let mut lateness: Vec<u64> =
            lateness.into_iter().collect::<std::io::Result<Vec<_>>>()?.concat();
        lateness.sort_unstable();
        let share = |percent: usize| lateness[(lateness.len() - 1) * percent / 100];
        println!(
            "{} requests over {CONNECTIONS} connections, {} ms",
            lateness.len(),
            took.0 / 1_000_000
        );
        println!("answered after the work and p50 {} us, p99 {} us", share(50), share(99));
        let in_ring = ring.stats();
        println!(
            "{} polls, {} parks; {} operations by {} entries of the kernel",
            stats.polls, stats.parked, in_ring.submitted, in_ring.enters
        );
        if let (Some(before), Some(after)) = (cpu, thread_cpu_time()) {
            println!("the thread used {} % of a core", (after.0 - before.0) * 100 / took.0);
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    server::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("io_uring is an interface of Linux");
}
