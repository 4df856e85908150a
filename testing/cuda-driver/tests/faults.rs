//! What goes wrong: sticky faults, injected failures, broken stores, hung queries, forked children.
#![cfg(target_os = "linux")]

mod common;

use common::{Cuda, Handle, wait_for};
use driver_core::{DurNs, Live};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const NOT_READY: i32 = 600;
const ILLEGAL_ADDRESS: i32 = 700;

/// Adds one to the word that it is given.
extern "C" fn count(word: *mut c_void) {
    // SAFETY: a static word, or a page of the driver's that is not freed before the function ran.
    let word = unsafe { AtomicU64::from_ptr(word.cast()) };
    word.fetch_add(1, Ordering::Release);
}

type Function = extern "C" fn(*mut c_void);

fn launch(cuda: &Cuda, stream: Handle, function: Function, word: &'static AtomicU64) -> i32 {
    let word: *mut c_void = word.as_ptr().cast();
    cu!(cuda, cuLaunchHostFunc(stream => Handle, function => Function, word => *mut c_void))
}

#[test]
fn a_host_function_runs_behind_the_work_before_it() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    assert_eq!(cuda.control.hold(stream), 0);
    assert_eq!(launch(&cuda, stream, count, &RUNS), 0);
    assert_eq!(cuda.query(stream), NOT_READY);
    assert_eq!(RUNS.load(Ordering::Acquire), 0);
    cuda.control.release();
    assert_eq!(cuda.synchronize(stream), 0);
    assert_eq!(RUNS.load(Ordering::Acquire), 1);
}

#[test]
fn after_a_sticky_fault_everything_answers_it_and_nothing_is_stored_or_called() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    let event = cuda.event();
    let (words, at) = cuda.words();
    assert_eq!(cuda.control.hold(stream), 0);
    assert_eq!(cuda.write(stream, at, 1), 0);
    assert_eq!(launch(&cuda, stream, count, &RUNS), 0);
    assert_eq!(cuda.record(event, stream), 0);
    cuda.control.fault(ILLEGAL_ADDRESS);
    for _ in 0..2 {
        assert_eq!(cuda.query(stream), ILLEGAL_ADDRESS);
        assert_eq!(cuda.query_event(event), ILLEGAL_ADDRESS);
        assert_eq!(cuda.synchronize(stream), ILLEGAL_ADDRESS);
        assert_eq!(cuda.write(stream, at, 2), ILLEGAL_ADDRESS);
        assert_eq!(cuda.record(event, stream), ILLEGAL_ADDRESS);
        assert_eq!(launch(&cuda, stream, count, &RUNS), ILLEGAL_ADDRESS);
        assert_eq!(cuda.capturing(stream).0, ILLEGAL_ADDRESS);
        assert_eq!(cu!(cuda, cuCtxSynchronize()), ILLEGAL_ADDRESS);
        let host = words.as_ptr().cast_mut().cast::<c_void>();
        assert_eq!(cu!(cuda, cuMemFreeHost(host => *mut c_void)), ILLEGAL_ADDRESS);
    }
    // The discarded work is over once the workers have gone through it, which the end of the
    // context makes them do before a reset returns.
    cuda.control.reset();
    assert_eq!(words[0].load(Ordering::Acquire), 0);
    assert_eq!(RUNS.load(Ordering::Acquire), 0);
}

#[test]
fn a_thread_that_waits_is_woken_by_a_fault() {
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    assert_eq!(cuda.control.hold(stream), 0);
    let context = cuda.current();
    thread::scope(|scope| {
        let cuda = &cuda;
        let waiting = scope.spawn(move || {
            cuda.bind(context);
            cuda.synchronize(stream)
        });
        wait_for(|| cuda.control.calls("cuStreamSynchronize") == 1);
        cuda.control.fault(719);
        assert_eq!(waiting.join().unwrap(), 719);
    });
}

#[test]
fn the_last_reference_to_a_faulted_primary_context_takes_the_fault_with_it() {
    let cuda = Cuda::ready();
    let faulted = cuda.current();
    cuda.control.fault(ILLEGAL_ADDRESS);
    assert_eq!(cu!(cuda, cuDevicePrimaryCtxRelease_v2(0 => i32)), 0);
    assert_eq!(cu!(cuda, cuCtxSynchronize()), 709, "the context is destroyed");
    let fresh = cuda.retain(0);
    assert_ne!(fresh, faulted);
    cuda.bind(fresh);
    assert_eq!(cu!(cuda, cuCtxSynchronize()), 0);
}

