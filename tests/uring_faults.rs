//! Faults that users of rings have reported: deadlines beside completions (F47), and buffers of futures
//! that are forgotten or whose runtime is gone (F50).
#![cfg(all(feature = "io-uring", target_os = "linux", not(loom)))]

mod ring;

use gpu_async_reactor::host::uring::uring_leaked;
use gpu_async_reactor::host::{Runtime, StdClock};
use gpu_async_reactor::{DurNs, Executor, Reactor};
use ring::{BOUND, Grave, Refusing, Task, Watched, now, pair, poll_once, ring_with};
use std::cell::Cell;
use std::sync::Arc;

#[test]
fn f47_no_deadline_is_early_while_a_thousand_operations_complete() {
    for kernel in Refusing::on_every_kernel() {
        let Some(mut idle) = ring_with(8, &kernel) else { continue };
        let handle = idle.handle();
        let reactor = Reactor::new(StdClock::new());
        let (ended, deadlines) = (Cell::new(0), Cell::new(0));
        let mut executor: Executor<Task> = Executor::new();
        for index in 0..1_000_u64 {
            let (handle, ended) = (&handle, &ended);
            executor.spawn(Box::pin(async move {
                // Spread over the deadlines below, so that each wait is ended by others' completions.
                let at = now().after(DurNs::from_us(200 + index * 7));
                handle.timeout(at).await.unwrap();
                assert!(now() >= at);
                handle.nop().await.unwrap();
                ended.set(ended.get() + 1);
            }));
        }
        // Back to back, of the reactor's and of the ring's.
        let main = async {
            while ended.get() < 1_000 {
                let first = now().after(DurNs::from_us(150));
                reactor.alarm(first).await;
                assert!(now() >= first, "an alarm of the reactor");
                let second = first.after(DurNs::from_us(150));
                handle.timeout(second).await.unwrap();
                assert!(now() >= second, "a timer of the ring");
                deadlines.set(deadlines.get() + 2);
            }
        };
        executor.run_until(&reactor, &mut idle, BOUND, main).unwrap();
        println!("{:?}: {} deadlines beside 1,000 operations", kernel.mode, deadlines.get());
        assert!(deadlines.get() >= 2);
        assert_eq!(handle.stats().in_flight, 0);
    }
}

#[test]
fn f50_a_buffer_is_owned_until_the_completion_although_its_runtime_is_gone() {
    let leaked = uring_leaked();
    for in_kernel in [false, true] {
        let Ok(runtime) = Runtime::builder("poll", "io-uring").strict().build() else { return };
        let ring = runtime.uring().unwrap().clone();
        let (reader, writer) = pair();
        let grave = Arc::new(Grave::default());
        let task_buffer = Watched::of(&grave, Vec::with_capacity(64));
        let forgotten_buffer = Watched::of(&grave, Vec::with_capacity(64));
        let (of_task, of_main) = (reader.clone(), reader.clone());
        runtime.spawn({
            let ring = ring.clone();
            async move { drop(ring.recv(&of_task, task_buffer).await) }
        });
        runtime
            .block_on(async move {
                gpu_async_reactor::yield_now().await;
                let mut forgotten = ring.recv(&of_main, forgotten_buffer);
                assert!(poll_once(&mut forgotten).is_pending());
                if in_kernel {
                    ring.nop().await.unwrap();
                }
                std::mem::forget(forgotten);
            })
            .unwrap();
        assert_eq!(grave.drops(), 0, "the kernel has it, or may get it");
        drop(runtime);
        // The task's was freed, once the kernel had let go of it; the forgotten one never is, and keeps
        // the ring. Whatever comes now is written into memory that nobody else has.
        rustix::io::write(&*writer, &[1; 128]).unwrap();
        assert!(grave.drops() <= 1);
    }
    assert_eq!(uring_leaked(), leaked);
}

#[test]
fn f50_a_runtime_that_is_dropped_waits_for_the_operations_of_its_tasks() {
    let leaked = uring_leaked();
    for _ in 0..20 {
        let Ok(runtime) = Runtime::builder("poll", "io-uring").strict().build() else { return };
        let ring = runtime.uring().unwrap().clone();
        let (reader, writer) = pair();
        let grave = Arc::new(Grave::default());
        for _ in 0..10 {
            let (ring, reader) = (ring.clone(), reader.clone());
            let buffer = Watched::of(&grave, Vec::with_capacity(64));
            runtime.spawn(async move { drop(ring.recv(&reader, buffer).await) });
        }
        runtime.block_on(async move { ring.nop().await.unwrap() }).unwrap();
        assert_eq!(grave.drops(), 0);
        drop(runtime);
        assert_eq!(grave.drops(), 10, "each was cancelled, waited for, and freed");
        rustix::io::write(&*writer, &[1; 128]).unwrap();
        assert_eq!(grave.drops(), 10);
    }
    assert_eq!(uring_leaked(), leaked);
}
