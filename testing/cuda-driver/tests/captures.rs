//! Captures, and the calls that break them.
#![cfg(target_os = "linux")]

mod common;

use common::{Cuda, GLOBAL, Handle, RELAXED, THREAD_LOCAL};
use std::sync::atomic::Ordering;
use std::thread;

const UNSUPPORTED: i32 = 900;
const INVALIDATED: i32 = 901;
const ISOLATION: i32 = 905;
const IMPLICIT: i32 = 906;
const CAPTURED_EVENT: i32 = 907;
const WRONG_THREAD: i32 = 908;
const ILLEGAL_STATE: i32 = 401;
const BROKEN: &str = "a capture was invalidated";

/// A call, by its status.
type StatusCall<'a> = dyn Fn(&Cuda) -> i32 + Send + Sync + 'a;

/// Runs `there` on another thread, under the same context, in the capture mode `mode`.
fn elsewhere<T: Send>(cuda: &Cuda, mode: i32, there: impl Fn(&Cuda) -> T + Send + Sync) -> T {
    let context = cuda.current();
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            cuda.bind(context);
            cuda.exchange_mode(mode);
            let answer = there(cuda);
            cuda.exchange_mode(GLOBAL);
            answer
        });
        other.join().unwrap()
    })
}

#[test]
fn what_is_captured_is_recorded_and_not_run() {
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    let event = cuda.event();
    let (words, at) = cuda.words();
    assert_eq!(cuda.capturing(stream), (0, 0));
    assert_eq!(cuda.begin_capture(stream, GLOBAL), 0);
    assert_eq!(cuda.begin_capture(stream, GLOBAL), ILLEGAL_STATE);
    assert_eq!(cuda.capturing(stream), (0, 1));
    assert_eq!(cuda.write(stream, at, 9), 0);
    assert_eq!(cuda.record(event, stream), 0);
    let (status, graph) = cuda.end_capture(stream);
    assert_eq!(status, 0);
    assert_ne!(graph, 0);
    assert_eq!(cu!(cuda, cuGraphDestroy(graph => Handle)), 0);
    assert_eq!(cuda.synchronize(stream), 0);
    assert_eq!(words[0].load(Ordering::Acquire), 0);
    assert_eq!(cuda.query_event(event), CAPTURED_EVENT);
    assert_eq!(cuda.record(event, stream), 0, "recorded anew");
    assert_eq!(cu!(cuda, cuEventSynchronize(event => Handle)), 0);
    assert_eq!(cuda.end_capture(stream).0, ILLEGAL_STATE, "there is none");
    cuda.expect_violations(&[]);
}

#[test]
fn a_status_call_of_any_thread_breaks_a_global_capture_unless_its_mode_is_relaxed() {
    let cuda = Cuda::ready();
    let (captured, other) = (cuda.stream(), cuda.stream());
    let event = cuda.event();
    assert_eq!(cuda.record(event, other), 0);
    let calls: [(&str, &StatusCall); 5] = [
        ("cuStreamQuery", &|cuda| cuda.query(other)),
        ("cuEventQuery", &|cuda| cuda.query_event(event)),
        ("cuStreamSynchronize", &|cuda| cuda.synchronize(other)),
        ("cuEventSynchronize", &|cuda| cu!(cuda, cuEventSynchronize(event => Handle))),
        ("cuMemHostAlloc", &|cuda| {
            let mut at = std::ptr::null_mut::<u8>();
            cu!(cuda, cuMemHostAlloc(&raw mut at => *mut *mut u8, 64 => usize, 3 => u32))
        }),
    ];
    assert_eq!(cuda.synchronize(other), 0);
    for (name, call) in calls {
        for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
            assert_eq!(cuda.begin_capture(captured, GLOBAL), 0);
            let status = elsewhere(&cuda, mode, call);
            let breaks = mode == GLOBAL;
            assert_eq!(status, if breaks { UNSUPPORTED } else { 0 }, "{name} in mode {mode}");
            let expected = if breaks { (0, 2) } else { (0, 1) };
            assert_eq!(cuda.capturing(captured), expected, "{name} in mode {mode}");
            let (status, graph) = cuda.end_capture(captured);
            assert_eq!((status, graph == 0), (if breaks { INVALIDATED } else { 0 }, breaks));
        }
    }
    cuda.expect_violations(&[BROKEN; 5]);
}

