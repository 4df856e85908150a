//! Stores, numbers, doorbells.

use crate::common::wait_for;
use crate::setup::{Gate, busy, device, device_by, seen};
use gpu_async_reactor::backend::lease::DeviceBuffer;
use gpu_async_reactor::backend::vulkan::ash::vk;
use gpu_async_reactor::backend::vulkan::{Submission, VulkanDevice};
use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{
    Clock, DeviceCaps, DeviceStream, Doorbell, Error, ErrorCode, OwnedDescriptor,
};

crate::cases![
    the_start_up_probe_finds_a_real_store,
    a_store_is_seen_while_later_work_keeps_the_stream_busy,
    the_word_of_a_mark_never_comes_before_the_work_in_front_of_it,
    a_program_s_own_command_buffers_run_in_front_of_their_mark,
    a_submission_without_a_mark_is_covered_by_the_status_and_passed_over_by_the_word,
    a_doorbell_is_rung_behind_every_store_and_a_foreign_one_is_refused,
    a_warm_stream_marks_without_an_allocation,
    a_number_that_was_never_issued_is_refused,
    the_device_s_time_of_a_mark_lies_between_its_submission_and_its_sight,
    fills_and_copies_do_what_they_say_and_refuse_what_is_foreign,
];

fn the_start_up_probe_finds_a_real_store() {
    assert_eq!(device().caps(), DeviceCaps { store: Ok(()) });
}

fn a_store_is_seen_while_later_work_keeps_the_stream_busy() {
    let device = device();
    let stream = device.stream().unwrap();
    let gate = Gate::new(&device);
    let number = stream.mark().unwrap();
    gate.hold(&stream).unwrap();
    wait_for(|| seen(&stream, number));
    // What is queued behind it waits for the gate.
    assert!(!stream.query().unwrap());
    stream.synchronize_mark(number).unwrap();
    assert!(stream.query_mark(number).unwrap() && !stream.query().unwrap());
    gate.open();
    stream.synchronize().unwrap();
    assert!(stream.query().unwrap());
    drop(stream);
    gate.end();
}

fn the_word_of_a_mark_never_comes_before_the_work_in_front_of_it() {
    let device = device();
    let stream = device.stream().unwrap();
    let gate = Gate::new(&device);
    gate.hold(&stream).unwrap();
    let number = stream.mark().unwrap();
    // Nothing can be shown to never come; a device at work would have stored long before this is over.
    for _ in 0..1_000 {
        assert!(!seen(&stream, number) && !stream.query_mark(number).unwrap());
    }
    gate.open();
    stream.synchronize_mark(number).unwrap();
    assert!(seen(&stream, number));
    drop(stream);
    gate.end();
}

fn a_program_s_own_command_buffers_run_in_front_of_their_mark() {
    let device = device();
    let stream = device.stream().unwrap();
    let pinned = device.pinned(64).unwrap();
    let (raw, target) = (device.raw(), pinned.raw());
    let info = vk::CommandPoolCreateInfo::default().queue_family_index(device.queue().family());
    // SAFETY: the objects are of this device; the buffer is recorded here alone.
    let (pool, commands) = unsafe {
        let pool = raw.create_command_pool(&info, None).unwrap();
        let info =
            vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
        let commands = raw.allocate_command_buffers(&info).unwrap();
        raw.begin_command_buffer(commands[0], &vk::CommandBufferBeginInfo::default()).unwrap();
        raw.cmd_fill_buffer(commands[0], target, 0, 64, 0x0505_0505);
        raw.end_command_buffer(commands[0]).unwrap();
        (pool, commands)
    };
    let (lease, ticket) = stream
        // SAFETY: the command buffer and what it fills live until the mark is reached: the memory is
        // leased, and the pool is destroyed below.
        .lease(pinned, |_| unsafe { stream.submit_and_mark(&Submission::of(&commands)) })
        .unwrap();
    assert!(lease.ticket().number() > ticket);
    wait_for(|| seen(&stream, ticket));
    stream.synchronize().unwrap();
    let pinned = lease.try_take().unwrap();
    assert_eq!(pinned.as_slice::<u8>(), [5; 64]);
    // SAFETY: the stream is done with it.
    unsafe { raw.destroy_command_pool(pool, None) };
    drop((stream, pinned));
}

fn a_submission_without_a_mark_is_covered_by_the_status_and_passed_over_by_the_word() {
    let device = device();
    let stream = device.stream().unwrap();
    // SAFETY: nothing is submitted but the signal of the stream's own semaphore.
    let empty = |marked: bool| unsafe {
        let work = Submission::default();
        if marked { stream.submit_and_mark(&work) } else { stream.submit(&work) }
    };
    assert_eq!((empty(false).unwrap(), empty(false).unwrap()), (1, 2));
    stream.synchronize_mark(2).unwrap();
    assert!(stream.query().unwrap() && stream.query_mark(2).unwrap());
    assert!(!seen(&stream, 1));
    assert_eq!((empty(true).unwrap(), stream.mark().unwrap()), (3, 4));
    stream.synchronize().unwrap();
    assert!(seen(&stream, 4));
}