#[test]
fn an_armed_failure_answers_once_and_without_effect() {
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    let (words, at) = cuda.words();
    let before = cuda.control.calls("cuStreamWriteValue64_v2");
    cuda.control.fail("cuStreamWriteValue64_v2", 2, 999);
    cuda.control.fail("cuStreamWriteValue64_v2", 3, 2);
    let answers: Vec<i32> = (0..4).map(|word| cuda.write(stream, at + 8 * word, 1)).collect();
    assert_eq!(answers, [0, 999, 2, 0]);
    assert_eq!(cuda.control.calls("cuStreamWriteValue64_v2"), before + 4);
    assert_eq!(cuda.synchronize(stream), 0);
    let stored: Vec<u64> = words[..4].iter().map(|word| word.load(Ordering::Acquire)).collect();
    assert_eq!(stored, [1, 0, 0, 1]);
}

#[test]
fn lost_stores_never_land_and_late_ones_after_the_status() {
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    let (words, at) = cuda.words();
    cuda.control.lose_stores(1);
    let late = DurNs::from_us(2000);
    let begin = Instant::now();
    cuda.control.delay_stores(1, late);
    for word in 0..3 {
        assert_eq!(cuda.write(stream, at + 8 * word, 4), 0);
    }
    assert_eq!(cuda.synchronize(stream), 0);
    assert_eq!(words[2].load(Ordering::Acquire), 4);
    wait_for(|| words[1].load(Ordering::Acquire) == 4);
    assert!(begin.elapsed() >= Duration::from(late));
    assert_eq!(words[0].load(Ordering::Acquire), 0);
    assert_eq!(cuda.control.live(Live::PendingStores), 0);
}

#[test]
fn status_queries_hang_while_told_to() {
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    let event = cuda.event();
    let context = cuda.current();
    cuda.control.hang_queries(true);
    thread::scope(|scope| {
        let cuda = &cuda;
        let asking: Vec<_> = [0, 1]
            .map(|which| {
                scope.spawn(move || {
                    cuda.bind(context);
                    if which == 0 { cuda.query(stream) } else { cuda.query_event(event) }
                })
            })
            .into();
        wait_for(|| cuda.control.hung() == 2);
        assert_eq!(cuda.control.work(stream, DurNs(1)), 0, "other calls go on");
        assert_eq!(cuda.synchronize(stream), 0);
        assert!(asking.iter().all(|asking| !asking.is_finished()));
        cuda.control.hang_queries(false);
        for asking in asking {
            assert_eq!(asking.join().unwrap(), 0);
        }
    });
}

#[test]
fn a_call_in_a_forked_child_is_refused_and_found_by_the_parent() {
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    // SAFETY: the child makes calls that the driver refuses without a lock, and ends by `_exit`.
    let child = unsafe {
        match libc::fork() {
            0 => {
                let query: unsafe extern "C" fn(Handle) -> i32 =
                    *cuda.control.entry_points().get(b"cuStreamQuery\0").unwrap();
                libc::_exit(i32::from(query(stream) == 3 && query(stream) == 3) + 6)
            }
            child => child,
        }
    };
    let mut status = 0;
    // SAFETY: `status` outlives the call, and the child is this process's own.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 7));
    assert_eq!(cuda.query(stream), 0, "the parent's driver goes on");
    cuda.expect_violations(&["cuStreamQuery: called 2 x in a forked child"]);
}

/// Asks the driver, which a host function must not.
extern "C" fn ask(word: *mut c_void) {
    let control = driver_core::Control::attach(driver_core::library("cuda_driver"));
    let query = driver_core::foreign_call!(control.entry_points(), cuStreamQuery(0 => u64) -> i32);
    // SAFETY: the static word of the test.
    let word = unsafe { AtomicU64::from_ptr(word.cast()) };
    word.store(query.unsigned_abs().into(), Ordering::Release);
}

#[test]
fn a_host_function_may_not_call_the_driver() {
    static ANSWER: AtomicU64 = AtomicU64::new(0);
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    assert_eq!(launch(&cuda, stream, ask, &ANSWER), 0);
    assert_eq!(cuda.synchronize(stream), 0);
    assert_eq!(ANSWER.load(Ordering::Acquire), 800);
    cuda.expect_violations(&["cuStreamQuery: called by a host function"]);
}
