//! The benchmarks of gpu-async-reactor: one module a suite, and in a suite one module a peer.
//!
//! Peers run in the same process and run, interleaved with ours, so that a machine that slows down
//! slows everybody. Each figure is a median with its quartiles, each comparison a ratio with its
//! target. To add a suite: a module with a `pub fn run(effort: Effort) -> Vec<Section>`, a variant of
//! [`Suite`], and its line in [`Suite::run`].

mod allocations;
mod count;
mod executor;
mod host;
mod latency;
mod measure;
mod reactor;
mod report;
mod sleep;
mod trigger;
mod wait;
mod wake;
mod watch;

use clap::{Args, Parser, Subcommand};
use measure::Effort;
use report::{Report, Section};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// Measure gpu-async-reactor against its peers.
#[derive(Parser)]
#[command(after_help = "Examples:\n  bench executor\n  bench all --quick --json figures.json")]
struct Cli {
    #[command(subcommand)]
    suite: Suite,
    #[command(flatten)]
    options: Options,
}

#[derive(Args)]
struct Options {
    /// Fewer and shorter samples: all suites within 40 seconds.
    #[arg(long, global = true)]
    quick: bool,
    /// Also write every figure and verdict to FILE.
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    /// End with a failure where a target is missed.
    #[arg(long, global = true)]
    strict: bool,
}

#[derive(Subcommand)]
enum Suite {
    /// Task switches, memory and allocations a task, against other executors.
    Executor,
    /// Registering, firing and idling over many words, against a plain scan.
    Reactor,
    /// How late sleeps end, and how soon another thread ends them.
    Sleep,
    /// From a store on another thread to the code that waited for it.
    Wake,
    /// Work of the software device under each plan: lateness and CPU.
    Wait,
    /// A watcher's registrations and completions a second, and its CPU time.
    Watch,
    /// Every suite.
    All,
    /// Do a fixed number of operations, for a machine that counts instructions.
    #[command(hide = true)]
    Count {
        /// Which operation.
        operation: count::Operation,
        /// How many of it.
        times: u64,
    },
}

impl Suite {
    /// What `all` runs, in this order.
    const EACH: [Suite; 6] =
        [Suite::Executor, Suite::Reactor, Suite::Sleep, Suite::Wake, Suite::Wait, Suite::Watch];

    fn run(&self, effort: Effort) -> Vec<Section> {
        match self {
            Suite::Executor => executor::run(effort),
            Suite::Reactor => reactor::run(effort),
            Suite::Sleep => sleep::run(effort),
            Suite::Wake => wake::run(effort),
            Suite::Wait => wait::run(effort),
            Suite::Watch => watch::run(effort),
            Suite::All => Suite::EACH.iter().flat_map(|suite| suite.run(effort)).collect(),
            Suite::Count { operation, times } => {
                count::run(*operation, *times);
                Vec::new()
            }
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let effort = Effort { quick: cli.options.quick };
    let sections = cli.suite.run(effort);
    if sections.is_empty() {
        return ExitCode::SUCCESS;
    }
    let report = Report { quick: effort.quick, sections };
    // Who closes the pipe has read enough.
    let _ = write!(std::io::stdout(), "{report}");
    if let Some(path) = &cli.options.json {
        let text = serde_json::to_string_pretty(&report).expect("a report is plain data");
        if let Err(error) = std::fs::write(path, text) {
            eprintln!("bench: cannot write {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    if cli.options.strict && report.missed() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
