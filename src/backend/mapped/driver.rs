//! A driver library that was opened, and the contexts that were opened in it.
//!
//! Both stay until the process ends. A library cannot be unloaded while the device may call into
//! it, and a context's memory cannot be freed while a store may be on its way: dropping the last
//! handle of a context leaves it here, for the next one who opens it, until it is closed.

use super::calls::{Interface, Mapping};
use super::context::{Context, Ownership};
use super::device::Device;
use super::library::Library;
use super::lock;
use crate::core::error::Result;
use crate::core::line::CompletionLine;
use crate::exit;
use crate::fork::{Birth, FirstBirth};
use alloc::{sync::Arc, vec::Vec};
use core::fmt;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Mutex;

/// A driver library. Clones are handles of the same one.
pub struct Driver<A: Interface> {
    shared: Arc<Shared<A>>,
}

pub(super) struct Shared<A: Interface> {
    pub(super) api: A,
    birth: Birth,
    contexts: Mutex<Vec<Arc<Context<A>>>>,
}

impl<A: Interface> Driver<A> {
    fn new(api: A) -> Self {
        let contexts = Mutex::new(Vec::new());
        Driver { shared: Arc::new(Shared { api, birth: Birth::here(), contexts }) }
    }

    /// The vendor's library of this system, initialised. The first call opens it, the next ones find it open.
    ///
    /// # Errors
    ///
    /// [`LibraryMissing`](crate::ErrorCode::LibraryMissing),
    /// [`SymbolMissing`](crate::ErrorCode::SymbolMissing), the driver's status (without a device
    /// `cuInit: 100 CUDA_ERROR_NO_DEVICE`, or `hipInit: 101 hipErrorInvalidDevice`), or
    /// [`Forked`](crate::ErrorCode::Forked).
    pub fn load() -> Result<Self> {
        let names: Vec<&OsStr> = A::LIBRARY_NAMES.iter().map(OsStr::new).collect();
        // SAFETY: the system's library of that name is the vendor's, whose initialisation is what every
        // program of that vendor's interface runs.
        unsafe { Self::load_any(&names) }
    }

    /// The library at `path`.
    ///
    /// # Safety
    ///
    /// It has the vendor's interface.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub unsafe fn load_from(path: &Path) -> Result<Self> {
        // SAFETY: passed on.
        unsafe { Self::load_any(&[path.as_os_str()]) }
    }

    /// # Safety
    ///
    /// As [`load_from`](Self::load_from), for each of `names`.
    unsafe fn load_any(names: &[&OsStr]) -> Result<Self> {
        A::opened().find_or_open(names, || {
            // SAFETY: passed on, twice.
            unsafe { A::initialise(Library::open(names)?) }
        })
    }

    /// The name by which the library was opened.
    ///
    /// # Errors
    ///
    /// [`Forked`](crate::ErrorCode::Forked).
    pub fn library(&self) -> Result<&str> {
        Ok(&self.api("library")?.library().name)
    }

    /// The driver's calls, refused in a forked child.
    pub(in crate::backend) fn api(&self, call: &str) -> Result<&A> {
        self.shared.birth.check(call)?;
        Ok(&self.shared.api)
    }

    /// The entry point `symbol` of the same library, for a program's own work on its streams.
    ///
    /// # Errors
    ///
    /// [`SymbolMissing`](crate::ErrorCode::SymbolMissing) or [`Forked`](crate::ErrorCode::Forked).
    ///
    /// # Safety
    ///
    /// `F` is the function pointer type of `symbol`, with the C calling convention.
    pub unsafe fn entry_point<F: Copy>(&self, symbol: &str) -> Result<F> {
        // SAFETY: passed on.
        unsafe { self.api("entry_point")?.library().required(symbol) }
    }

    /// A handle of `context`: of the one that is open, or a new one, whose device is then probed.
    ///
    /// # Safety
    ///
    /// `context` is live. Where the ownership says [`Retained`](Ownership::Retained), the caller
    /// holds a reference to it, which passes to this function, whatever it returns. Where it says
    /// [`Borrowed`](Ownership::Borrowed), it stays live until a close has reported that it
    /// was released.
    pub(in crate::backend) unsafe fn open(
        &self,
        context: A::Context,
        ownership: Ownership,
        flush_marks: bool,
    ) -> Result<Device<A>> {
        let shared = &self.shared;
        // Held while a new one is probed, so that nobody else probes it as well.
        let mut contexts = lock(&shared.contexts);
        let known = contexts.iter().find(|known| known.is_open_over(context)).cloned();
        if let Some(known) = known {
            if ownership == Ownership::Retained {
                // SAFETY: the reference is the caller's, who gave it up; the known context has its own.
                known.count_failure(unsafe { known.home.release() });
            }
            return Ok(Device::new(known));
        }
        // SAFETY: passed on.
        let opened = unsafe { Context::open(shared.clone(), context, ownership, flush_marks) }?;
        // Again, as the driver may have registered handlers for what the context needs.
        exit::register();
        contexts.push(opened.clone());
        Ok(Device::new(opened))
    }
}

/// The libraries of one interface that this process has opened, each once.
pub struct Opened<A: Interface> {
    /// Where the first was opened.
    birth: FirstBirth,
    /// Each by the name that was asked for.
    drivers: Mutex<Vec<(OsString, Driver<A>)>>,
}

impl<A: Interface> Opened<A> {
    pub(in crate::backend) const fn new() -> Self {
        Opened { birth: FirstBirth::new(), drivers: Mutex::new(Vec::new()) }
    }

    /// The driver that was opened when these names were asked for before, or what `open` opens now.
    fn find_or_open(
        &self,
        names: &[&OsStr],
        open: impl FnOnce() -> Result<A>,
    ) -> Result<Driver<A>> {
        // Before the lock, which may be held by a thread that a forked child does not have.
        self.birth.get().check("load the driver")?;
        let mut drivers = lock(&self.drivers);
        if let Some((_, driver)) = drivers.iter().find(|(known, _)| known.as_os_str() == names[0]) {
            return Ok(driver.clone());
        }
        let driver = Driver::new(open()?);
        exit::register();
        drivers.push((names[0].to_os_string(), driver.clone()));
        Ok(driver)
    }
}

impl<A: Interface> Shared<A> {
    /// The page of any open context that `line` lies in, and how many bytes behind its beginning.
    pub(super) fn locate(&self, line: &CompletionLine) -> Option<(Mapping, u64)> {
        lock(&self.contexts).iter().find_map(|context| context.pages.locate(line))
    }

    /// Forgets a context that holds nothing any more.
    pub(super) fn forget(&self, context: &Arc<Context<A>>) {
        lock(&self.contexts).retain(|known| !Arc::ptr_eq(known, context));
    }
}

impl<A: Interface> Clone for Driver<A> {
    fn clone(&self) -> Self {
        Driver { shared: self.shared.clone() }
    }
}

impl<A: Interface> fmt::Debug for Driver<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Driver").field(&self.shared.api).finish()
    }
}
