//! A plan in words.

use super::{Band, Field, Meaning};
use anstyle::Style;
use std::io::{self, Write};

const BOLD: Style = Style::new().bold();

/// Writes what `meaning` says for people.
pub(super) fn write(out: &mut dyn Write, meaning: &Meaning) -> io::Result<()> {
    writeln!(out, "{BOLD}{}{BOLD:#}", meaning.requested)?;
    for band in &meaning.bands {
        writeln!(out)?;
        if meaning.bands.len() > 1 {
            writeln!(out, "{BOLD}{}{BOLD:#}", rows(band))?;
        }
        write_band(out, band)?;
    }
    if !meaning.warnings.is_empty() {
        writeln!(out)?;
    }
    meaning.warnings.iter().try_for_each(|warning| warning.write_text(out))?;
    out.flush()
}

fn write_band(out: &mut dyn Write, band: &Band) -> io::Result<()> {
    if let Some(fields) = &band.predict_fields {
        writeln!(out, "  {:<9} sleeps until shortly before the predicted completion", "predict")?;
        write_fields(out, fields)?;
    }
    writeln!(out, "  {:<9} {}", band.park, park(band.park))?;
    write_fields(out, &band.park_fields)?;
    match band.running == band.requested {
        true => writeln!(out, "  {:<9} runs as it is", "here"),
        false => writeln!(out, "  {:<9} {} runs instead", "here", band.running),
    }
}

fn write_fields(out: &mut dyn Write, fields: &[Field]) -> io::Result<()> {
    for Field { name, value, unit, meaning } in fields {
        let value = format!("{value} {unit}");
        writeln!(out, "    {name:<14} {value:<12} {meaning}")?;
    }
    Ok(())
}

fn rows(band: &Band) -> String {
    match band.rows_to {
        Some(to) if to == band.rows_from => format!("{to} rows"),
        Some(to) => format!("{} to {to} rows", band.rows_from),
        None => format!("{} rows or more", band.rows_from),
    }
}

/// What a park does.
fn park(name: &str) -> &'static str {
    match name {
        "block" => "the driver's blocking wait",
        "poll" => "asks the driver for the status in a loop",
        "flag" => "parks in hardware on the word that the device writes",
        _ => "reads the word that the device writes, in a loop without driver calls",
    }
}
