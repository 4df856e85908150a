//! What was measured, as a table for people and an object for programs.

use super::measure::Counts;
use super::summary::Summary;
use crate::args::BenchArgs;
use crate::failure::Warning;
use crate::units::{percent, time, us};
use comfy_table::{CellAlignment, Table};
use gpu_async_reactor::{ExecutorKind, Resolved, Setting};
use serde::Serialize;
use std::io::{self, Write};

/// How wide the column of plans is.
const PLAN_COLUMNS: usize = 38;

const NOTES: &str = "\
lateness  from the device's own note of the completion until the caller ran again
CPU       CPU time of the waiting thread, as a share of the time it waited
calls     driver calls a wait: status queries, blocking waits, and the store of the word where
          the plan reads it
parks     parks on the word, a wait
late      waits whose predicted sleep ended after the completion, as a share";

const SOFTWARE_NOTE: &str = "\
The software device wakes a blocked thread itself; a GPU's driver does so by way of an interrupt,
which takes longer than block shows here. Its threads need a core beside that of the waiting
thread: on a busy machine the figures are those of the quarrel over cores.";

const FILLER_NOTE: &str = "\
polls     polls of the ready tasks beside the wait, a wait; CPU includes them
filled    how fast these tasks ran during the waits, as a share of how fast they run without any";

/// The whole measurement.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Report {
    /// The device's name.
    pub device: &'static str,
    /// The running executor, and what it is a fallback from.
    pub executor: String,
    /// The asked length of a piece of work.
    pub work_ns: u64,
    /// How far from that a length may lie, as a share.
    pub jitter: f64,
    /// Measured waits a plan.
    pub waits: u32,
    /// Waits before those, which were left out.
    pub warm_up: u32,
    /// Ready tasks beside the waits.
    pub load: u32,
    /// Of the lengths.
    pub seed: u64,
    /// A row for each plan, in the order asked for.
    pub rows: Vec<Row>,
    /// The fallbacks that were taken, each once.
    pub warnings: Vec<Warning>,
}

/// One plan.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Row {
    /// The running plan, and what it is a fallback from.
    pub plan: String,
    /// The plan that was asked for.
    pub requested: String,
    /// Whether another plan runs.
    pub fallback: bool,
    /// Its figures.
    #[serde(flatten)]
    pub summary: Summary,
}

impl Row {
    /// Of the waits under `plan`.
    #[must_use]
    pub fn new(plan: &Resolved, summary: Summary) -> Self {
        let fallback = plan.warning.is_some();
        Row { plan: plan.label(), requested: plan.requested.label(), fallback, summary }
    }
}

impl Report {
    /// Without rows yet.
    #[must_use]
    pub fn new(args: &BenchArgs, executor: &Setting<ExecutorKind>, counts: Counts) -> Self {
        Report {
            device: "software",
            executor: executor.label(),
            work_ns: args.work.0,
            jitter: args.jitter.share(),
            waits: counts.waits,
            warm_up: counts.warm_up,
            load: args.load,
            seed: args.seed,
            rows: Vec::new(),
            warnings: executor.warning.iter().map(Warning::from).collect(),
        }
    }

    /// Adds a row, and its warning if that was not said yet.
    pub fn add(&mut self, row: Row, warning: Option<Warning>) {
        self.rows.push(row);
        self.warnings.extend(warning.filter(|warning| !self.warnings.contains(warning)));
    }

    /// Writes the table, and unless `quiet` what its columns mean and the warnings.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_text(&self, out: &mut dyn Write, quiet: bool) -> io::Result<()> {
        if !quiet {
            writeln!(out, "{}\n", self.headline())?;
        }
        for line in self.table().lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
        if !quiet {
            writeln!(out, "\n{NOTES}")?;
            if self.load > 0 {
                writeln!(out, "{FILLER_NOTE}")?;
            }
            writeln!(out, "\n{SOFTWARE_NOTE}")?;
            self.warnings.iter().try_for_each(|warning| {
                writeln!(out)?;
                warning.write_text(out)
            })?;
        }
        out.flush()
    }

    fn headline(&self) -> String {
        let beside = match self.load {
            0 => String::new(),
            load => format!(", {load} ready tasks beside them"),
        };
        format!(
            "{} waits a plan for work of {} ± {} on the {} device;\n\
             {} more before, not counted; executor {}{beside}",
            self.waits,
            time(gpu_async_reactor::DurNs(self.work_ns)),
            percent(self.jitter),
            self.device,
            self.warm_up,
            self.executor,
        )
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset("     ──            ");
        let mut header = vec![
            "
plan",
            "lateness
p50 us",
            "
p99 us",
            "
max us",
            "
CPU",
            "
calls",
            "
parks",
            "
late",
        ];
        if self.load > 0 {
            header.extend(["\npolls", "\nfilled"]);
        }
        table.set_header(header);
        for row in &self.rows {
            let figures = &row.summary;
            let mut cells = vec![
                folded(&row.plan, PLAN_COLUMNS),
                us(figures.lateness_ns.p50),
                us(figures.lateness_ns.p99),
                us(figures.lateness_ns.max),
                figures.cpu_share.map_or("unknown".into(), percent),
                count(figures.driver_calls),
                count(figures.parks),
                percent(figures.late_share),
            ];
            if self.load > 0 {
                cells.push(count(figures.filler_polls));
                cells.push(figures.filler_share.map_or("unknown".into(), percent));
            }
            table.add_row(cells);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

/// A mean of counts.
fn count(mean: f64) -> String {
    if mean < 9.95 { format!("{mean:.1}") } else { format!("{mean:.0}") }
}

/// A plan's text on lines of at most `columns` where it allows that: it breaks before `+`, before
/// a blank and behind a comma. Later lines are set in.
fn folded(text: &str, columns: usize) -> String {
    let mut lines = vec![String::new()];
    for piece in pieces(text) {
        let line = lines.last_mut().expect("there is a first one");
        let forced = piece.starts_with(['+', ' ']);
        if !line.is_empty() && (forced || line.len() + piece.len() > columns) {
            lines.push(format!("  {}", piece.trim_start()));
        } else {
            line.push_str(piece);
        }
    }
    lines.join("\n")
}

/// The parts of a plan's text between which a line may break.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(',').flat_map(|part| {
        let at = part.find(['+', ' ']).unwrap_or(0);
        let (head, tail) = part.split_at(at);
        [head, tail].into_iter().filter(|piece| !piece.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_plan_is_folded_where_it_can_be_read() {
        let fold = |text| folded(text, 38);
        assert_eq!(fold("spin:backstop_us=1000"), "spin:backstop_us=1000");
        assert_eq!(
            fold("poll (fallback from flag:park_us=50,backstop_us=1000)"),
            "poll\n  (fallback from flag:park_us=50,\n  backstop_us=1000)"
        );
        assert_eq!(
            fold("poll+predict:margin_us=80,min_sleep_us=100,max_sleep_us=20000,window=4"),
            "poll\n  +predict:margin_us=80,\n  min_sleep_us=100,max_sleep_us=20000,\n  window=4"
        );
    }
}