fn a_doorbell_is_rung_behind_every_store_and_a_foreign_one_is_refused() {
    let device = device();
    let bell = device.doorbell().unwrap();
    let stream = device.stream_on(&bell).unwrap();
    let mut snapshot = bell.snapshot();
    for _ in 0..100 {
        let number = stream.mark().unwrap();
        wait_for(|| bell.changed_since(&snapshot));
        assert!(seen(&stream, number), "the slot's store comes first");
        snapshot = bell.snapshot();
    }
    let other = self::device();
    for foreign in [Doorbell::new(), other.doorbell().unwrap()] {
        let refused = device.stream_on(&foreign).map(drop).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::ForeignContext);
    }
    drop((stream, bell));
}

fn a_warm_stream_marks_without_an_allocation() {
    // The layer allocates by itself, in its own language; this counts those of Rust alone.
    let device = device();
    let bell = device.doorbell().unwrap();
    let stream = device.stream_on(&bell).unwrap();
    for _ in 0..100 {
        stream.mark().unwrap();
        stream.synchronize().unwrap();
    }
    let counted = allocation_counter::measure(|| {
        for _ in 0..100 {
            let number = stream.mark().unwrap();
            stream.synchronize_mark(number).unwrap();
            assert!(stream.query_mark(number).unwrap());
        }
    });
    assert_eq!(counted.count_total, 0);
    drop((stream, bell));
}

fn a_number_that_was_never_issued_is_refused() {
    let device = device();
    let stream = device.stream().unwrap();
    let number = stream.mark().unwrap();
    let never = |error: Error| error.code() == ErrorCode::NeverIssued;
    assert!(never(stream.query_mark(number + 1).unwrap_err()));
    assert!(never(stream.synchronize_mark(number + 1).unwrap_err()));
    stream.synchronize().unwrap();
}

fn the_device_s_time_of_a_mark_lies_between_its_submission_and_its_sight() {
    let clock = StdClock::new();
    let device = match VulkanDevice::builder().timestamps(true).open() {
        Err(error) if error.code() == ErrorCode::Unsupported => {
            return println!("    not asked: {error}");
        }
        opened => {
            assert_eq!(opened.unwrap().close(), Ok(0));
            device_by(|builder| builder.timestamps(true))
        }
    };
    let stream = device.stream().unwrap();
    let mut last = None;
    for _ in 0..300 {
        let before = clock.monotonic_ns();
        let number = stream.mark().unwrap();
        assert!(number > 1 || stream.completed_at(number + 1).unwrap().is_none());
        stream.synchronize_mark(number).unwrap();
        let after = clock.monotonic_ns();
        let at = stream.completed_at(number).unwrap().expect("the semaphore has passed it");
        // The two clocks are compared to within some microseconds.
        let slack = 50_000;
        assert!(at.0 + slack >= before.0 && at.0 <= after.0 + slack, "{before:?} {at:?} {after:?}");
        last = Some(number);
    }
    assert_eq!(stream.completed_at(1).unwrap(), None, "overwritten long ago");
    assert!(stream.completed_at(last.unwrap() - 200).unwrap().is_some());
    drop(stream);
}

fn fills_and_copies_do_what_they_say_and_refuse_what_is_foreign() {
    let device = device();
    let stream = device.stream().unwrap();
    let (from, to) = (device.buffer(5_000).unwrap(), device.buffer(10_000).unwrap());
    stream.fill(&from, 0x0102_0304, 3).unwrap();
    let number = stream.copy(&from, &to, 5_000).unwrap();
    assert!(stream.copy(&to, &from, 5_001).is_err(), "longer than the target");
    assert!(stream.copy(&to, &to, 1).is_err());
    stream.synchronize_mark(number).unwrap();
    let other = self::device();
    let foreign = other.buffer(64).unwrap();
    assert_eq!(stream.fill(&foreign, 1, 1).unwrap_err().code(), ErrorCode::ForeignContext);
    // A dropped buffer stays until its use is over, and is handed out again after that.
    let big = busy(&device, &stream, 5);
    let raw = big.raw();
    drop(big);
    assert!(device.stats().buffers >= 3);
    let line = OwnedDescriptor {
        line: stream.line().clone(),
        slot: stream.slot(),
        target: stream.mark().unwrap(),
    };
    wait_for(|| line.is_complete());
    stream.synchronize().unwrap();
    stream.mark().unwrap();
    assert_eq!(device.buffer(16 << 20).unwrap().raw(), raw);
    drop((foreign, line));
}
