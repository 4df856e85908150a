//! The arguments.

use crate::units::{Jitter, parse_jitter, parse_work};
use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};
use gpu_async_reactor::DurNs;
use serde::Serialize;

const EXIT_CODES: &str = "\
Exit codes:
  0  done; a plan that falls back here is done too, with a warning
  1  it began and something failed: the device, or writing the output
  2  bad arguments, or a bad plan (its fault is underlined)";

const PLAN_HELP: &str = "\
Examples:
  gpu-wait plan spin:backstop_us=1000
  gpu-wait plan 'flag:park_us=50,backstop_us=1000+predict:margin_us=80,min_sleep_us=100,max_sleep_us=20000,window=4'
  gpu-wait plan 'spin:backstop_us=500;rows>=64:block' --json

Plans:
  block                               the driver's blocking wait
  poll                                the status query in a loop
  spin:backstop_us=N                  reads the word that the device writes
  flag:park_us=N,backstop_us=N        parks in hardware on that word
  ...+predict:margin_us=N,min_sleep_us=N,max_sleep_us=N,window=N
                                      sleeps first, until shortly before the predicted completion
  PLAN;rows>=N:PLAN;...               another plan from N rows on";

const BENCH_HELP: &str = "\
Examples:
  gpu-wait bench
  gpu-wait bench --work 500us --jitter 20% --plan poll --plan spin:backstop_us=1000
  gpu-wait bench --device vulkan --work 2ms    on a real device, which fills memory
  gpu-wait bench --load 8                     what else the thread gets done meanwhile
  gpu-wait bench --executor naive --waits 200 --json";

/// How a program should wait for GPU work on this machine.
#[derive(Debug, Parser)]
#[command(name = "gpu-wait", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Says in words what a wait plan does, and what of it runs here.
    #[command(after_help = PLAN_HELP)]
    Plan(PlanArgs),
    /// Measures how late and how costly waits are under several plans.
    #[command(after_help = BENCH_HELP)]
    Bench(BenchArgs),
}

/// The arguments of `gpu-wait plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// A wait plan, or a plan for each range of row counts.
    #[arg(allow_hyphen_values = true)]
    pub text: String,
    /// Writes a JSON object.
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `gpu-wait bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// How long the device works for each wait, 1us to 10s.
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = parse_work, allow_hyphen_values = true)]
    pub work: DurNs,
    /// How much longer or shorter than that a piece of work may be, 0% to 100%.
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = parse_jitter, allow_hyphen_values = true)]
    pub jitter: Jitter,
    /// How many waits are measured for each plan.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = value_parser!(u32).range(1..=1_000_000), allow_hyphen_values = true)]
    pub waits: u32,
    /// A plan to measure; may be given several times. A set of six unless given.
    #[arg(long = "plan", value_name = "PLAN", allow_hyphen_values = true)]
    pub plans: Vec<String>,
    /// What runs the waits: naive (a thread that waits for one thing) or gpu-reactor.
    #[arg(long, value_name = "NAME", default_value = "gpu-reactor")]
    pub executor: String,
    /// How many ready tasks run beside the waits, each poll about 1 us of arithmetic.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = value_parser!(u32).range(0..=10_000), allow_hyphen_values = true)]
    pub load: u32,
    /// The device that works; this build has: software, vulkan, cuda, hip.
    #[arg(long, value_name = "NAME", default_value = "software", hide_possible_values = true)]
    pub device: Device,
    /// Of the random lengths of work: the same seed, the same lengths, for each plan.
    #[arg(long, value_name = "N", default_value_t = 1, allow_hyphen_values = true)]
    pub seed: u64,
    /// Writes a JSON object.
    #[arg(long)]
    pub json: bool,
    /// Neither a progress bar nor notes and warnings.
    #[arg(long, short)]
    pub quiet: bool,
}

/// The devices of this build.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// The embedded one: threads that take the time they are told to.
    Software,
    /// The first device of NVIDIA's driver, which fills memory for as long as is asked.
    Cuda,
    /// The first device of AMD's runtime, which fills memory for as long as is asked.
    Hip,
    /// The first suitable Vulkan device, which fills memory for as long as is asked.
    Vulkan,
}

impl Device {
    /// The name that it is asked for by.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Device::Software => "software",
            Device::Cuda => "cuda",
            Device::Hip => "hip",
            Device::Vulkan => "vulkan",
        }
    }
}
