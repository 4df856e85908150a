//! The fake device under the test drivers of CUDA and HIP.
//!
//! A test driver is a shared library with a vendor's exact ABI and soname, so that a backend can be
//! tested through `dlopen` on a machine without a GPU. The two are thin: they translate arguments
//! and status codes, and say in [`Rules`] where their vendors differ. What is common is here, once.
//!
//! Work runs on the threads of the library's own software device: a stream is a
//! [`SoftwareStream`](gpu_async_reactor::backend::software::SoftwareStream), a store of a memory
//! operation a release store that a worker makes in its turn, into memory that the program reads.
//!
//! # What it is strict about
//!
//! Where a vendor leaves something open, or forgives it, the fake refuses or logs it:
//!
//! - Fresh memory is not zero, device addresses are not host addresses, freed memory stays and is
//!   watched ([`memory`]).
//! - A stream or event is used under its own context only. Handles are never given twice.
//! - A status call from a thread that has not relaxed its capture mode breaks a global capture of
//!   any thread (`capture.rs`).
//! - After a sticky fault every call of the context answers with it; nothing more is stored, copied
//!   or called back. Giving back the last reference to the primary context, and taking a new one, is
//!   the way out.
//! - Freeing memory and ending a context wait for the work that is queued, held work included.
//! - A call in a forked child, or from a host function, is refused and logged.
//! - A call after the library's destructors ends the process ([`ended`]).
//!
//! # What versions differ in
//!
//! [`Traits`] has the behaviour of one version of a vendor's driver: what breaks a capture, what events
//! remember, what sleeps. The version is set by [`Control::version`].
//!
//! # Controlling it
//!
//! [`control!`] lists the functions that both libraries export; [`Control`] calls them. A failed
//! assertion of a test leaves the device as it is; [`Control::open`] resets it.
//!
//! # What it does not model
//!
//! Kernels, launched graphs, waits on memory values, timing and sharing of events between processes,
//! managed and registered memory, stream priorities, the work of green contexts. A capture
//! that ends with a stream not joined back is not refused.
//!
//! # Where it runs
//!
//! On Linux, 64 bits. Elsewhere these crates are empty.
//!
//! # Costs
//!
//! One lock for everything, taken at each call and at the end of each piece of work. Freed memory is
//! kept until a reset.
#![cfg(target_os = "linux")]

pub mod abi;
mod capture;
mod context;
mod control;
mod driver;
mod elf;
pub mod ended;
mod event;
mod exports;
mod foreign;
mod forked;
mod inject;
pub mod memory;
mod refusal;
mod rules;
mod state;
mod stream;
mod transfer;
mod work;

pub use capture::{CaptureStatus, Mode};
pub use control::{Control, library};
pub use driver::{Call, Driver};
pub use elf::{soname, symbols, with_soname, without_symbol};
pub use exports::violation_text;
pub use foreign::Foreign;
pub use gpu_async_reactor::DurNs;
pub use inject::Live;
pub use libloading::Library;
pub use refusal::{Outcome, Refusal};
pub use rules::{Breaks, GreenStream, LastError, Rules, SleepingFlags, Traits, UnknownStream};
pub use stream::{LEGACY, MARKER, NULL, PER_THREAD};
