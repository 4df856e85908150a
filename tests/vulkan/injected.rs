//! Each function of Vulkan failing in turn.

use crate::broken::{Broken, CALLS, fail, repair};
use crate::setup::Gate;
use gpu_async_reactor::backend::vulkan::VulkanDevice;
use gpu_async_reactor::backend::vulkan::ash::vk;
use gpu_async_reactor::{DeviceStream, Error, ErrorCode, Result};

crate::cases![
    each_call_that_fails_for_lack_of_memory_is_an_error_and_leaves_everything_usable,
    each_call_that_loses_the_device_is_the_answer_of_every_later_one,
    a_failed_submission_of_unknown_outcome_loses_the_device,
    every_use_of_the_queue_is_under_the_lock_that_was_lent,
    a_lent_lock_that_panics_behind_a_submission_loses_the_device,
    a_device_without_a_needed_function_is_refused,
];

/// Something of everything, from making to waiting.
fn use_all(device: &VulkanDevice) -> Result<()> {
    let bell = device.doorbell()?;
    let stream = device.stream_on(&bell)?;
    let (from, to) = (device.buffer(5_000)?, device.buffer(5_000)?);
    let _pinned = device.pinned(100)?;
    stream.fill(&from, 7, 2)?;
    stream.copy(&from, &to, 5_000)?;
    let number = stream.mark()?;
    stream.synchronize_mark(number)?;
    // SAFETY: nothing is submitted but the signal of the stream's own semaphore.
    unsafe { stream.submit_and_mark(&Default::default())? };
    stream.synchronize()?;
    assert!(stream.query()? && stream.query_mark(number)?);
    Ok(())
}

fn is_status(error: &Error, call: &str, result: vk::Result) -> bool {
    error.code() == ErrorCode::Backend
        && error.args()[0] == call
        && error.status_number() == Some(i64::from(result.as_raw()))
}

fn each_call_that_fails_for_lack_of_memory_is_an_error_and_leaves_everything_usable() {
    let result = vk::Result::ERROR_OUT_OF_HOST_MEMORY;
    let mut failed = 0;
    for &call in CALLS.iter().filter(|&&call| call != "vkQueueWaitIdle") {
        for skip in 0.. {
            let broken = Broken::new();
            fail(call, skip, result);
            let used = use_all(&broken.device);
            if repair() {
                used.unwrap();
                assert!(skip > 0, "{call} is never called");
                broken.end();
                break;
            }
            let error = used.unwrap_err();
            assert!(is_status(&error, call, result), "{call} {skip}: {error}");
            assert!(error.to_string().ends_with("-1 ERROR_OUT_OF_HOST_MEMORY"), "{error}");
            failed += 1;
            use_all(&broken.device).unwrap();
            broken.end();
        }
    }
    let broken = Broken::new();
    use_all(&broken.device).unwrap();
    fail("vkQueueWaitIdle", 0, result);
    assert!(is_status(&broken.device.close().unwrap_err(), "vkQueueWaitIdle", result));
    broken.end();
    println!("    {failed} calls of {} functions failed", CALLS.len());
}

fn each_call_that_loses_the_device_is_the_answer_of_every_later_one() {
    let result = vk::Result::ERROR_DEVICE_LOST;
    for call in ["vkQueueSubmit", "vkGetSemaphoreCounterValue", "vkWaitSemaphores"] {
        let broken = Broken::new();
        let device = &broken.device;
        let bystander = device.stream().unwrap();
        let number = bystander.mark().unwrap();
        bystander.synchronize().unwrap();
        fail(call, 0, result);
        assert!(is_status(&use_all(device).unwrap_err(), call, result), "{call}");
        assert!(!repair(), "{call} is called");
        for error in [
            bystander.query().unwrap_err(),
            bystander.query_mark(number).unwrap_err(),
            bystander.synchronize().unwrap_err(),
            bystander.synchronize_mark(number).unwrap_err(),
            bystander.mark().unwrap_err(),
            device.stream().map(drop).unwrap_err(),
            device.pinned(1).map(drop).unwrap_err(),
        ] {
            assert!(is_status(&error, call, result), "{call}: {error}");
        }
        assert!(device.caps().store.unwrap_err().contains("-4 ERROR_DEVICE_LOST"));
        drop(bystander);
        assert!(is_status(&device.close().unwrap_err(), call, result));
        let stats = device.stats();
        assert_eq!((stats.leaked, stats.settling), (2, 0), "{call}: {stats:?}");
        assert_eq!(stats.slots.retired, 2, "their stores may still land");
        let leaked = VulkanDevice::leaked_devices();
        broken.messages.assert_none();
        drop(broken);
        assert_eq!(VulkanDevice::leaked_devices(), leaked + 2, "it, and the one it lies on");
    }
}

fn a_failed_submission_of_unknown_outcome_loses_the_device() {
    let broken = Broken::new();
    let stream = broken.device.stream().unwrap();
    fail("vkQueueSubmit", 0, vk::Result::ERROR_UNKNOWN);
    let error = stream.mark().unwrap_err();
    assert!(is_status(&error, "vkQueueSubmit", vk::Result::ERROR_UNKNOWN));
    assert_eq!(stream.query().unwrap_err(), error);
}

