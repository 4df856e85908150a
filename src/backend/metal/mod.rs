//! Metal, on Apple's systems: a shared event as the status of a command queue.
//!
//! **Type-checked only.** No machine with Metal has run this module. `scripts/check-metal` checks its
//! types, those of its example, and the tests of the part that is independent of Apple (`ledger`).
//!
//! | | by |
//! |---|---|
//! | the status of a mark | `MTLSharedEvent.signaledValue`, and `MTLCommandBuffer.status` and `.error` of what was committed in front of it |
//! | the word | a `MTLSharedEventListener`, whose block stores the number into a line of this process and rings the doorbell |
//! | the blocking wait | `waitUntilSignaledValue:timeoutMS:` where the system has it, `waitUntilCompleted` |
//!
//! The device writes no word itself, so [`MetalDevice::caps`] refuses a device's store with that
//! reason, and the plans `flag` and `spin` resolve to `poll`. The word still comes, written by a
//! thread of the system's: a task that waits by a [`Reactor`](crate::Reactor) or a `Watcher` is woken
//! by it.
//!
//! # Errors
//!
//! A command buffer that fails may never signal the events it was to signal, and those behind it may
//! go on. So the event alone would lose errors or hang: a stream keeps the command buffers that were
//! committed through it until their state is known, and a status query reads state and error of those
//! in front of the mark it asks about. The error of the first that failed, in the order of the commits, is the
//! error of every wait for a point behind it, from then on. Points in front of it stay done.
//!
//! Only what is committed by [`MetalStream::commit`] is known. A command buffer that the program commits
//! itself takes part in the order of the queue, and its error is not seen here.
//!
//! # Memory ordering
//!
//! A status `true` was read from the event and from the states, both of which Metal makes visible to
//! the CPU together with what the GPU wrote to shared memory before.
//!
//! # Costs
//!
//! A mark is one command buffer and one block. A status query reads the event's value and the state of
//! each command buffer that is not known to have ended. A queue has a bound of unfinished command buffers
//! ([`QUEUE_LENGTH`] for those made here, 64 for `newCommandQueue`), and Metal blocks whoever asks for
//! one more: [`mark`](crate::DeviceStream::mark) too.
//!
//! # Sources
//!
//! Apple's pages "MTLSharedEvent", "MTLSharedEventListener", "notifyListener:atValue:block:",
//! "waitUntilSignaledValue:timeoutMS:", "encodeSignalEvent:value:", "MTLCommandBufferStatus",
//! "MTLCommandBufferError", "MTLCommandQueue" ("a serial queue of command buffers"),
//! "makeCommandQueue(maxCommandBufferCount:)", and "Setting resource storage modes". The framework is
//! part of the system and is linked, unlike the drivers of other backends.

#[cfg(all(feature = "metal", target_vendor = "apple"))]
mod buffer;
#[cfg(all(feature = "metal", target_vendor = "apple"))]
mod device;
#[cfg_attr(
    not(all(feature = "metal", target_vendor = "apple")),
    allow(dead_code, reason = "for its tests")
)]
mod ledger;
#[cfg(all(feature = "metal", target_vendor = "apple"))]
mod stream;

#[cfg(all(feature = "metal", target_vendor = "apple"))]
pub use buffer::MetalBuffer;
#[cfg(all(feature = "metal", target_vendor = "apple"))]
pub use device::{MetalDevice, QUEUE_LENGTH};
#[cfg(all(feature = "metal", target_vendor = "apple"))]
pub use stream::MetalStream;
