//! The park in hardware, where the build and the CPU have one.

#[cfg(feature = "wordwait")]
use crate::backend::wordwait::WordWait;
use crate::core::line::CompletionLine;
use crate::core::time::DurNs;
use alloc::string::String;

/// Parks a thread in hardware. Without a variant, hence never made, in a build without the feature.
#[derive(Clone, Copy, Debug)]
pub(in crate::host) enum HardwarePark {
    /// By an instruction that has passed its self-test.
    #[cfg(feature = "wordwait")]
    Instruction(WordWait),
    /// By a loop that counts itself, for tests on a CPU without an instruction.
    #[cfg(test)]
    Counted,
}

impl HardwarePark {
    /// A hardware park, or why there is none.
    pub(super) fn probe() -> Result<HardwarePark, String> {
        #[cfg(test)]
        if let Some(probed) = counted::probe() {
            return probed;
        }
        #[cfg(feature = "wordwait")]
        return WordWait::probe()
            .map(HardwarePark::Instruction)
            .map_err(|missing| alloc::string::ToString::to_string(&missing));
        #[cfg(not(feature = "wordwait"))]
        return Err(String::from("this program was built without the feature wordwait"));
    }

    /// Parks until `ready(line)` or until `bound` has passed, and returns what `ready(line)` returned
    /// last. `ready` only loads.
    pub(in crate::host) fn park<R: Fn(&CompletionLine) -> bool>(
        self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        #[cfg(not(any(feature = "wordwait", test)))]
        let _ = (line, ready, bound);
        match self {
            #[cfg(feature = "wordwait")]
            HardwarePark::Instruction(word_wait) => word_wait.park(line, ready, bound),
            #[cfg(test)]
            HardwarePark::Counted => counted::park(line, ready, bound),
        }
    }
}

/// A park in hardware that a test gives its thread, and counts.
#[cfg(test)]
pub(in crate::host) mod counted {
    use super::{CompletionLine, DurNs, HardwarePark, String};
    use crate::monotonic;
    use core::cell::Cell;

    std::thread_local! {
        static OFFERED: Cell<Option<bool>> = const { Cell::new(None) };
        static PARKS: Cell<u64> = const { Cell::new(0) };
    }

    /// What probes by this thread find from now on: a park that counts, or none.
    pub(in crate::host) fn offer(there_is_one: bool) {
        OFFERED.set(Some(there_is_one));
    }

    /// How many parks this thread has made since the last call.
    pub(in crate::host) fn take_parks() -> u64 {
        PARKS.take()
    }

    pub(super) fn probe() -> Option<Result<HardwarePark, String>> {
        let missing = || String::from("the test's host has none");
        OFFERED.get().map(|is| is.then_some(HardwarePark::Counted).ok_or_else(missing))
    }

    pub(super) fn park<R: Fn(&CompletionLine) -> bool>(
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        PARKS.set(PARKS.get() + 1);
        let end = monotonic::now().after(bound);
        loop {
            if ready(line) {
                return true;
            }
            if monotonic::now() >= end {
                return false;
            }
            std::thread::yield_now();
        }
    }
}
