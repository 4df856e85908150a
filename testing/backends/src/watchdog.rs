//! The end of a test that does not end.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Ends the test run where a test does not end.
pub struct Watchdog(Option<mpsc::Sender<()>>, Option<JoinHandle<()>>);

impl Watchdog {
    /// Watches the test of this thread, for 60 s.
    ///
    /// # Panics
    ///
    /// Where there is no thread to be had.
    #[must_use]
    pub fn new() -> Self {
        Watchdog::for_s(60)
    }

    /// The same, for so many seconds.
    ///
    /// # Panics
    ///
    /// Where there is no thread to be had.
    #[must_use]
    pub fn for_s(seconds: u64) -> Self {
        let test = thread::current().name().unwrap_or("a test").to_string();
        let (alive, dropped) = mpsc::channel::<()>();
        let watching = thread::spawn(move || {
            let waited = dropped.recv_timeout(Duration::from_secs(seconds));
            if waited == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{test} hangs: not over after {seconds} s");
                std::process::exit(101);
            }
        });
        Watchdog(Some(alive), Some(watching))
    }
}

impl Default for Watchdog {
    fn default() -> Self {
        Watchdog::new()
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.0.take());
        if let Some(watching) = self.1.take() {
            watching.join().expect("the watchdog sees its end");
        }
    }
}
