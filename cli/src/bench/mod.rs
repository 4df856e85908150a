//! `gpu-wait bench`: how late and how costly waits are under several plans.

pub mod filler;
pub mod measure;
mod progress;
pub mod report;
pub mod subject;
pub mod summary;
mod table;
pub mod work;

use crate::args::{BenchArgs, Device};
use crate::failure::{Failure, Warning};
use crate::{machine, write_json};
use filler::{Done, filler};
use gpu_async_reactor::host::{Runtime, executor_caps};
use gpu_async_reactor::{
    DeviceCaps, ExecutorKind, Resolved, Result as DeviceResult, Setting, Strictness, WINDOW_MAX,
    WaitPlan, resolve,
};
use measure::{Counts, Sample, measure};
use progress::Progress;
use report::{Report, Row};
use std::cell::Cell;
use std::io::Write;
use std::rc::Rc;
use subject::{CudaSubject, HipSubject, Software, Subject, Vulkan};
use summary::Summary;
use work::Workload;

/// What is measured unless plans are given.
///
/// The margin of the predicted ones covers the jitter of the default work and how long a kernel takes
/// to wake a thread, 50 us and more in a virtual machine. A smaller one costs more CPU, not less: each
/// late wake halves the prediction for a window of waits.
pub const DEFAULT_PLANS: [&str; 6] = [
    "block",
    "poll",
    "spin:backstop_us=1000",
    "flag:park_us=50,backstop_us=1000",
    "spin:backstop_us=1000+predict:margin_us=150,min_sleep_us=100,max_sleep_us=1000000,window=4",
    "poll+predict:margin_us=150,min_sleep_us=100,max_sleep_us=1000000,window=4",
];

/// Measures each plan, one after the other, and writes a table or an object.
///
/// # Errors
///
/// [`Failure::Text`] for a text that is no plan, [`Failure::Asked`] for an unknown executor, before
/// anything is measured; [`Failure::Failed`] where the device fails; what `out` fails with.
pub fn run(args: &BenchArgs, out: &mut dyn Write) -> Result<(), Failure> {
    // What was asked for is read before a device is opened.
    let asked = Asked::read(args)?;
    let report = match args.device {
        Device::Software => {
            let device = Software::open().map_err(Failure::Failed)?;
            asked.on(&device, None)?
        }
        Device::Cuda => {
            let device = CudaSubject::cuda(args.work).map_err(Failure::Failed)?;
            asked.on(&device, Some(device.name()))?
        }
        Device::Hip => {
            let device = HipSubject::hip(args.work).map_err(Failure::Failed)?;
            asked.on(&device, Some(device.name()))?
        }
        Device::Vulkan => {
            let device = Vulkan::open(args.work).map_err(Failure::Failed)?;
            asked.on(&device, Some(device.name()))?
        }
    };
    if args.json {
        write_json(out, &report)?;
    } else {
        report.write_text(out, args.quiet)?;
    }
    Ok(())
}

/// What was asked for.
struct Asked<'a> {
    args: &'a BenchArgs,
    executor: Setting<ExecutorKind>,
    plans: Vec<WaitPlan>,
    counts: Counts,
}

impl<'a> Asked<'a> {
    fn read(args: &'a BenchArgs) -> Result<Self, Failure> {
        let requested = args.executor.parse().map_err(Failure::Asked)?;
        let executor =
            resolve(requested, Strictness::Fallback, &executor_caps()).map_err(Failure::Asked)?;
        if args.load > 0 && executor.running == ExecutorKind::Naive {
            let words = "--load needs --executor gpu-reactor: naive runs one task at a time";
            return Err(Failure::Senseless(words.into()));
        }
        let parse = |text: &str| {
            WaitPlan::parse(text).map_err(|error| Failure::Text(text.to_string(), error))
        };
        let plans = if args.plans.is_empty() {
            DEFAULT_PLANS.iter().map(|text| parse(text)).collect::<Result<_, _>>()?
        } else {
            args.plans.iter().map(|text| parse(text)).collect::<Result<_, _>>()?
        };
        // As many as an estimate keeps.
        let counts = Counts { warm_up: args.waits.min(WINDOW_MAX.into()), waits: args.waits };
        Ok(Asked { args, executor, plans, counts })
    }

    /// Measures all plans on `device`, whose own name is given where it has one.
    fn on<D: Subject>(self, device: &D, name: Option<&str>) -> Result<Report, Failure> {
        let mut report = Report::new(self.args, name, &self.executor, self.counts);
        let host = machine::host();
        let caps = device.caps();
        let plans: Vec<Resolved> =
            self.plans.iter().map(|plan| plan.resolve_on(&host, &caps)).collect();
        let bench = Bench { asked: self, device, caps };
        let progress = Progress::start(bench.asked.args, plans.len(), bench.asked.counts);
        for plan in &plans {
            let samples = bench.measure(plan, &progress).map_err(Failure::Failed)?;
            let row = Row::new(plan, Summary::of(&samples));
            report.add(row, plan.warning.as_ref().map(Warning::from));
        }
        Ok(report)
    }
}

/// It on a device, which was asked what it offers.
struct Bench<'a, D> {
    asked: Asked<'a>,
    device: &'a D,
    caps: DeviceCaps,
}

impl<D: Subject> Bench<'_, D> {
    fn measure(&self, plan: &Resolved, progress: &Progress) -> DeviceResult<Vec<Sample>> {
        let Asked { args, executor, counts, .. } = &self.asked;
        let runtime = Runtime::builder(&plan.requested.label(), executor.requested.name());
        let runtime = match self.device.doorbell()? {
            Some(doorbell) => runtime.doorbell(doorbell),
            None => runtime,
        };
        let runtime = runtime.device(self.caps.clone()).build()?;
        let stream = self.device.stream_on(runtime.doorbell())?;
        let filled = Rc::new(Cell::new(Done::default()));
        for _ in 0..args.load {
            runtime.spawn(filler(filled.clone()));
        }
        let workload = Workload::new(args.work, args.jitter, args.seed);
        let after_each = || progress.step();
        let waits = measure(&runtime, &stream, workload, *counts, &filled, after_each);
        runtime.block_on(waits)?
    }
}
