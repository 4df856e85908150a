//! The command line of `gpu-wait`; see the library of this package.
#![forbid(unsafe_code)]

use clap::Parser;
use gpu_wait::args::Cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // These keep styles on a terminal, and drop them in a pipe and where `NO_COLOR` is set.
    ExitCode::from(gpu_wait::run(&cli, &mut anstream::stdout(), &mut anstream::stderr()))
}
