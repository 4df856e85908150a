//! A driver library, opened at run time by its name, and its entry points.

use crate::core::error::{Error, ErrorCode, Result};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use std::ffi::OsStr;

/// A library that was opened. It is never unloaded: its threads may call into it, and into the
/// program, at any time.
#[derive(Debug)]
pub struct Library {
    library: core::mem::ManuallyDrop<libloading::Library>,
    /// The name it was opened by.
    pub(in crate::backend) name: String,
}

impl Library {
    /// The first of `names` that this process has open already, else the first that can be opened: a second
    /// copy of a runtime beside the program's own would know none of its streams.
    ///
    /// # Errors
    ///
    /// [`LibraryMissing`](ErrorCode::LibraryMissing) with what the system says of each.
    ///
    /// # Safety
    ///
    /// The libraries of these names are sound to initialise in this process.
    pub(in crate::backend) unsafe fn open(names: &[&OsStr]) -> Result<Self> {
        let of = |library, name: &OsStr| Library {
            library: core::mem::ManuallyDrop::new(library),
            name: name.to_string_lossy().into_owned(),
        };
        if let Some((library, name)) = names.iter().find_map(|name| Some((opened(name)?, name))) {
            return Ok(of(library, name));
        }
        let mut refused: Vec<String> = Vec::new();
        for name in names {
            // SAFETY: passed on.
            match unsafe { libloading::Library::new(name) } {
                Ok(library) => return Ok(of(library, name)),
                Err(error) => refused.push(error.to_string()),
            }
        }
        let names: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
        Err(Error::new(ErrorCode::LibraryMissing, [names.join(", "), refused.join("; ")]))
    }

    /// The file that the library was found in, where the system tells.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "CUDA's"))]
    pub(in crate::backend) fn place(&self) -> Option<String> {
        place_of(&self.library)
    }

    /// The entry point `symbol`, if the library has it.
    ///
    /// # Safety
    ///
    /// `F` is the function pointer type of `symbol`.
    pub(in crate::backend) unsafe fn optional<F: Copy>(&self, symbol: &str) -> Option<F> {
        // SAFETY: passed on. The copy outlives no library, since none is unloaded.
        unsafe { self.library.get::<F>(symbol.as_bytes()) }.ok().map(|entry| *entry)
    }

    /// The entry point `symbol`.
    ///
    /// # Errors
    ///
    /// [`SymbolMissing`](ErrorCode::SymbolMissing).
    ///
    /// # Safety
    ///
    /// As [`optional`](Self::optional).
    pub(in crate::backend) unsafe fn required<F: Copy>(&self, symbol: &str) -> Result<F> {
        // SAFETY: passed on.
        unsafe { self.optional(symbol) }
            .ok_or_else(|| Error::new(ErrorCode::SymbolMissing, [self.name.as_str(), symbol]))
    }
}

/// The file of a library that is open: that of its first entry point, which each vendor calls `..Init`.
#[cfg(unix)]
fn place_of(library: &libloading::Library) -> Option<String> {
    use core::ffi::{CStr, c_void};
    // SAFETY: only its address is taken.
    let entry = unsafe {
        library
            .get::<*const c_void>(b"cuInit\0")
            .or_else(|_| library.get::<*const c_void>(b"hipInit\0"))
            .ok()?
    };
    let mut found = core::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: the address is one of a library that stays open; `found` outlives the call.
    if unsafe { libc::dladdr(*entry, found.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: on success the call has filled it.
    let name = unsafe { found.assume_init() }.dli_fname;
    // SAFETY: null, or a string that stays as long as the library.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

/// The file of a library that is open: this system is not asked.
#[cfg(windows)]
fn place_of(_library: &libloading::Library) -> Option<String> {
    None
}

/// The library of this name that the process has open, however it came to be: no code of it runs here.
#[cfg(unix)]
fn opened(name: &OsStr) -> Option<libloading::Library> {
    use libloading::os::unix;
    // SAFETY: it is open, and initialised by who opened it; without that, nothing is opened.
    let library = unsafe { unix::Library::open(Some(name), unix::RTLD_NOW | libc::RTLD_NOLOAD) };
    library.ok().map(Into::into)
}

/// The library of this name that the process has open, however it came to be: no code of it runs here.
#[cfg(windows)]
fn opened(name: &OsStr) -> Option<libloading::Library> {
    libloading::os::windows::Library::open_already_loaded(name).ok().map(Into::into)
}

/// A table of entry points that return a status, each by its own name, with its arguments in order.
macro_rules! entry_points {
    (
        $(#[$doc:meta])* struct $table:ident;
        required { $(fn $name:ident($($arg:ty),* $(,)?);)* }
        optional { $(fn $extra:ident($($extra_arg:ty),* $(,)?);)* }
    ) => {
        $(#[$doc])*
        #[allow(non_snake_case, reason = "the vendor's names")]
        pub(super) struct $table {
            $(pub(super) $name: unsafe extern "system" fn($($arg),*) -> i32,)*
            $(pub(super) $extra: Option<unsafe extern "system" fn($($extra_arg),*) -> i32>,)*
        }

        impl $table {
            /// Finds every entry point.
            ///
            /// # Errors
            ///
            /// [`SymbolMissing`](crate::ErrorCode::SymbolMissing) for a required one.
            ///
            /// # Safety
            ///
            /// `library` has the vendor's interface.
            pub(super) unsafe fn load(library: &$crate::backend::mapped::Library) -> $crate::Result<Self> {
                // SAFETY: the types are those of the vendor's header, by this function's contract.
                unsafe {
                    Ok($table {
                        $($name: library.required(stringify!($name))?,)*
                        $($extra: library.optional(stringify!($extra)),)*
                    })
                }
            }
        }
    };
}
pub(in crate::backend) use entry_points;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_an_error_that_names_every_name_tried() {
        let names = [OsStr::new("libno-such-driver.so.1"), OsStr::new("libno-such-driver.so")];
        // SAFETY: no such library is there to be initialised.
        let error = unsafe { Library::open(&names) }.unwrap_err();
        assert_eq!(error.code(), ErrorCode::LibraryMissing);
        assert!(error.to_string().contains("libno-such-driver.so.1, libno-such-driver.so"));
    }
}
