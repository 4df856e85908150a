//! What is NVIDIA's own beside captures: what sleeps, green contexts, resets.
#![cfg(target_os = "linux")]

mod common;

use common::{Cuda, Handle};
use driver_core::{DurNs, Live};
use std::sync::atomic::Ordering;
use std::time::Duration;

const INVALID_HANDLE: i32 = 400;
const NOT_READY: i32 = 600;
const DESTROYED: i32 = 709;
const NOT_SUPPORTED: i32 = 801;

fn event(cuda: &Cuda, flags: u32) -> Handle {
    let mut event: Handle = 0;
    assert_eq!(cu!(cuda, cuEventCreate(&raw mut event => *mut Handle, flags => u32)), 0);
    event
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call, which fills it.
    let asked = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(asked, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_blocking_wait_spins_unless_its_event_says_that_it_sleeps() {
    const WORK: Duration = Duration::from_millis(100);
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    let work = DurNs(WORK.as_nanos() as u64);
    let spent = |wait: &dyn Fn() -> i32| {
        let before = processor_time();
        assert_eq!(wait(), 0);
        processor_time() - before
    };
    for (flags, sleeps) in [(0, false), (2, false), (1, true), (3, true)] {
        let event = event(&cuda, flags);
        assert_eq!(cuda.control.work(stream, work), 0);
        assert_eq!(cuda.record(event, stream), 0);
        let spent = spent(&|| cu!(cuda, cuEventSynchronize(event => Handle)));
        if sleeps {
            assert!(spent < WORK / 5, "{flags:#x}: {spent:?}");
        } else {
            assert!(spent > WORK / 10, "{flags:#x}: {spent:?}");
        }
    }
    for wait in
        [&(|| cuda.synchronize(stream)) as &dyn Fn() -> i32, &|| cu!(cuda, cuCtxSynchronize())]
    {
        assert_eq!(cuda.control.work(stream, work), 0);
        assert!(spent(wait) > WORK / 10);
    }
    cuda.expect_violations(&[]);
}

#[test]
fn the_context_of_a_green_contexts_stream_is_not_told_or_is_another_one() {
    let cuda = Cuda::ready();
    let (stream, green) = (cuda.stream(), cuda.stream());
    cuda.control.green(green);
    let primary = cuda.current();
    let context_of = |stream: Handle| {
        let mut context: Handle = 0;
        let to = &raw mut context;
        (cu!(cuda, cuStreamGetCtx(stream => Handle, to => *mut Handle)), context)
    };
    assert_eq!(context_of(stream), (0, primary));
    assert_eq!(context_of(green), (NOT_SUPPORTED, 0));
    cuda.control.version(13_000);
    let (status, context) = context_of(green);
    assert!(status == 0 && context != primary, "{status} {context:#x}");
    assert_eq!(context_of(stream), (0, primary));
}

#[test]
fn a_reset_ends_everything_and_the_next_reference_revives_the_handle() {
    let cuda = Cuda::ready();
    let context = cuda.current();
    let id = || {
        let mut id = 0;
        (cu!(cuda, cuCtxGetId(0 => Handle, &raw mut id => *mut u64)), id)
    };
    let (stream, event) = (cuda.stream(), cuda.event());
    let (words, at) = cuda.words();
    let (status, before) = id();
    assert_eq!(status, 0);
    assert_eq!(cuda.control.hold(stream), 0);
    assert_eq!(cuda.write(stream, at, 1), 0);
    assert_eq!(cuda.record(event, stream), 0);
    assert_eq!(cu!(cuda, cuDevicePrimaryCtxReset_v2(0 => i32)), 0);
    assert_eq!(cuda.query_event(event), INVALID_HANDLE);
    assert_eq!(id().0, DESTROYED);
    for live in [Live::Streams, Live::Events, Live::HostAllocations] {
        assert_eq!(cuda.control.live(live), 0, "{live:?}");
    }
    assert_eq!(cuda.retain(0), context, "the same handle");
    let (status, after) = id();
    assert_eq!(status, 0);
    assert_ne!(after, before);
    assert_eq!(cuda.query(stream), INVALID_HANDLE);
    assert_ne!(words[0].load(Ordering::Acquire), 1, "the store went with its context");
    cuda.expect_violations(&[
        "an event was used after it was destroyed",
        "a stream was used after it was destroyed",
    ]);
}

#[test]
fn a_driver_that_batches_begins_nothing_before_a_status_call() {
    let cuda = Cuda::ready();
    let (stream, event) = (cuda.stream(), cuda.event());
    let (words, at) = cuda.words();
    cuda.control.batching(true);
    assert_eq!(cuda.write(stream, at, 1), 0);
    assert_eq!(cuda.record(event, stream), 0);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(words[0].load(Ordering::Acquire), 0);
    while cuda.query_event(event) == NOT_READY {
        std::thread::yield_now();
    }
    assert_eq!(words[0].load(Ordering::Acquire), 1);
    cuda.expect_violations(&[]);
}
