//! What was measured, as a table for people.

use super::report::Report;
use crate::args::Device;
use crate::units::{percent, time, us};
use comfy_table::{CellAlignment, Table};
use gpu_async_reactor::DurNs;
use std::io::{self, Write};

const COLUMNS: [&str; 8] =
    ["\nplan", "lateness\np50 us", "\np99 us", "\nmax us", "\nCPU", "\ncalls", "\nparks", "\nlate"];

/// With tasks beside the waits.
const FILLER_COLUMNS: [&str; 2] = ["\npolls", "\nfilled"];

/// How wide the column of plans is.
const PLAN_COLUMNS: usize = 32;

const NOTES: &str = "\
lateness  from the instant of the completion, as it was noted, until the caller ran again
CPU       CPU time of the waiting thread, as a share of the time it waited
calls     driver calls a wait: status queries, blocking waits, and the store of the word where
          the plan reads it
parks     parks on the word, a wait
late      waits whose predicted sleep ended after the completion, as a share";

const SOFTWARE_NOTE: &str = "\
The software device wakes a blocked thread itself; a GPU's driver does so by way of an interrupt,
which takes longer than block shows here. Its threads need a core beside that of the waiting
thread: on a busy machine the figures are those of the quarrel over cores.";

const VULKAN_NOTE: &str = "\
The device fills memory as often as takes the asked time, measured before. It writes its own time behind
the work and before it stores the word; comparing its clock with the host's is off by microseconds at most.
A device in software, such as llvmpipe, fills on threads of the host, which need cores of their own.";

const MAPPED_NOTE: &str = "\
The device fills memory as often as takes the asked time, measured before. The end of the work is when a thread
of its own, which takes a core, saw the word: it is as late as a cache line takes from the device.";

const FILLER_NOTE: &str = "\
polls     polls of the ready tasks beside the wait, a wait; CPU includes them
filled    the time within these polls, as a share of the time of the wait";

impl Report {
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
            let note = match self.device {
                Device::Software => SOFTWARE_NOTE,
                Device::Cuda | Device::Hip => MAPPED_NOTE,
                Device::Vulkan => VULKAN_NOTE,
            };
            writeln!(out, "\n{note}")?;
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
        let named = self.device_name.as_ref().map_or(String::new(), |name| format!(" ({name})"));
        format!(
            "{} waits a plan for work of {} ± {} on the {} device{named};\n\
             {} more before, not counted; executor {}{beside}",
            self.waits,
            time(DurNs(self.work_ns)),
            percent(self.jitter),
            self.device.name(),
            self.warm_up,
            self.executor,
        )
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset("     ──            ");
        let mut header = COLUMNS.to_vec();
        if self.load > 0 {
            header.extend(FILLER_COLUMNS);
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
                cells.push(percent(figures.filler_share));
            }
            table.add_row(cells);
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 1));
            if column.index > 0 {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }
}

/// A mean of counts.
fn count(mean: f64) -> String {
    if mean < 9.95 { format!("{mean:.1}") } else { format!("{mean:.0}") }
}

/// A plan's text on lines of at most `columns` where it allows that: it breaks before `+` and
/// `(`, and behind a comma. Later lines are set in.
fn folded(text: &str, columns: usize) -> String {
    let mut lines = vec![String::new()];
    for piece in pieces(text) {
        let line = lines.last_mut().expect("there is a first one");
        let forced = piece.starts_with(['+', '(']);
        if !line.is_empty() && (forced || line.len() + piece.trim_end().len() > columns) {
            lines.push(format!("  {piece}"));
        } else {
            line.push_str(piece);
        }
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

/// The parts of a plan's text between which a line may break.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(',').flat_map(|part| {
        let breaks = part.match_indices(['+', '(']).map(|(at, _)| at);
        let starts: Vec<usize> = [0].into_iter().chain(breaks).chain([part.len()]).collect();
        (1..starts.len()).map(move |end| &part[starts[end - 1]..starts[end]])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_plan_is_folded_where_it_can_be_read() {
        let fold = |text| folded(text, 32);
        assert_eq!(fold("spin:backstop_us=1000"), "spin:backstop_us=1000");
        assert_eq!(
            fold("poll (fallback from flag:park_us=50,backstop_us=1000)"),
            "poll\n  (fallback from flag:park_us=50,\n  backstop_us=1000)"
        );
        assert_eq!(
            fold("poll (fallback from spin:backstop_us=10+predict:margin_us=80,window=4)"),
            "poll\n  (fallback from spin:backstop_us=10\n  +predict:margin_us=80,\n  window=4)"
        );
        assert_eq!(
            fold("poll+predict:margin_us=80,min_sleep_us=100,max_sleep_us=20000,window=4"),
            "poll\n  +predict:margin_us=80,\n  min_sleep_us=100,\n  max_sleep_us=20000,window=4"
        );
    }
}