#[test]
fn a_wait_for_the_whole_context_breaks_its_captures_in_any_mode() {
    let cuda = Cuda::ready();
    let captured = cuda.stream();
    for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
        for begun in [GLOBAL, THREAD_LOCAL, RELAXED] {
            assert_eq!(cuda.begin_capture(captured, begun), 0);
            assert_eq!(elsewhere(&cuda, mode, |cuda| cu!(cuda, cuCtxSynchronize())), UNSUPPORTED);
            assert_eq!(cuda.end_capture(captured).0, INVALIDATED, "{begun}, from mode {mode}");
        }
    }
    // That of another context is none of its business.
    let primary = cuda.current();
    let mut other: Handle = 0;
    let to = &raw mut other;
    assert_eq!(cu!(cuda, cuCtxCreate_v2(to => *mut Handle, 0 => u32, 0 => i32)), 0);
    assert_eq!(cu!(cuda, cuCtxPopCurrent_v2(to => *mut Handle)), 0);
    cuda.bind(primary);
    assert_eq!(cuda.begin_capture(captured, GLOBAL), 0);
    assert_eq!(
        elsewhere(&cuda, RELAXED, |cuda| {
            cuda.bind(other);
            cu!(cuda, cuCtxSynchronize())
        }),
        0
    );
    assert_eq!(cuda.end_capture(captured).0, 0);
    cuda.expect_violations(&[BROKEN; 9]);
}

#[test]
fn an_event_recorded_before_a_capture_can_be_asked_in_relaxed_mode() {
    let cuda = Cuda::ready();
    let (stream, event) = (cuda.stream(), cuda.event());
    assert_eq!(cuda.record(event, stream), 0);
    assert_eq!(cuda.synchronize(stream), 0);
    assert_eq!(cuda.begin_capture(stream, GLOBAL), 0);
    assert_eq!(elsewhere(&cuda, RELAXED, |cuda| cuda.query_event(event)), 0);
    let wait = |cuda: &Cuda| cu!(cuda, cuEventSynchronize(event => Handle));
    assert_eq!(elsewhere(&cuda, RELAXED, wait), 0);
    assert_eq!(cuda.end_capture(stream).0, 0);
    cuda.expect_violations(&[]);
}

#[test]
fn a_thread_local_capture_is_broken_by_its_own_thread_only() {
    let cuda = Cuda::ready();
    let (captured, other) = (cuda.stream(), cuda.stream());
    assert_eq!(cuda.begin_capture(captured, THREAD_LOCAL), 0);
    assert_eq!(elsewhere(&cuda, GLOBAL, |cuda| cuda.query(other)), 0);
    assert_eq!(cuda.capturing(captured), (0, 1));
    assert_eq!(cuda.exchange_mode(RELAXED), GLOBAL);
    assert_eq!(cuda.query(other), 0);
    assert_eq!(cuda.exchange_mode(THREAD_LOCAL), RELAXED);
    assert_eq!(cuda.query(other), UNSUPPORTED);
    assert_eq!(cuda.exchange_mode(GLOBAL), THREAD_LOCAL);
    assert_eq!(cuda.end_capture(captured).0, INVALIDATED);
    assert_eq!(cuda.begin_capture(captured, RELAXED), 0);
    assert_eq!(cuda.query(other), 0, "a relaxed one is not broken");
    assert_eq!(cuda.end_capture(captured).0, 0);
    cuda.expect_violations(&[BROKEN]);
}