fn every_use_of_the_queue_is_under_the_lock_that_was_lent() {
    use gpu_async_reactor::backend::vulkan::QueueLock;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    #[derive(Default)]
    struct Counting {
        lock: std::sync::Mutex<()>,
        inside: AtomicBool,
        times: AtomicU64,
    }
    // SAFETY: as the mutex that it locks, and nobody else uses the queue.
    unsafe impl QueueLock for Counting {
        fn locked(&self, critical: &mut dyn FnMut()) {
            let _guard = self.lock.lock().unwrap();
            assert!(!self.inside.swap(true, Ordering::SeqCst), "one at a time");
            critical();
            self.inside.store(false, Ordering::SeqCst);
            self.times.fetch_add(1, Ordering::SeqCst);
        }
    }
    let lock = std::sync::Arc::new(Counting::default());
    let broken = Broken::locked_by(Some(lock.clone()));
    let device = &broken.device;
    let programs = std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let stream = device.stream().unwrap();
                (0..100).for_each(|_| _ = stream.mark().unwrap());
                stream.synchronize().unwrap();
            });
        }
        // The program submits as well, without a stream.
        (0..100).fold(0, |submitted, _| {
            device.queue().with(|queue| {
                assert!(lock.inside.load(Ordering::SeqCst));
                // SAFETY: the queue is this thread's alone under the lock; nothing is submitted.
                unsafe { device.raw().queue_submit(queue, &[], vk::Fence::null()) }.unwrap();
            });
            submitted + 1
        })
    });
    assert_eq!((programs, lock.times.load(Ordering::SeqCst)), (100, 400));
    broken.end();
    assert_eq!(lock.times.load(Ordering::SeqCst), 401, "closing waits under it as well");
}

fn a_lent_lock_that_panics_behind_a_submission_loses_the_device() {
    use gpu_async_reactor::backend::vulkan::QueueLock;
    use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
    use std::sync::atomic::{AtomicBool, Ordering};
    #[derive(Default)]
    struct Panicking(AtomicBool);
    // SAFETY: one thread alone uses the queue.
    unsafe impl QueueLock for Panicking {
        fn locked(&self, critical: &mut dyn FnMut()) {
            critical();
            assert!(!self.0.swap(false, Ordering::SeqCst), "behind the submission");
        }
    }
    let lock = std::sync::Arc::new(Panicking::default());
    let broken = Broken::locked_by(Some(lock.clone()));
    let device = &broken.device;
    let (stream, gate) = (device.stream().unwrap(), Gate::new(device));
    gate.hold(&stream).unwrap();
    let buffer = device.buffer(64).unwrap();
    lock.0.store(true, Ordering::SeqCst);
    set_hook(Box::new(|_| {}));
    let panicked = catch_unwind(AssertUnwindSafe(|| stream.fill(&buffer, 1, 1)));
    drop(take_hook());
    assert!(panicked.is_err());
    // The device has what it was given, and this backend took no note of it: nothing may be used again.
    drop(buffer);
    for error in [stream.mark().unwrap_err(), device.buffer(64).map(drop).unwrap_err()] {
        assert!(error.to_string().contains("vkQueueSubmit"), "{error}");
    }
    gate.open();
    drop(stream);
    assert!(device.close().is_err());
    broken.messages.assert_none();
}

fn a_device_without_a_needed_function_is_refused() {
    use gpu_async_reactor::backend::vulkan::{RawDevice, ash};
    let base = VulkanDevice::open().unwrap();
    // An instance whose devices lack a function.
    unsafe extern "system" fn lacking(
        _device: vk::Device,
        name: *const std::ffi::c_char,
    ) -> vk::PFN_vkVoidFunction {
        unsafe extern "system" fn there() {}
        // SAFETY: the name ends with a NUL.
        let name = unsafe { std::ffi::CStr::from_ptr(name) };
        if name == c"vkWaitSemaphores" { None } else { Some(there) }
    }
    let mut functions = base.raw_instance().fp_v1_0().clone();
    functions.get_device_proc_addr = lacking;
    let instance = ash::Instance::from_parts_1_3(
        base.raw_instance().handle(),
        functions,
        base.raw_instance().fp_v1_1().clone(),
        base.raw_instance().fp_v1_3().clone(),
    );
    let raw = RawDevice {
        instance,
        physical_device: base.raw_physical_device(),
        device: base.raw().clone(),
        queue: base.queue().with(|queue| queue),
        queue_family: base.queue().family(),
        lock: None,
    };
    // SAFETY: the handles are those of `base`; nothing is made of them.
    let error = unsafe { VulkanDevice::from_raw(raw) }.map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::SymbolMissing);
    assert!(error.to_string().contains("vkWaitSemaphores"), "{error}");
    assert_eq!(base.close(), Ok(0));
}
