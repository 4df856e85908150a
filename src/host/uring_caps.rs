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
    #[cfg(all(
        feature = "io-uring",
        target_os = "linux",
        target_pointer_width = "64",
        any(
            target_arch = "x86_64",
            target_arch = "aarch64",
            target_arch = "riscv64",
            target_arch = "loongarch64",
            target_arch = "powerpc64"
        )
    ))]
    return super::uring::UringIdle::probe(super::StdClock::new()).1;
    #[cfg(not(all(
        feature = "io-uring",
        target_os = "linux",
        target_pointer_width = "64",
        any(
            target_arch = "x86_64",
            target_arch = "aarch64",
            target_arch = "riscv64",
            target_arch = "loongarch64",
            target_arch = "powerpc64"
        )
    )))]
    return Err(String::from(match cfg!(feature = "io-uring") {
        true => "io_uring is an interface of Linux on 64-bit processors",
        false => "this program was built without the feature io-uring",
    }));
}
