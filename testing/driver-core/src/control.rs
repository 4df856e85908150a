//! The control interface as a test uses it, without unsafe code of its own.

use crate::foreign::foreign_call;
use crate::inject::Live;
use gpu_async_reactor::DurNs;
use libloading::Library;
use std::ffi::CString;
use std::ffi::c_char;
use std::path::{Path, PathBuf};

/// The test driver `name` (`cuda_driver`, `hip_driver`) that Cargo has built for the running test: it
/// lies beside the test's executable, since the driver's package is a library of the kinds `cdylib`
/// and `rlib`, and either the package of the test or one that it depends on.
///
/// Once it is open, the loader finds it under the vendor's soname as well.
///
/// # Panics
///
/// Where it is not there.
#[must_use]
pub fn library(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the path of the test");
    let folder = test.parent().expect("its folder");
    let file = format!("{}{name}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    // An example's or a tool's executable lies elsewhere than a test's.
    let places = [
        folder.join(&file),
        folder.join("deps").join(&file),
        folder.join("..").join("deps").join(&file),
    ];
    let found = places.iter().find(|place| place.exists());
    found.unwrap_or_else(|| panic!("{file} is not in {}", folder.display())).clone()
}

/// A test driver's control interface. Everybody who opens the same file controls the same device.
pub struct Control {
    library: Library,
    path: PathBuf,
}

impl Control {
    /// Opens the test driver at `path` and resets it.
    ///
    /// # Panics
    ///
    /// Where it cannot be opened or is no test driver.
    #[must_use]
    pub fn open(path: impl AsRef<Path>) -> Self {
        let control = Control::attach(path);
        control.reset();
        control
    }

    /// Opens the test driver at `path` as it is.
    ///
    /// # Panics
    ///
    /// Where it cannot be opened or is no test driver.
    #[must_use]
    pub fn attach(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().to_path_buf();
        // SAFETY: the test drivers run no code of theirs when they are opened.
        let library = unsafe { Library::new(&path) };
        let library = library.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // SAFETY: looked up only, by a type that fits.
        let known = unsafe { library.get::<unsafe extern "C" fn() -> u64>(b"fake_reset\0") };
        assert!(known.is_ok(), "{} is no test driver", path.display());
        Control { library, path }
    }

    /// Where it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The library, for entry points. It stays loaded while somebody has it open.
    #[must_use]
    pub fn entry_points(&self) -> &Library {
        &self.library
    }

    /// Forgets everything: contexts, memory, streams, injections, the initialising call. Waits for
    /// what is queued. Only between tests.
    ///
    /// Returns what the program did wrong until now, including contexts that were pushed and not
    /// popped, and threads left in another capture mode.
    #[allow(clippy::must_use_candidate, reason = "most tests reset to begin anew")]
    pub fn reset(&self) -> Vec<String> {
        foreign_call!(self.library, fake_settle() -> ());
        let violations = self.violations();
        foreign_call!(self.library, fake_reset() -> u64);
        violations
    }

    /// Has the `nth` call of `entry` from now, 1 for the next, answer `code` without effect.
    pub fn fail(&self, entry: &str, nth: u64, code: i32) {
        let entry = text(entry);
        foreign_call!(self.library, fake_fail(entry.as_ptr() => *const c_char, nth => u64, code => i32) -> ());
    }

    /// How often `entry` was called, failed calls included.
    #[must_use]
    pub fn calls(&self, entry: &str) -> u64 {
        let entry = text(entry);
        foreign_call!(self.library, fake_calls(entry.as_ptr() => *const c_char) -> u64)
    }

    /// Gives device 0's contexts a sticky fault, now.
    pub fn fault(&self, code: i32) {
        foreign_call!(self.library, fake_fault(code => i32) -> ());
    }

    /// The next `stores` stores of memory operations never land.
    pub fn lose_stores(&self, stores: u64) {
        foreign_call!(self.library, fake_lose_stores(stores => u64) -> ());
    }

    /// The next `stores` stores of memory operations land `late` after their turn, while the status
    /// of their streams goes on; with [`DurNs::MAX`] they land when released.
    pub fn delay_stores(&self, stores: u64, late: DurNs) {
        foreign_call!(self.library, fake_delay_stores(stores => u64, late.0 => u64) -> ());
    }

    /// Has status queries stand still, or go on.
    pub fn hang_queries(&self, on: bool) {
        foreign_call!(self.library, fake_hang_queries(i32::from(on) => i32) -> ());
    }

    /// Has calls of `entry` stand still before they have an effect, or go on.
    pub fn hang(&self, entry: &str, on: bool) {
        let entry = text(entry);
        foreign_call!(self.library, fake_hang(entry.as_ptr() => *const c_char, i32::from(on) => i32) -> ());
    }

    /// How many calls stand still.
    #[must_use]
    pub fn hung(&self) -> u64 {
        foreign_call!(self.library, fake_hung() -> u64)
    }

    /// Sets an attribute of a device; none makes it unknown to the driver.
    pub fn attribute(&self, device: i32, attribute: i32, value: Option<i32>) {
        match value {
            Some(value) => foreign_call!(self.library, fake_attribute(
                device => i32, attribute => i32, value => i32) -> ()),
            None => {
                foreign_call!(self.library, fake_unknown_attribute(device => i32, attribute => i32) -> ())
            }
        }
    }

    /// Sets the driver's version, as the vendor writes it, and with it what that version does:
    /// [`Traits`](crate::Traits).
    pub fn version(&self, version: i32) {
        foreign_call!(self.library, fake_version(version => i32) -> ());
    }

    /// Sets how many devices there are; 1 after a reset.
    pub fn devices(&self, devices: i32) {
        foreign_call!(self.library, fake_devices(devices => i32) -> ());
    }

    /// Has work be kept back until a status call or a wait, as a driver does that batches submissions.
    pub fn batching(&self, on: bool) {
        foreign_call!(self.library, fake_batching(i32::from(on) => i32) -> ());
    }

    /// Has a fault end the process, as AMD's runtime does until 6.x, instead of being a status.
    pub fn fault_aborts(&self, on: bool) {
        foreign_call!(self.library, fake_fault_aborts(i32::from(on) => i32) -> ());
    }

    /// Makes a created stream one of a green context.
    pub fn green(&self, stream: u64) {
        foreign_call!(self.library, fake_green(stream => u64) -> ());
    }

    /// Resets the primary context of `device`, as another library of the process may do.
    ///
    /// # Panics
    ///
    /// Where there is no such device.
    pub fn reset_device(&self, device: i32) {
        assert_eq!(foreign_call!(self.library, fake_reset_device(device => i32) -> i32), 0);
    }

    /// Queues work that takes `time`, as a kernel would. `stream` is a handle as a number; the
    /// special ones mean the calling thread's current context. Returns a status code.
    #[must_use]
    pub fn work(&self, stream: u64, time: DurNs) -> i32 {
        foreign_call!(self.library, fake_work(stream => u64, time.0 => u64) -> i32)
    }

    /// Queues work that ends when released. Returns a status code.
    #[must_use]
    pub fn hold(&self, stream: u64) -> i32 {
        foreign_call!(self.library, fake_hold(stream => u64) -> i32)
    }

    /// Releases all held work, and the late stores that wait for it.
    pub fn release(&self) {
        foreign_call!(self.library, fake_release() -> ());
    }

    /// What the program did wrong so far, one line each.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let count = foreign_call!(self.library, fake_violations() -> u64);
        let texts = (0..count).map(|index| {
            let mut text = vec![0_u8; 512];
            let room = text.len() as u64;
            let len = foreign_call!(self.library, fake_violation(
                index => u64, text.as_mut_ptr() => *mut u8, room => u64) -> u64);
            text.truncate(usize::try_from(len).expect("a length").min(text.len() - 1));
            String::from_utf8_lossy(&text).into_owned()
        });
        texts.collect()
    }

    /// How many there are of something.
    #[must_use]
    pub fn live(&self, what: Live) -> u64 {
        foreign_call!(self.library, fake_live(what as u32 => u32) -> u64)
    }
}

fn text(entry: &str) -> CString {
    CString::new(entry).expect("names have no zero")
}
