//! `gpu-wait plan`: what a plan says, and what of it runs here.

mod words;

use crate::args::PlanArgs;
use crate::failure::{Failure, Warning};
use crate::{machine, write_json};
use gpu_async_reactor::{DeadlinePlan, DeviceCaps, HostCaps, Park, WaitBands, WaitPlan};
use serde::Serialize;
use std::io::Write;

const NS_PER_US: u64 = 1_000;

/// Reads the text, resolves it, and writes what that means.
///
/// # Errors
///
/// [`Failure::Text`] for a text that is no plan, and what `out` fails with.
pub fn run(args: &PlanArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let bands =
        WaitBands::parse(&args.text).map_err(|error| Failure::Text(args.text.clone(), error))?;
    let host = machine::host();
    let meaning = Meaning::of(&bands, &host, &machine::software_device());
    if args.json {
        write_json(out, &meaning)?;
    } else {
        words::write(out, &meaning)?;
    }
    Ok(())
}

/// Bands of plans, field by field, and what of them runs.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub struct Meaning {
    /// The canonical text of what was asked for.
    pub requested: String,
    /// The text of what runs here.
    pub running: String,
    /// Each band, ascending from 0 rows. A plan without bands is one of them.
    pub bands: Vec<Band>,
    /// The fallbacks that were taken.
    pub warnings: Vec<Warning>,
}

/// A range of row counts and its plan.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub struct Band {
    /// The smallest row count.
    pub rows_from: u64,
    /// The largest row count; none without an end.
    pub rows_to: Option<u64>,
    /// The text of the plan that was asked for.
    pub requested: String,
    /// The text of the plan that runs here.
    pub running: String,
    /// The park that was asked for: `block`, `poll`, `flag` or `spin`.
    pub park: &'static str,
    /// Its fields.
    pub park_fields: Vec<Field>,
    /// The fields of the prediction; none without one.
    pub predict_fields: Option<Vec<Field>>,
}

/// A field of a plan.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// As in the text.
    pub name: &'static str,
    /// As in the text.
    pub value: u64,
    /// What the value counts: `us` or `samples`.
    pub unit: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

impl Meaning {
    /// What `bands` say, and what of them runs on this host with this device.
    #[must_use]
    pub fn of(bands: &WaitBands, host: &HostCaps, device: &DeviceCaps) -> Self {
        let resolved = bands.resolve_on(host, device);
        let edges = bands.as_slice();
        let band = |at: usize| {
            let (rows_from, plan) = &edges[at];
            let running = resolved.bands.as_slice()[at].1;
            let rows_to = edges.get(at + 1).map(|(next, _)| next - 1);
            Band::of(*rows_from, rows_to, plan, &running)
        };
        Meaning {
            requested: bands.label(),
            running: resolved.bands.label(),
            bands: (0..edges.len()).map(band).collect(),
            warnings: resolved.warnings.iter().map(Warning::from).collect(),
        }
    }
}

impl Band {
    fn of(rows_from: u64, rows_to: Option<u64>, plan: &WaitPlan, running: &WaitPlan) -> Self {
        Band {
            rows_from,
            rows_to,
            requested: plan.label(),
            running: running.label(),
            park: plan.park.kind().name(),
            park_fields: park_fields(&plan.park),
            predict_fields: plan.predict.as_ref().map(predict_fields),
        }
    }
}

fn park_fields(park: &Park) -> Vec<Field> {
    let backstop = |ns| in_us("backstop_us", ns, "the longest time between two status queries");
    match *park {
        Park::Block | Park::QueryPoll => Vec::new(),
        Park::FlagWait { park_ns, backstop_ns } => {
            vec![in_us("park_us", park_ns, "the longest single park"), backstop(backstop_ns)]
        }
        Park::Spin { backstop_ns } => vec![backstop(backstop_ns)],
    }
}

fn predict_fields(predict: &DeadlinePlan) -> Vec<Field> {
    let window = Field {
        name: "window",
        value: predict.window.into(),
        unit: "samples",
        meaning: "the prediction is the smallest of the last so many",
    };
    vec![
        in_us("margin_us", predict.margin_ns, "the sleep ends this long before the prediction"),
        in_us("min_sleep_us", predict.min_sleep_ns, "a shorter sleep is left out"),
        in_us("max_sleep_us", predict.max_sleep_ns, "the longest sleep"),
        window,
    ]
}

fn in_us(name: &'static str, ns: u64, meaning: &'static str) -> Field {
    Field { name, value: ns / NS_PER_US, unit: "us", meaning }
}
