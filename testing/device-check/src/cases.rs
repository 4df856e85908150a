//! The cases of one backend, and what became of each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How long one case may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What became of a case that did not fail.
pub enum Ran {
    /// It was run, and this was seen.
    Run(String),
    /// It could not be run here, and why.
    Skipped(String),
}

/// A case's end: what it saw, or why it failed.
pub type Outcome = Result<Ran, String>;

/// The cases of one backend. Prints each as it ends.
pub struct Cases {
    backend: &'static str,
    run: usize,
    skipped: usize,
    failed: usize,
}

impl Cases {
    /// Those of `backend`.
    pub fn of(backend: &'static str) -> Self {
        Cases { backend, run: 0, skipped: 0, failed: 0 }
    }

    /// Runs a case, which fails by an error or a panic. One that hangs ends the process, since nobody can
    /// stop it.
    pub fn case(&mut self, name: &'static str, case: impl FnOnce() -> Outcome) {
        let (ended, end) = mpsc::channel::<()>();
        let backend = self.backend;
        let watchdog = thread::spawn(move || {
            if end.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                println!(
                    "{backend}: failed: {name}: hangs: not over after {} s",
                    PATIENCE.as_secs()
                );
                std::process::exit(1);
            }
        });
        let outcome = catch_unwind(AssertUnwindSafe(case)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            Err(format!("panicked: {}", text.unwrap_or_default()))
        });
        drop(ended);
        watchdog.join().expect("the watchdog sees the end");
        match outcome {
            Ok(Ran::Run(seen)) => {
                self.run += 1;
                println!("{backend}: run: {name}: {seen}");
            }
            Ok(Ran::Skipped(why)) => self.skip(name, &why),
            Err(why) => self.fail(name, &why),
        }
    }

    /// A case that cannot be run.
    pub fn skip(&mut self, name: &str, why: &str) {
        self.skipped += 1;
        println!("{}: skipped: {name}: {why}", self.backend);
    }

    /// A case that failed.
    pub fn fail(&mut self, name: &str, why: &str) {
        self.failed += 1;
        println!("{}: failed: {name}: {why}", self.backend);
    }

    /// The sum. Returns whether the backend failed: a case did, or none was run.
    pub fn conclude(&self) -> bool {
        let nothing = if self.run == 0 { "; it was asked for and ran nothing: FAILED" } else { "" };
        println!(
            "{}: {} run, {} skipped, {} failed{nothing}",
            self.backend, self.run, self.skipped, self.failed
        );
        self.failed > 0 || self.run == 0
    }
}

/// What a case returns that was run.
pub fn seen(what: impl Into<String>) -> Outcome {
    Ok(Ran::Run(what.into()))
}

/// `error` as the reason of a failure.
pub fn why(error: impl std::fmt::Display) -> String {
    error.to_string()
}
