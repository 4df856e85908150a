//! Whether this process may use `io_uring`, also where this crate was built without it.

use alloc::string::String;

/// Whether there can be a `UringIdle` here, or why not: for
/// [`ExecutorCaps::io_uring`](crate::ExecutorCaps::io_uring). Makes a ring, tries it and closes it;
/// about 100 us.
///
/// # Errors
///
/// The reason, for people: what the kernel or a sandbox refused, that this is another system, or that
/// the feature `io-uring` was not built.
pub fn io_uring_caps() -> Result<(), String> {
    probe()
}

where_io_uring! {
    fn probe() -> Result<(), String> {
        super::uring::UringIdle::probe(super::StdClock::new()).1
    }
}

where_no_io_uring! {
    fn probe() -> Result<(), String> {
        Err(String::from(match cfg!(feature = "io-uring") {
            true => "io_uring is an interface of Linux on 64-bit processors",
            false => "this program was built without the feature io-uring",
        }))
    }
}
