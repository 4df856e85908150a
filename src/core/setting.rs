//! Settings with a declared fallback: a choice that is made once, at start-up, and what of it runs.
//!
//! A kind of setting [declares](Declared) its chain of fallbacks as data. [`resolve`] walks it with
//! what was probed. A taken fallback is a warning, or under [`Strictness::Strict`] a refusal, and
//! always in the label; nothing falls back in silence.

use super::error::{Error, ErrorCode, Result};
use super::fallback::{Link, walk};
use super::text::{WHOLE_CHARS, excerpt};
use alloc::string::{String, ToString};
use core::fmt::{self, Display};
use core::str::FromStr;

/// A kind of setting whose fallbacks are declared. Its `Display` writes the name that people use.
pub trait Declared: Copy + Eq + Display + 'static {
    /// What a value may need. Its `Display` is the name used in warnings.
    type Needs: Copy + Display + 'static;
    /// What was probed.
    type Caps;

    /// Every declared fallback. The links of one origin are tried in their order, and as many are
    /// taken at the most as there are.
    const CHAIN: &'static [Link<Self, Self::Needs>];
    /// The code of the warning that a fallback was taken. Its arguments: the requested value, what
    /// it needs, why that is missing, what runs.
    const TAKEN: ErrorCode;
    /// The code of a refusal. Its arguments: the requested value, what it needs, why that is
    /// missing.
    const REFUSED: ErrorCode;

    /// Why `needs` is missing; `None` where it is there.
    fn why_missing(caps: &Self::Caps, needs: Self::Needs) -> Option<&str>;
}

/// What becomes of a request that cannot run here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Strictness {
    /// The declared fallback runs, with a warning.
    Fallback,
    /// The request is refused.
    Strict,
}

/// A choice, and what of it runs here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting<K> {
    /// What was asked for.
    pub requested: K,
    /// What runs.
    pub running: K,
    /// Where a fallback was taken: what was requested, what it needs, why that is missing, and what
    /// runs.
    pub warning: Option<Error>,
}

impl<K: Display> Setting<K> {
    /// What runs, and ` (fallback from <requested>)` where a fallback was taken.
    #[must_use]
    pub fn label(&self) -> String {
        self.to_string()
    }
}

impl<K: Display> Display for Setting<K> {
    /// The [`label`](Setting::label).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.running.fmt(f)?;
        match self.warning {
            Some(_) => write!(f, " (fallback from {})", self.requested),
            None => Ok(()),
        }
    }
}

/// What of `requested` can run with `caps`. Allocates only for a warning or an error.
///
/// # Errors
///
/// Under [`Strictness::Strict`] the code [`Declared::REFUSED`], where `requested` itself cannot
/// run.
///
/// ```
/// # use gpu_async_reactor::{ExecutorCaps, ExecutorKind, Strictness, resolve};
/// let caps = ExecutorCaps { word_wait: Ok(()), io_uring: Err("EPERM".into()) };
/// let requested: ExecutorKind = "io-uring".parse()?;
/// let setting = resolve(requested, Strictness::Fallback, &caps)?;
/// assert_eq!(setting.label(), "gpu-reactor (fallback from io-uring)");
/// assert!(resolve(requested, Strictness::Strict, &caps).is_err());
/// # Ok::<(), gpu_async_reactor::Error>(())
/// ```
pub fn resolve<K: Declared>(
    requested: K,
    strictness: Strictness,
    caps: &K::Caps,
) -> Result<Setting<K>> {
    let walk = walk(requested, K::CHAIN, |needs| K::why_missing(caps, needs));
    if strictness == Strictness::Strict {
        if let Some(refusal) = walk.refusal(K::REFUSED, requested) {
            return Err(refusal);
        }
    }
    let warning = walk.warning(K::TAKEN, requested, walk.running);
    Ok(Setting { requested, running: walk.running, warning })
}

/// What runs the tasks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ExecutorKind {
    /// One task at a time, each wait on the calling thread: the baseline. Needs nothing.
    Naive,
    /// The executor of this crate, whose waits are awaits on a reactor. Needs a way to park its
    /// thread on a word.
    GpuReactor,
    /// The same with the thread idling in an `io_uring`, which also carries the program's own I/O.
    IoUring,
}

impl ExecutorKind {
    /// Every kind, from the least to the most that it needs.
    pub const ALL: &'static [ExecutorKind] =
        &[ExecutorKind::Naive, ExecutorKind::GpuReactor, ExecutorKind::IoUring];

    /// The name that people use: `naive`, `gpu-reactor` or `io-uring`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ExecutorKind::Naive => "naive",
            ExecutorKind::GpuReactor => "gpu-reactor",
            ExecutorKind::IoUring => "io-uring",
        }
    }
}

impl Display for ExecutorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ExecutorKind {
    type Err = Error;

