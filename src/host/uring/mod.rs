//! A thread that idles in an `io_uring`: [`UringIdle`], and the program's own I/O on the same ring:
//! [`UringHandle`] and the futures [`Op`].
//!
//! ```text
//!  task -> Op -> backlog -> submission queue -> kernel -> completion -> waker -> task
//!          op.rs ring.rs                                  ring.rs
//! ```
//!
//! | file | what |
//! |---|---|
//! | `idle` | the thread's sleeps and parks |
//! | `unparker` | how another thread ends them |
//! | `ring` | submission, waits, completions |
//! | `slots` | the operations in flight, whose futures are there or not |
//! | `op`, `ops`, `request` | the future, and what each operation holds and asks for |
//! | `buffer` | what is promised about memory that the kernel touches |
//! | `setup`, `refusal` | making a ring, and why there is none |
//!
//! # System calls
//!
//! `io_uring_setup`, `io_uring_register` (what operations there are), `mmap`, and `io_uring_enter`
//! with `IORING_ENTER_EXT_ARG`, by the thread that made the ring. `futex` with `FUTEX_WAKE`, or a
//! `write` to an event counter, by whoever ends its wait.
//!
//! # A child after `fork`
//!
//! The ring is the parent's. A child must not use it, nor drop its operations: it executes another
//! program, or exits.

#![allow(
    unsafe_code,
    reason = "entries of the submission queue, and buffers that the kernel touches"
)]

mod buffer;
mod handle;
mod idle;
mod op;
mod ops;
mod refusal;
mod request;
mod ring;
mod setup;
mod slots;
mod unparker;

pub use buffer::{IoBuf, IoBufMut};
pub use handle::UringHandle;
pub use idle::UringIdle;
pub use op::Op;
pub use ops::{Accept, Close, Connect, Nop, Read, Recv, Send, Timeout, Write};
pub use refusal::UringRefusal;
pub use ring::{UringStats, uring_leaked};
pub use setup::{Kernel, RingMode, RingNeed, SetupCall, SetupCalls};
