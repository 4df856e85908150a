//! Memory and contexts: who owns what, who waits for whom, what is found when it is done wrong.
#![cfg(target_os = "linux")]

mod common;

use common::{Cuda, Handle, wait_for};
use driver_core::{DurNs, Live};
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

const INVALID_VALUE: i32 = 1;
const INVALID_CONTEXT: i32 = 201;
const DESTROYED: i32 = 709;

fn free(cuda: &Cuda, host: *mut c_void) -> i32 {
    cu!(cuda, cuMemFreeHost(host => *mut c_void))
}

#[test]
fn fresh_memory_is_not_zero() {
    let cuda = Cuda::ready();
    let host = cuda.host(64);
    // SAFETY: 64 bytes were allocated, and nobody else uses them.
    assert_eq!(unsafe { host.cast::<u64>().read() }, 0xcdcd_cdcd_cdcd_cdcd);
    assert_eq!(cuda.control.live(Live::HostAllocations), 1);
    assert_eq!(cuda.control.live(Live::HostPages), 1);
    assert_eq!(free(&cuda, host), 0);
    assert_eq!(cuda.control.live(Live::HostPages), 0);
    assert_eq!(free(&cuda, host), INVALID_VALUE);
    cuda.expect_violations(&["Host memory was freed twice"]);
}

#[test]
fn freeing_host_memory_waits_for_the_device_and_is_found_if_it_had_to() {
    let cuda = Cuda::ready();
    let (busy, idle) = (cuda.stream(), cuda.stream());
    let (words, at) = cuda.words();
    let other = cuda.host(64);
    assert_eq!(cuda.write(idle, at, 1), 0);
    assert_eq!(cuda.synchronize(idle), 0);
    let begin = Instant::now();
    assert_eq!(cuda.control.work(busy, DurNs::from_us(5000)), 0);
    assert_eq!(free(&cuda, other), 0);
    assert!(begin.elapsed() >= Duration::from_millis(5), "work of other streams counts");
    assert_eq!(cuda.query(busy), 0);
    assert_eq!(cuda.control.violations(), [""; 0], "nothing was to be stored there");
    assert_eq!(cuda.control.work(busy, DurNs::from_us(500)), 0);
    assert_eq!(cuda.write(busy, at, 2), 0);
    assert_eq!(free(&cuda, words.as_ptr().cast_mut().cast()), 0);
    cuda.expect_violations(&["Host memory was freed under 1 pending store(s)"]);
}

#[test]
fn a_store_into_freed_memory_is_found_and_harms_nobody() {
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    let (words, at) = cuda.words();
    cuda.control.delay_stores(1, DurNs::from_us(2000));
    assert_eq!(cuda.write(stream, at, 1), 0);
    assert_eq!(cuda.synchronize(stream), 0);
    assert_eq!(free(&cuda, words.as_ptr().cast_mut().cast()), 0);
    wait_for(|| cuda.control.live(Live::PendingStores) == 0);
    assert_eq!(words[0].load(Ordering::Acquire), 0xdddd_dddd_dddd_dddd, "it was kept away");
    assert_eq!(cuda.write(stream, at, 2), INVALID_VALUE);
    cuda.expect_violations(&[
        "freed under 1",
        "a store landed in freed memory",
        "freed memory was named",
    ]);
}

#[test]
fn the_end_of_a_context_waits_for_its_work() {
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    let begin = Instant::now();
    assert_eq!(cuda.control.work(stream, DurNs::from_us(3000)), 0);
    let other = cuda.retain(0);
    assert_eq!(other, cuda.current(), "one context, two references");
    assert_eq!(cuda.control.live(Live::PrimaryReferences), 2);
    assert_eq!(cu!(cuda, cuDevicePrimaryCtxRelease_v2(0 => i32)), 0);
    assert_eq!(cuda.query(stream), 600, "still there");
    assert_eq!(cu!(cuda, cuDevicePrimaryCtxRelease_v2(0 => i32)), 0);
    assert!(begin.elapsed() >= Duration::from_millis(3));
    assert_eq!(cuda.query(stream), 400, "gone with its context");
    assert_eq!(cu!(cuda, cuCtxSynchronize()), DESTROYED);
    assert_eq!(cu!(cuda, cuDevicePrimaryCtxRelease_v2(0 => i32)), INVALID_CONTEXT);
    cuda.expect_violations(&["a stream was used after", "that nobody had retained"]);
}

#[test]
fn memory_that_outlives_its_context_is_found() {
    let cuda = Cuda::ready();
    let (words, _) = cuda.words();
    words[0].store(5, Ordering::Relaxed);
    assert_eq!(cu!(cuda, cuDevicePrimaryCtxRelease_v2(0 => i32)), 0);
    assert_eq!(words[0].load(Ordering::Relaxed), 0xdddd_dddd_dddd_dddd);
    cuda.expect_violations(&["a context ended with Host memory that was not freed"]);
}

