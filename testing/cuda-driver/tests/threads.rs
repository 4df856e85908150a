//! Many threads at once: nothing is lost, nobody waits for ever, and the sanitizers find nothing.
#![cfg(target_os = "linux")]

mod common;

use common::{Cuda, Handle, RELAXED, wait_for};
use driver_core::{DurNs, Live};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

const THREADS: u64 = 6;
const ROUNDS: u64 = 100;

#[test]
fn streams_come_and_go_on_many_threads_while_others_ask() {
    let cuda = &Cuda::ready();
    let context = cuda.current();
    let ended = &AtomicBool::new(false);
    let asked = &AtomicU64::new(0);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(move || {
                    cuda.bind(context);
                    let (words, at) = cuda.words();
                    let event = cuda.event();
                    for round in 1..=ROUNDS {
                        let stream = cuda.stream();
                        assert_eq!(cuda.control.work(stream, DurNs::from_us(round % 7)), 0);
                        assert_eq!(cuda.write(stream, at, round), 0);
                        assert_eq!(cuda.record(event, stream), 0);
                        if round % 3 == 0 {
                            assert_eq!(cu!(cuda, cuEventSynchronize(event => Handle)), 0);
                            assert_eq!(words[0].load(Ordering::Acquire), round);
                        }
                        assert_eq!(cu!(cuda, cuStreamDestroy_v2(stream => Handle)), 0);
                        wait_for(|| words[0].load(Ordering::Acquire) == round);
                    }
                    wait_for(|| cuda.query_event(event) == 0);
                    assert_eq!(cu!(cuda, cuEventDestroy_v2(event => Handle)), 0);
                    let host = words.as_ptr().cast_mut();
                    assert_eq!(cu!(cuda, cuMemFreeHost(host => *mut AtomicU64)), 0);
                })
            })
            .collect();
        scope.spawn(move || {
            cuda.bind(context);
            cuda.exchange_mode(RELAXED);
            while !ended.load(Ordering::Acquire) {
                assert!([0, 600].contains(&cuda.query(0)));
                asked.fetch_add(1, Ordering::Relaxed);
            }
            cuda.exchange_mode(0);
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        ended.store(true, Ordering::Release);
    });
    assert!(asked.load(Ordering::Relaxed) > 0);
    assert_eq!(cu!(cuda, cuCtxSynchronize()), 0);
    for what in [Live::Streams, Live::Events, Live::HostAllocations, Live::PendingStores] {
        assert_eq!(cuda.control.live(what), 0, "{what:?}");
    }
    cuda.expect_violations(&[]);
}

#[test]
fn a_fault_ends_the_waits_of_every_thread() {
    let cuda = &Cuda::ready();
    let context = cuda.current();
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(move || {
                    cuda.bind(context);
                    let stream = cuda.stream();
                    assert_eq!(cuda.control.hold(stream), 0);
                    cuda.synchronize(stream)
                })
            })
            .collect();
        wait_for(|| cuda.control.calls("cuStreamSynchronize") == THREADS);
        cuda.control.fault(719);
        for waiting in waiting {
            assert_eq!(waiting.join().unwrap(), 719);
        }
    });
    cuda.expect_violations(&[]);
}

#[test]
fn a_data_word_is_published_by_the_word_behind_it() {
    let cuda = &Cuda::ready();
    let stream = cuda.stream();
    let (words, at) = cuda.words();
    let mut device = 0_u64;
    assert_eq!(cu!(cuda, cuMemAlloc_v2(&raw mut device => *mut u64, 64 => usize)), 0);
    for round in 1..=200_u64 {
        let fill = cu!(cuda, cuMemsetD8Async(
            device => u64, round as u8 => u8, 64 => usize, stream => Handle));
        assert_eq!(fill, 0);
        let to = words[8].as_ptr();
        let copy = cu!(cuda, cuMemcpyDtoHAsync_v2(
            to => *mut u64, device => u64, 64 => usize, stream => Handle));
        assert_eq!(copy, 0);
        assert_eq!(cuda.write(stream, at, round), 0);
        wait_for(|| words[0].load(Ordering::Acquire) == round);
        // SAFETY: the device copied here before it stored the word, whose value was just loaded with
        // acquire ordering, and nothing is queued that writes here now.
        let bytes = unsafe { words[8].as_ptr().cast::<[u8; 64]>().read() };
        assert_eq!(bytes, [round as u8; 64]);
    }
}
