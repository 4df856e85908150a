//! What went wrong with a command, for people and for programs.

use crate::caret::{WINDOW_COLUMNS, underline};
use crate::{EXIT_FAILED, EXIT_USAGE, write_json};
use anstyle::{AnsiColor, Style};
use gpu_async_reactor::Error;
use serde::Serialize;
use std::io::{self, Write};
use std::ops::Range;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// Why a command did not do what was asked.
#[derive(Debug)]
pub enum Failure {
    /// A text that the caller gave is malformed: the text, and the error that points into it.
    Text(String, Error),
    /// An error of the library in what was asked for.
    Asked(Error),
    /// What was asked for makes no sense, in words.
    Senseless(String),
    /// It began and failed.
    Failed(Error),
    /// The output could not be written.
    Output(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Output(error)
    }
}

#[derive(Serialize)]
struct Report<'f> {
    error: Body<'f>,
}

#[derive(Serialize)]
struct Body<'f> {
    /// The library's number; null where the failure is not the library's.
    code: Option<u16>,
    message: String,
    /// The text at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'f str>,
    /// The bytes of it at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    span: Option<Range<usize>>,
}

impl Failure {
    /// The exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Text(..) | Failure::Asked(_) | Failure::Senseless(_) => EXIT_USAGE,
            Failure::Failed(_) | Failure::Output(_) => EXIT_FAILED,
        }
    }

    /// Writes it for people: the message, and a text at fault with its fault underlined.
    ///
    /// # Errors
    ///
    /// Those of `err`.
    pub fn write_text(&self, err: &mut dyn Write) -> io::Result<()> {
        let message = match self {
            // The whole text follows below; here only what is wrong with it.
            Failure::Text(_, error) => error.args().last().cloned().unwrap_or_default(),
            other => other.message(),
        };
        writeln!(err, "{ERROR}error:{ERROR:#} {}", crate::caret::printable(&message))?;
        if let Failure::Text(text, error) = self {
            if let Some(span) = error.span() {
                let shown = underline(text, span, WINDOW_COLUMNS);
                writeln!(err, "  {}\n  {ERROR}{}{ERROR:#}", shown.text, shown.carets)?;
            }
        }
        err.flush()
    }

    /// Writes it as an object with the one key `error`.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let (text, error) = match self {
            Failure::Text(text, error) => (Some(text.as_str()), Some(error)),
            Failure::Asked(error) | Failure::Failed(error) => (None, Some(error)),
            Failure::Senseless(_) | Failure::Output(_) => (None, None),
        };
        let code = error.map(|error| error.code().number());
        let span = error.and_then(Error::span);
        write_json(out, &Report { error: Body { code, message: self.message(), text, span } })
    }

    fn message(&self) -> String {
        match self {
            Failure::Text(_, error) | Failure::Asked(error) | Failure::Failed(error) => {
                error.to_string()
            }
            Failure::Senseless(words) => words.clone(),
            Failure::Output(error) => format!("the output could not be written: {error}"),
        }
    }
}

/// A warning of the library, for programs.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub struct Warning {
    /// The library's number.
    pub code: u16,
    /// In words.
    pub message: String,
}

impl From<&Error> for Warning {
    fn from(error: &Error) -> Self {
        Warning { code: error.code().number(), message: error.to_string() }
    }
}

impl Warning {
    /// Writes it for people.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{WARNING}warning:{WARNING:#} {}", self.message)
    }
}
