//! What the suites report: sections of a table and verdicts, as text for people and as JSON.

use crate::measure::{Samples, Spread};
use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use serde::Serialize;
use std::fmt;

#[derive(Serialize)]
pub struct Report {
    pub quick: bool,
    pub sections: Vec<Section>,
}

/// One table, what it shows, and how its figures compare with their targets.
#[derive(Serialize)]
pub struct Section {
    pub title: String,
    pub notes: Vec<String>,
    /// The first heads the rows' names.
    pub columns: Vec<String>,
    pub rows: Vec<Row>,
    pub verdicts: Vec<Verdict>,
}

#[derive(Serialize)]
pub struct Row {
    pub name: String,
    pub cells: Vec<Cell>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    /// A median and its quartiles.
    Measured(Spread),
    /// A number that has no spread.
    Counted(f64),
    /// Why there is no number.
    Absent(String),
}

/// A figure beside its target.
#[derive(Serialize)]
pub struct Verdict {
    pub what: String,
    pub measured: Spread,
    /// What stands behind the number: " x", " ns" or nothing.
    pub unit: &'static str,
    pub at_most: f64,
    pub met: bool,
}

impl Verdict {
    /// Whether the median of `samples` is at most `at_most`.
    pub fn at_most(
        what: impl Into<String>,
        samples: &Samples,
        unit: &'static str,
        at_most: f64,
    ) -> Self {
        let measured = samples.spread();
        let met = measured.median <= at_most;
        Verdict { what: what.into(), measured, unit, at_most, met }
    }
}

impl Section {
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        Section {
            title: title.into(),
            notes: Vec::new(),
            columns: columns.iter().map(ToString::to_string).collect(),
            rows: Vec::new(),
            verdicts: Vec::new(),
        }
    }

    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    pub fn row(&mut self, name: impl Into<String>, cells: Vec<Cell>) {
        self.rows.push(Row { name: name.into(), cells });
    }
}

impl Report {
    pub fn missed(&self) -> usize {
        self.verdicts().filter(|verdict| !verdict.met).count()
    }

    fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        self.sections.iter().flat_map(|section| &section.verdicts)
    }
}

/// Three significant digits, or whole numbers.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}..{})", number(self.median), number(self.low), number(self.high))
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Measured(spread) => spread.fmt(f),
            Cell::Counted(value) => f.write_str(&number(*value)),
            Cell::Absent(why) => f.write_str(why),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.met { "met" } else { "MISSED" };
        let Verdict { what, measured, unit, at_most, .. } = self;
        write!(f, "{verdict:>6}  {what}: {measured}{unit}, target <= {at_most}{unit}")
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}", self.title)?;
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_header(&self.columns);
        for row in &self.rows {
            let mut cells = vec![row.name.clone()];
            cells.extend(row.cells.iter().map(ToString::to_string));
            table.add_row(cells);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(f, "{table}")?;
        for verdict in &self.verdicts {
            writeln!(f, "{verdict}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for section in &self.sections {
            section.fmt(f)?;
        }
        let (all, missed) = (self.verdicts().count(), self.missed());
        writeln!(f, "\n{} of {all} targets met, {missed} MISSED", all - missed)?;
        writeln!(f, "Figures: median (lower quartile..upper quartile).")
    }
}