#[test]
fn the_status_of_a_captured_stream_breaks_the_capture_in_any_mode() {
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    let event = cuda.event();
    cuda.exchange_mode(RELAXED);
    assert_eq!(cuda.begin_capture(stream, RELAXED), 0);
    assert_eq!(cuda.query(stream), UNSUPPORTED);
    assert_eq!(cuda.query(stream), INVALIDATED, "broken already");
    assert_eq!(cuda.record(event, stream), INVALIDATED);
    assert_eq!(cuda.end_capture(stream).0, INVALIDATED);
    assert_eq!(cuda.begin_capture(stream, RELAXED), 0);
    assert_eq!(cuda.record(event, stream), 0);
    assert_eq!(cuda.query_event(event), CAPTURED_EVENT);
    assert_eq!(cuda.end_capture(stream).0, INVALIDATED);
    cuda.exchange_mode(GLOBAL);
    cuda.expect_violations(&[BROKEN; 2]);
}

#[test]
fn the_legacy_stream_cannot_be_used_while_a_blocking_stream_is_captured() {
    let cuda = Cuda::ready();
    let (blocking, free) = (cuda.stream_with(0), cuda.stream());
    assert_eq!(cuda.begin_capture(0, GLOBAL), UNSUPPORTED, "never the legacy stream");
    assert_eq!(cuda.begin_capture(free, RELAXED), 0);
    assert_eq!(cuda.capturing(0), (0, 0), "this one does not synchronise with it");
    assert_eq!(cuda.end_capture(free).0, 0);
    assert_eq!(cuda.begin_capture(blocking, RELAXED), 0);
    assert_eq!(cuda.capturing(0).0, IMPLICIT);
    assert_eq!(cuda.capturing(1).0, IMPLICIT);
    assert_eq!(cuda.capturing(2), (0, 0));
    assert_eq!(cuda.capturing(blocking), (0, 1), "asking has broken nothing");
    assert_eq!(cuda.query(0), IMPLICIT);
    assert_eq!(cuda.capturing(blocking), (0, 2), "using it has");
    assert_eq!(cuda.end_capture(blocking).0, INVALIDATED);
    cuda.expect_violations(&[BROKEN]);
}

#[test]
fn a_capture_ends_on_its_stream_and_its_thread() {
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    assert_eq!(cuda.begin_capture(stream, THREAD_LOCAL), 0);
    assert_eq!(elsewhere(&cuda, GLOBAL, |cuda| cuda.end_capture(stream).0), WRONG_THREAD);
    assert_eq!(cuda.end_capture(stream).0, 0);
    assert_eq!(cuda.begin_capture(stream, RELAXED), 0);
    assert_eq!(elsewhere(&cuda, GLOBAL, |cuda| cuda.end_capture(stream).0), 0);
    cuda.expect_violations(&[]);
}

#[test]
fn a_stream_joins_a_capture_by_its_event_and_nothing_else_crosses_the_border() {
    let cuda = Cuda::ready();
    let (origin, joined) = (cuda.stream(), cuda.stream());
    let (inside, outside) = (cuda.event(), cuda.event());
    assert_eq!(cuda.record(outside, joined), 0);
    assert_eq!(cuda.begin_capture(origin, RELAXED), 0);
    assert_eq!(cuda.record(inside, origin), 0);
    let wait = |stream: Handle, event: Handle| cu!(cuda, cuStreamWaitEvent(stream => Handle, event => Handle, 0 => u32));
    assert_eq!(wait(joined, inside), 0);
    assert_eq!(cuda.capturing(joined), (0, 1));
    assert_eq!(cuda.end_capture(joined).0, 903, "it began elsewhere");
    assert_eq!(wait(origin, outside), ISOLATION);
    assert_eq!(cuda.end_capture(origin).0, INVALIDATED);
    assert_eq!(cuda.capturing(joined), (0, 0));
    cuda.expect_violations(&[BROKEN]);
}

#[test]
fn a_mode_that_is_not_restored_is_found() {
    let cuda = Cuda::ready();
    let mut mode = 3;
    let to = &raw mut mode;
    assert_eq!(cu!(cuda, cuThreadExchangeStreamCaptureMode(to => *mut i32)), 1, "no such mode");
    cuda.exchange_mode(RELAXED);
    cuda.expect_violations(&["left in the capture mode Relaxed"]);
}
