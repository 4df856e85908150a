//! Events for `tracing`, where the feature of that name is on; else nothing, at no cost.
//!
//! Targets are `gpu_async_reactor::resolve` and `gpu_async_reactor::wait`. Resolved settings are told
//! at `INFO`, fallbacks at `WARN`, ends of waits at `TRACE`, faults and lost stores at `WARN`.

use crate::core::plan::ResolvedBands;
use crate::core::port::Waited;
use crate::core::setting::{ExecutorKind, Setting};

#[cfg(feature = "tracing")]
pub(super) fn resolved(plans: &ResolvedBands, executor: &Setting<ExecutorKind>) {
    const TARGET: &str = "gpu_async_reactor::resolve";
    for warning in plans.warnings.iter().chain(&executor.warning) {
        let code = warning.code().number();
        tracing::warn!(target: TARGET, code, %warning, "fallback");
    }
    let (plan, executor) = (plans.label(), executor.label());
    tracing::info!(target: TARGET, plan, executor, "resolved");
}

#[cfg(feature = "tracing")]
pub(super) fn wait_ended(point: &'static str, waited: Option<&Waited>) {
    use crate::core::port::End;
    const TARGET: &str = "gpu_async_reactor::wait";
    let Some(waited) = waited else {
        tracing::warn!(target: TARGET, point, "the wait ended with an error");
        return;
    };
    let (end, elapsed_ns, slept_ns) = (waited.end, waited.elapsed.0, waited.slept.0);
    let (queries, parks) = (waited.queries, waited.parks);
    if let End::Backstop | End::TimedOut = end {
        tracing::warn!(target: TARGET, point, ?end, elapsed_ns, "the word did not come");
    } else {
        tracing::trace!(target: TARGET, point, ?end, elapsed_ns, slept_ns, queries, parks, "waited");
    }
}

#[cfg(not(feature = "tracing"))]
pub(super) fn resolved(_: &ResolvedBands, _: &Setting<ExecutorKind>) {}

#[cfg(not(feature = "tracing"))]
#[inline]
pub(super) fn wait_ended(_: &'static str, _: Option<&Waited>) {}