    /// The kind of this [`name`](ExecutorKind::name), spelled exactly so.
    ///
    /// # Errors
    ///
    /// [`InvalidExecutor`](ErrorCode::InvalidExecutor) with the text, cut behind 200 characters,
    /// and the accepted names.
    fn from_str(text: &str) -> Result<Self> {
        let named = ExecutorKind::ALL.iter().copied().find(|kind| kind.name() == text);
        named.ok_or_else(|| {
            let names = ExecutorKind::ALL.iter().map(|kind| kind.name());
            let accepted = names.collect::<alloc::vec::Vec<_>>().join(", ");
            Error::new(ErrorCode::InvalidExecutor, [excerpt(text, WHOLE_CHARS), accepted])
                .at(0..text.len())
        })
    }
}

/// What the host offers its executors, probed by the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExecutorCaps {
    /// Whether the host has a way to park an idle thread on a word, or why not. The way need not be
    /// a hardware monitor: a host that looks at the word by a stated policy has one.
    pub word_wait: Result<(), String>,
    /// Whether the kernel lets this process use `io_uring`, or why not.
    pub io_uring: Result<(), String>,
}

/// What an executor may need.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ExecutorNeed {
    /// [`ExecutorCaps::word_wait`].
    WordWait,
    /// [`ExecutorCaps::io_uring`].
    IoUring,
}

impl ExecutorNeed {
    /// The name used in warnings: `word_wait` or `io_uring`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ExecutorNeed::WordWait => "word_wait",
            ExecutorNeed::IoUring => "io_uring",
        }
    }
}

impl Display for ExecutorNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Declared for ExecutorKind {
    type Needs = ExecutorNeed;
    type Caps = ExecutorCaps;

    // An io_uring can wait in the ring, in bounded pieces, and needs no word for it.
    const CHAIN: &'static [Link<Self, ExecutorNeed>] = &[
        Link {
            from: ExecutorKind::IoUring,
            needs: ExecutorNeed::IoUring,
            to: ExecutorKind::GpuReactor,
        },
        Link {
            from: ExecutorKind::GpuReactor,
            needs: ExecutorNeed::WordWait,
            to: ExecutorKind::Naive,
        },
    ];
    const TAKEN: ErrorCode = ErrorCode::ExecutorFallback;
    const REFUSED: ErrorCode = ErrorCode::ExecutorRefused;

    fn why_missing(caps: &ExecutorCaps, needs: ExecutorNeed) -> Option<&str> {
        let offered = match needs {
            ExecutorNeed::WordWait => &caps.word_wait,
            ExecutorNeed::IoUring => &caps.io_uring,
        };
        offered.as_ref().err().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ExecutorKind::{GpuReactor, IoUring, Naive};

    fn caps(word_wait: bool, io_uring: bool) -> ExecutorCaps {
        let offer = |there: bool, why: &str| there.then_some(()).ok_or_else(|| why.to_string());
        ExecutorCaps { word_wait: offer(word_wait, "no word"), io_uring: offer(io_uring, "EPERM") }
    }

    #[test]
    fn an_executor_runs_where_its_needs_are_met_and_falls_along_the_chain_elsewhere() {
        for (requested, word_wait, io_uring, running) in [
            (Naive, false, false, Naive),
            (GpuReactor, true, false, GpuReactor),
            (GpuReactor, false, true, Naive),
            (IoUring, true, true, IoUring),
            (IoUring, false, true, IoUring),
            (IoUring, true, false, GpuReactor),
            (IoUring, false, false, Naive),
        ] {
            let caps = caps(word_wait, io_uring);
            let setting = resolve(requested, Strictness::Fallback, &caps).unwrap();
            assert_eq!((setting.requested, setting.running), (requested, running));
            assert_eq!(setting.warning.is_some(), requested != running);
            let strict = resolve(requested, Strictness::Strict, &caps);
            assert_eq!(strict.is_ok(), requested == running);
        }
    }

    #[test]
    fn the_warning_says_what_is_missing_why_and_what_runs() {
        let setting = resolve(IoUring, Strictness::Fallback, &caps(true, false)).unwrap();
        let warning = setting.warning.as_ref().unwrap();
        assert_eq!(warning.code(), ErrorCode::ExecutorFallback);
        assert_eq!(warning.args(), ["io-uring", "io_uring", "EPERM", "gpu-reactor"]);
        assert_eq!(setting.label(), "gpu-reactor (fallback from io-uring)");

        let setting = resolve(IoUring, Strictness::Fallback, &caps(false, false)).unwrap();
        let warning = setting.warning.unwrap();
        let all = ["io-uring", "io_uring and word_wait", "EPERM; no word", "naive"];
        assert_eq!(warning.args(), all);
    }

    #[test]
    fn a_refusal_says_what_is_missing_and_why() {
        let refusal = resolve(GpuReactor, Strictness::Strict, &caps(false, true)).unwrap_err();
        assert_eq!(refusal.code(), ErrorCode::ExecutorRefused);
        assert_eq!(refusal.args(), ["gpu-reactor", "word_wait", "no word"]);
    }

    #[test]
    fn a_name_reads_back_as_its_kind_and_another_one_is_told_the_accepted_names() {
        for &kind in ExecutorKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        for text in ["", "Naive", "io_uring", " naive", "tokio"] {
            let error = text.parse::<ExecutorKind>().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidExecutor);
            assert_eq!(error.args(), [text, "naive, gpu-reactor, io-uring"]);
        }
    }
}
