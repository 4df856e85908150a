//! The park in hardware, where the build and the CPU have one.

#[cfg(feature = "wordwait")]
pub(super) use crate::backend::wordwait::WordWait;

/// Never made: a build without the feature has no hardware park.
#[cfg(not(feature = "wordwait"))]
#[derive(Clone, Copy, Debug)]
pub(super) enum WordWait {}

use alloc::string::String;

/// A hardware park, or why there is none.
pub(super) fn probe() -> Result<WordWait, String> {
    #[cfg(feature = "wordwait")]
    return WordWait::probe().map_err(|missing| alloc::string::ToString::to_string(&missing));
    #[cfg(not(feature = "wordwait"))]
    return Err(String::from("this program was built without the feature wordwait"));
}

#[cfg(not(feature = "wordwait"))]
impl WordWait {
    pub(super) fn park<R: Fn(&crate::core::line::CompletionLine) -> bool>(
        self,
        _: &crate::core::line::CompletionLine,
        _: R,
        _: crate::core::time::DurNs,
    ) -> bool {
        match self {}
    }
}
