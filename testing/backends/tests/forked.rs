//! A child that was forked after a driver was opened: everything answers [`ErrorCode::Forked`], nothing calls
//! the driver, and nothing waits for a lock that a thread of the parent holds.
//!
//! One test, in a process of its own: it forks.
#![cfg(target_os = "linux")]

use backend_tests::{Bench, OfCuda, OfHip, Vendor, number_of, thread_port, wait_by};
use gpu_async_reactor::backend::mapped::{HostFunctionPort, StreamHandle};
use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{CompletionPort, DeviceStream, DurNs, ErrorCode, Result, run_inline};

fn is_forked<T>(result: Result<T>) -> bool {
    result.is_err_and(|error| error.code() == ErrorCode::Forked)
}

/// Runs `child` in a forked child, which has 20 s; `0` is its success.
fn in_a_child(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child has this thread only. It allocates, which the system's allocator allows behind a
    // fork, takes no lock that a thread of the parent can hold, and ends by `_exit`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: sets a timer whose signal ends the child.
        unsafe { libc::alarm(20) };
        let code = child();
        // SAFETY: ends the process without running anything of the parent's.
        unsafe { libc::_exit(code) };
    }
    assert!(pid > 0, "fork");
    let mut status = 0;
    // SAFETY: `status` outlives the call; the child is this process's own.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
}

fn a_forked_child_is_refused<V: Vendor>() {
    let bench = Bench::<V>::new();
    let device = bench.device();
    let bell = device.doorbell().unwrap();
    let stream = device.stream_on(&bell).unwrap();
    let memory = V::device_memory(&bench.control, 64);
    bench.hold(&stream);
    let number = stream.mark().unwrap();
    let buffer = device.pinned(64).unwrap();
    // SAFETY: the device memory is that long, is never freed, and written by nobody.
    let readback = unsafe { stream.read_back::<u8, _>(memory, 64, buffer) }.unwrap();
    let [spare, spare_too, spare_still] = [0; 3].map(|_| device.pinned(64).unwrap());
    let of_device = device.memory(64).unwrap();
    let idle_stream = device.stream().unwrap();
    let mut port = HostFunctionPort::new(&idle_stream, StdClock::new());
    port.arm().unwrap();
    let path = bench.control.path().to_path_buf();
    let code = in_a_child(|| {
        let answers = [
            is_forked(device.stream()),
            is_forked(device.stream_on(&bell)),
            is_forked(device.doorbell()),
            is_forked(device.line()),
            is_forked(device.pinned(1)),
            is_forked(device.close()),
            // SAFETY: the default stream is there as long as the context.
            is_forked(unsafe { device.stream_from_raw(StreamHandle::Null, None) }),
            is_forked(stream.query()),
            is_forked(stream.query_mark(number)),
            is_forked(stream.synchronize()),
            is_forked(stream.synchronize_mark(number)),
            is_forked(stream.mark()),
            is_forked(wait_by("poll", &mut thread_port(&stream))),
            is_forked(wait_by("spin:backstop_us=1000", &mut thread_port(&stream))),
            is_forked(wait_by("block", &mut thread_port(&stream))),
            // SAFETY: as in the parent.
            is_forked(unsafe { stream.read_back::<u8, _>(memory, 64, spare) }),
            readback.try_read().is_err_and(|not_yet| {
                not_yet.error().is_some_and(|error| error.code() == ErrorCode::Forked)
            }),
            is_forked(device.memory(1)),
            is_forked(stream.fill(&of_device, 1, 1)),
            is_forked(stream.upload(spare_too, &of_device, 0)),
            is_forked(stream.copy_back::<u8, _>(&of_device, 0..64, spare_still)),
            is_forked(run_inline(port.park(DurNs::from_us(10))).unwrap()),
            is_forked(run_inline(port.poll()).unwrap()),
            is_forked(run_inline(port.block()).unwrap()),
            is_forked(port.query()),
            is_forked(port.arm()),
            is_forked(V::load(&path)),
            is_forked(V::device(&bench.driver, 0)),
        ];
        let first_wrong = answers.iter().position(|forked| !forked);
        of_device.used_by(&stream, number);
        drop(of_device);
        drop(stream);
        drop(bell);
        drop(device);
        first_wrong.map_or(0, |at| 100 + at as i32)
    });
    assert_eq!(code, 0, "100 and more: the answer of that place was another");
    bench.control.release();
    // A call of the child would be found here.
    bench.assert_clean();
    let (stream, device) = (bench.device().stream().unwrap(), bench.device());
    assert_eq!(bench.control.work(number_of(stream.handle()), driver_core::DurNs::from_us(10)), 0);
    wait_by("spin:backstop_us=1000", &mut thread_port(&stream)).unwrap();
    drop((stream, device));
}

#[test]
fn everything_made_before_a_fork_is_refused_in_the_child_without_a_driver_call() {
    a_forked_child_is_refused::<OfCuda>();
    a_forked_child_is_refused::<OfHip>();
}
