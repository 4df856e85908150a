//! `gpu-wait`: for a person who wants to know how their program should wait for GPU work on this
//! machine.
//!
//! The binary hands its arguments to [`run`] and exits with its code. Everything a command says
//! goes through the two writers given to it, styled; whoever owns a terminal or a pipe decides what
//! becomes of the styles.
//!
//! ```text
//! args -> run -> plan:  text -> bands -> resolved -> words or JSON
//!            |-> bench: device, workload -> runtime -> samples -> summary -> table or JSON
//! ```
#![forbid(unsafe_code)]

pub mod args;
pub mod bench;
pub mod caret;
pub mod failure;
pub mod machine;
pub mod plan;
pub mod units;

use args::{Cli, Command};
use failure::Failure;
use std::io::{self, Write};

/// The command did what was asked.
pub const EXIT_OK: u8 = 0;
/// The command began and something failed: the device, or writing the output.
pub const EXIT_FAILED: u8 = 1;
/// The command was not begun, since what was asked for makes no sense: a bad plan, a bad value.
pub const EXIT_USAGE: u8 = 2;

/// Runs the command and returns the exit code. A failure is written to `err`, or with `--json` to
/// `out` as an object. A reader that closed its end of `out` is no failure.
pub fn run(cli: &Cli, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let (done, json) = match &cli.command {
        Command::Plan(args) => (plan::run(args, out), args.json),
        Command::Bench(args) => (bench::run(args, out), args.json),
    };
    let Err(failure) = done else { return EXIT_OK };
    let written = match &failure {
        Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return EXIT_OK,
        failure if json => failure.write_json(out),
        failure => failure.write_text(err),
    };
    // Nowhere is left to say so where this fails too; the exit code says it.
    drop(written);
    failure.exit_code()
}

/// Writes `value` as indented JSON and a line end.
pub(crate) fn write_json(out: &mut dyn Write, value: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    out.flush()
}