#[test]
fn a_held_stream_keeps_memory_from_being_freed_until_released() {
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    let host = cuda.host(64);
    let context = cuda.current();
    assert_eq!(cuda.control.hold(stream), 0);
    thread::scope(|scope| {
        let (cuda, host) = (&cuda, host.addr());
        let freeing = scope.spawn(move || {
            cuda.bind(context);
            free(cuda, std::ptr::with_exposed_provenance_mut(host))
        });
        wait_for(|| cuda.control.calls("cuMemFreeHost") == 1);
        assert_eq!(cuda.control.live(Live::HostAllocations), 1);
        assert!(!freeing.is_finished());
        cuda.control.release();
        assert_eq!(freeing.join().unwrap(), 0);
    });
}

#[test]
fn objects_are_used_under_their_own_context_only() {
    let cuda = Cuda::ready();
    let (stream, event) = (cuda.stream(), cuda.event());
    let (_, at) = cuda.words();
    let mut own = 0;
    let create = cu!(cuda, cuCtxCreate_v2(&raw mut own => *mut Handle, 0 => u32, 0 => i32));
    assert_eq!(create, 0);
    assert_eq!(cuda.current(), own, "a new context is pushed");
    assert_eq!(cuda.query(stream), INVALID_CONTEXT);
    assert_eq!(cuda.query_event(event), INVALID_CONTEXT);
    assert_eq!(cuda.write(stream, at, 1), INVALID_CONTEXT);
    let mine = cuda.stream();
    assert_eq!(cuda.record(event, mine), 400, "event and stream of two contexts");
    let mut of = 0;
    let context = &raw mut of;
    assert_eq!(cu!(cuda, cuStreamGetCtx(mine => Handle, context => *mut Handle)), 0);
    assert_eq!(of, own);
    assert_eq!(cu!(cuda, cuStreamGetCtx(0 => Handle, context => *mut Handle)), 0);
    assert_eq!(of, own, "the current one");
    assert_eq!(cu!(cuda, cuCtxDestroy_v2(own => Handle)), 0);
    assert_eq!(cuda.query(stream), 0, "popped with its end");
    assert_eq!(cu!(cuda, cuCtxPushCurrent_v2(own => Handle)), DESTROYED);
    cuda.expect_violations(&["a context was used after its end"]);
}

#[test]
fn a_thread_without_a_context_is_refused() {
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    let cuda = &cuda;
    thread::scope(|scope| {
        let other = scope.spawn(move || (cuda.query(stream), cuda.query(0), cuda.current()));
        assert_eq!(other.join().unwrap(), (INVALID_CONTEXT, INVALID_CONTEXT, 0));
    });
}

#[test]
fn pushes_without_pops_are_found() {
    let cuda = Cuda::ready();
    let context = cuda.current();
    let mut popped = 0;
    for _ in 0..3 {
        assert_eq!(cu!(cuda, cuCtxPushCurrent_v2(context => Handle)), 0);
    }
    assert_eq!(cu!(cuda, cuCtxPopCurrent_v2(&raw mut popped => *mut Handle)), 0);
    assert_eq!(popped, context);
    cuda.expect_violations(&["a thread pushed 2 context(s) and did not pop them"]);
}

#[test]
fn copies_go_through_device_memory_in_order() {
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    let (words, host_at) = cuda.words();
    let mut device = 0_u64;
    let bytes = 256;
    assert_eq!(cu!(cuda, cuMemAlloc_v2(&raw mut device => *mut u64, bytes => usize)), 0);
    assert_eq!(cuda.control.live(Live::DeviceAllocations), 1);
    let source: Vec<u8> = (0..=255).collect();
    let locked = words.as_ptr().cast_mut().cast::<u8>();
    assert_eq!(cuda.control.hold(stream), 0);
    let from = source.as_ptr();
    let up = cu!(cuda, cuMemcpyHtoDAsync_v2(
        device => u64, from => *const u8, bytes => usize, stream => Handle));
    assert_eq!(up, 0, "pageable memory is read at once, the stream is held");
    let fill = cu!(cuda, cuMemsetD8Async(device => u64, 7 => u8, 2 => usize, stream => Handle));
    assert_eq!(fill, 0);
    let down = cu!(cuda, cuMemcpyDtoHAsync_v2(
        locked => *mut u8, device => u64, bytes => usize, stream => Handle));
    assert_eq!(down, 0, "page-locked memory is not waited for");
    assert_eq!(cuda.write(stream, host_at + 512, 1), 0);
    drop(source);
    assert_eq!(words[0].load(Ordering::Acquire), 0);
    cuda.control.release();
    wait_for(|| words[64].load(Ordering::Acquire) == 1);
    assert_eq!(words[0].load(Ordering::Relaxed).to_le_bytes(), [7, 7, 2, 3, 4, 5, 6, 7]);
    let mut back = vec![0_u8; bytes];
    let to = back.as_mut_ptr();
    let down = cu!(cuda, cuMemcpyDtoHAsync_v2(
        to => *mut u8, device => u64, bytes => usize, stream => Handle));
    assert_eq!(down, 0);
    assert_eq!(back[255], 255, "a copy into pageable memory is over when the call returns");
    let end = words[511].as_ptr();
    let down = cu!(cuda, cuMemcpyDtoHAsync_v2(
        end => *mut u64, device => u64, 16 => usize, stream => Handle));
    assert_eq!(down, INVALID_VALUE, "it would end behind the page");
    assert_eq!(cu!(cuda, cuMemFree_v2(device => u64)), 0);
    cuda.expect_violations(&[]);
}
