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
//! | `ring` | what the futures and the idle see: nothing is borrowed while code of the program runs |
//! | `inner` | submission, waits, completions, and what becomes of a ring that is lost |
//! | `queues` | the two queues shared with the kernel, and entering it |
//! | `slots` | the operations in flight, whose futures are there or not |
//! | `release` | when the kernel has let go of the operations of a ring that was closed |
//! | `op`, `ops`, `request`, `ended` | the future, what each operation holds and asks for, how it ends |
//! | `buffer` | what is promised about memory that the kernel touches |
//! | `setup`, `refusal` | making a ring, and why there is none |
//!
//! # System calls
//!
//! `io_uring_setup`, `io_uring_register` (what operations there are), `mmap`, and `io_uring_enter`
//! with `IORING_ENTER_EXT_ARG`, by the thread that made the ring; at the set-up also `pipe2`. `futex`
//! with `FUTEX_WAKE`, or a `write` to an event counter, by the thread that ends its wait. After the
//! ring was lost, and in a child, `futex` with `FUTEX_WAIT_BITSET`.
//!
//! # A child after `fork`
//!
//! The ring is the parent's, queues and all: a child that stored into them would submit for its parent.
//! So nothing here touches them in a child. Its idle sleeps on a futex as [`StdIdle`](super::StdIdle)
//! does, the parent's operations and new ones end with an error that names the fork
//! ([`Forked`](crate::ErrorCode::Forked)), and dropping anything leaves the parent's as it is. What
//! the child forgets instead of dropping includes the ring's descriptor, which `exec` closes.

#![allow(
    unsafe_code,
    reason = "entries of the submission queue, and buffers that the kernel touches"
)]

mod buffer;
mod ended;
mod handle;
mod idle;
mod inner;
mod op;
mod ops;
mod queues;
mod refusal;
mod release;
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
pub use setup::{BeforeEnter, Kernel, RingMode, RingNeed, SetupCall, SetupCalls};
