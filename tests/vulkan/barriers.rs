//! Which barriers stand around the stores of a mark. A device in software runs everything in order, so that
//! no result shows a missing one.

use crate::broken::{Broken, Recorded, recorded};
use gpu_async_reactor::DeviceStream;
use gpu_async_reactor::backend::vulkan::ash::vk::{
    AccessFlags as Access, PipelineStageFlags as Stage,
};

crate::cases![
    each_store_of_a_mark_is_visible_to_the_host_before_the_next_one,
    a_copy_sees_what_was_written_before_and_is_visible_to_the_host,
];

/// Whether `command` is a barrier from all of `from` to all of `to`.
fn orders(command: Recorded, from: (Stage, Access), to: (Stage, Access)) -> bool {
    let Recorded::Barrier { from: before, to: after } = command else { return false };
    let has = |scope: (u32, u32), asked: (Stage, Access)| {
        Stage::from_raw(scope.0).contains(asked.0) && Access::from_raw(scope.1).contains(asked.1)
    };
    has(before, from) && has(after, to)
}

const EVERYTHING: (Stage, Access) = (Stage::ALL_COMMANDS, Access::MEMORY_WRITE);
const STORE: (Stage, Access) = (Stage::TRANSFER, Access::TRANSFER_WRITE);
const HOST: (Stage, Access) = (Stage::HOST, Access::HOST_READ);

fn each_store_of_a_mark_is_visible_to_the_host_before_the_next_one() {
    let broken = Broken::new();
    let bell = broken.device.doorbell().unwrap();
    let (rings, silent) =
        (broken.device.stream_on(&bell).unwrap(), broken.device.stream().unwrap());
    recorded();
    rings.mark().unwrap();
    let [work, word, between, ring, behind] = recorded()[..] else { panic!("five commands") };
    assert_eq!((word, ring), (Recorded::Update { bytes: 8 }, Recorded::Update { bytes: 4 }));
    for (barrier, before) in [(work, EVERYTHING), (between, STORE)] {
        // Who sees the word finds the work done, and who hears the doorbell finds the word.
        assert!(orders(barrier, before, STORE) && orders(barrier, before, HOST), "{barrier:?}");
    }
    assert!(orders(behind, STORE, HOST), "{behind:?}");
    silent.mark().unwrap();
    let [work, word, behind] = recorded()[..] else { panic!("three commands") };
    assert_eq!(word, Recorded::Update { bytes: 8 });
    assert!(orders(work, EVERYTHING, STORE) && orders(work, EVERYTHING, HOST), "{work:?}");
    assert!(orders(behind, STORE, HOST), "{behind:?}");
    rings.synchronize().unwrap();
    silent.synchronize().unwrap();
    drop((rings, silent, bell));
    broken.end();
}

fn a_copy_sees_what_was_written_before_and_is_visible_to_the_host() {
    let broken = Broken::new();
    let device = &broken.device;
    let stream = device.stream().unwrap();
    let (from, to) = (device.buffer(64).unwrap(), device.buffer(64).unwrap());
    recorded();
    stream.fill(&from, 1, 2).unwrap();
    let read = (Stage::TRANSFER, Access::TRANSFER_READ);
    for barrier in recorded() {
        assert!(orders(barrier, EVERYTHING, STORE), "{barrier:?}");
    }
    stream.copy(&from, &to, 64).unwrap();
    let [before, behind] = recorded()[..] else { panic!("two barriers") };
    assert!(orders(before, EVERYTHING, STORE) && orders(before, EVERYTHING, read), "{before:?}");
    assert!(orders(behind, STORE, HOST), "{behind:?}");
    stream.synchronize().unwrap();
    drop((stream, from, to));
    broken.end();
}
