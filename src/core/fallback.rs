//! Declared fallbacks: a chain of links as data, and the one walk along it.
//!
//! What runs instead of what is written down, and when, before anything runs. A start-up walks the
//! chain once with what was probed; nothing later ever chooses. Wait plans and settings share the
//! walk.

use super::error::{Error, ErrorCode};
use alloc::{
    string::{String, ToString},
    vec::Vec,
};
use core::fmt::Display;

/// One link of a chain: where `needs` is missing, `to` takes the place of `from`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Link<K, N> {
    /// What cannot run without `needs`.
    pub from: K,
    /// What is needed.
    pub needs: N,
    /// What takes its place.
    pub to: K,
}

/// Where a walk ended, and why it left each place before.
pub(crate) struct Walk<'c, K, N> {
    pub(crate) running: K,
    missing: Vec<(N, &'c str)>,
}

/// Walks `chain` from `requested`. `why_missing` says why a need is not there, or `None` where it
/// is, or where it is not known yet.
///
/// The order of the links matters only between links of the same origin: the first one whose need
/// is missing is taken. As many steps as there are links are taken at the most, so a chain that
/// runs in a circle ends too.
pub(crate) fn walk<'c, K: Copy + PartialEq, N: Copy>(
    requested: K,
    chain: &[Link<K, N>],
    why_missing: impl Fn(N) -> Option<&'c str>,
) -> Walk<'c, K, N> {
    let mut walk = Walk { running: requested, missing: Vec::new() };
    for _ in chain {
        let taken = chain
            .iter()
            .filter(|link| link.from == walk.running)
            .find_map(|link| why_missing(link.needs).map(|why| (link, why)));
        let Some((link, why)) = taken else { break };
        walk.running = link.to;
        walk.missing.push((link.needs, why));
    }
    walk
}

impl<K, N: Display> Walk<'_, K, N> {
    /// The warning of `code`: what was requested, what it needs, why that is missing, what runs.
    /// Several links name their needs and reasons in the order of the walk.
    pub(crate) fn warning(
        &self,
        code: ErrorCode,
        requested: impl Display,
        running: impl Display,
    ) -> Option<Error> {
        let (needs, why) = self.reasons(usize::MAX)?;
        Some(Error::new(code, [requested.to_string(), needs, why, running.to_string()]))
    }

    /// The refusal of `code`: what was requested, what it needs, why that is missing.
    pub(crate) fn refusal(&self, code: ErrorCode, requested: impl Display) -> Option<Error> {
        let (needs, why) = self.reasons(1)?;
        Some(Error::new(code, [requested.to_string(), needs, why]))
    }

    fn reasons(&self, links: usize) -> Option<(String, String)> {
        let ((needs, why), more) = self.missing.split_first()?;
        let mut reasons = (needs.to_string(), (*why).to_string());
        for (needs, why) in more.iter().take(links - 1) {
            reasons.0.push_str(" and ");
            reasons.0.push_str(&needs.to_string());
            reasons.1.push_str("; ");
            reasons.1.push_str(why);
        }
        Some(reasons)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn link(from: char, needs: &'static str, to: char) -> Link<char, &'static str> {
        Link { from, needs, to }
    }

    fn lacks<'c>(missing: &'c [&'c str]) -> impl Fn(&'static str) -> Option<&'c str> {
        move |needs| missing.contains(&needs).then_some("not here")
    }

    #[test]
    fn a_chain_of_any_length_is_walked_to_its_end_whatever_the_order_of_its_links() {
        let chain = [link('c', "z", 'd'), link('b', "y", 'c'), link('a', "x", 'b')];
        assert_eq!(walk('a', &chain, lacks(&["x", "y", "z"])).running, 'd');
        assert_eq!(walk('a', &chain, lacks(&["x", "z"])).running, 'b');
        assert_eq!(walk('a', &chain, lacks(&["y"])).running, 'a');
        assert_eq!(walk('a', &[], lacks(&["x"])).running, 'a');
    }

    #[test]
    fn the_warning_names_every_need_on_the_way_and_the_refusal_only_the_first() {
        let chain = [link('a', "x", 'b'), link('b', "y", 'c')];
        let walk = walk('a', &chain, lacks(&["x", "y"]));
        let warning = walk.warning(ErrorCode::ExecutorFallback, 'a', 'c').unwrap();
        assert_eq!(warning.args(), ["a", "x and y", "not here; not here", "c"]);
        let refusal = walk.refusal(ErrorCode::ExecutorRefused, 'a').unwrap();
        assert_eq!(refusal.args(), ["a", "x", "not here"]);
    }

    #[test]
    fn a_chain_in_a_circle_ends() {
        let chain = [link('a', "x", 'b'), link('b', "x", 'a')];
        assert_eq!(walk('a', &chain, lacks(&["x"])).running, 'a');
    }
}
