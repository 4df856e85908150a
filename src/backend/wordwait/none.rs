//! Machines without a wait instruction that this crate knows, and the model checker's build.

use super::Family;
use super::monitor::{Ended, Monitor};
use super::unsupported::Unsupported;
use crate::core::line::CompletionLine;

/// There is none.
#[derive(Clone, Copy, Debug)]
pub(super) enum Instruction {}

impl Instruction {
    pub(super) fn detect() -> Result<Self, Unsupported> {
        Err(Unsupported::Target { arch: std::env::consts::ARCH, os: std::env::consts::OS })
    }

    pub(super) fn family(self) -> Family {
        match self {}
    }

    pub(super) fn nominal_hz(self) -> Option<u64> {
        match self {}
    }
}

impl Monitor for Instruction {
    fn ticks(&self) -> u64 {
        match *self {}
    }

    fn arm(&self, _: &CompletionLine) {
        match *self {}
    }

    fn wait(&self, _: u64) -> Ended {
        match *self {}
    }
}
