//! What a command says: one JSON document for programs or text for people, on standard output;
//! notes and questions go to standard error.

use std::io::{self, IsTerminal as _, Write as _};

use clap::ValueEnum;
use serde::Serialize;

use crate::failure::Failure;

/// The form of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON document a command.
    Json,
    /// As etcdutl: values with commas between; `text` where etcdutl has no such command.
    Simple,
    /// As etcdutl: a table; `text` where etcdutl has no such command.
    Table,
    /// As etcdutl: a line a field; `text` where etcdutl has no such command.
    Fields,
}

/// Where a command's answer goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    chosen: Option<Format>,
}

impl Output {
    /// Answers in the form that was `chosen`; None: as the command likes best.
    pub(crate) const fn new(chosen: Option<Format>) -> Self {
        Self { chosen }
    }

    /// The form, for a command that has all of them and answers in `usual` unless told otherwise.
    pub(crate) fn format_or(self, usual: Format) -> Format {
        self.chosen.unwrap_or(usual)
    }

    /// Whether a program reads the answer.
    pub(crate) const fn is_json(self) -> bool {
        matches!(self.chosen, Some(Format::Json))
    }

    /// Whether progress bars and colours have a place: a person at a terminal is looking.
    pub(crate) fn is_interactive(self) -> bool {
        !self.is_json() && io::stderr().is_terminal()
    }

    /// The answer: `value` as JSON, or what `text` makes of it.
    pub(crate) fn show<T: Serialize + ?Sized>(
        self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        match self.format_or(Format::Text) {
            Format::Text | Format::Simple | Format::Table | Format::Fields => {
                write_out(&text(value))
            }
            Format::Json => {
                let json = serde_json::to_string_pretty(value)
                    .map_err(|e| Failure::unexpected("the answer could not be written", &e))?;
                write_out(&json)
            }
        }
    }

    /// One line for a person; a program does not see it.
    pub(crate) fn say(self, line: impl AsRef<str>) -> Result<(), Failure> {
        if self.is_json() {
            Ok(())
        } else {
            write_out(line.as_ref())
        }
    }

    /// One line beside the answer, on standard error.
    pub(crate) fn note(self, line: impl AsRef<str>) {
        if self.is_json() {
            return;
        }
        // A closed standard error leaves nobody to tell.
        writeln!(io::stderr().lock(), "{}", line.as_ref()).unwrap_or_default();
    }
}

/// Writes `text` and a line end to standard output; a reader that went away is no failure.
pub(crate) fn write_out(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match write!(out, "{text}{end}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::io("standard output could not be written", &error))
        }
        _ => Ok(()),
    }
}

/// Says what went wrong, on standard error.
pub(crate) fn write_failure(failure: &Failure, format: Format) {
    let text = match format {
        Format::Text | Format::Simple | Format::Table | Format::Fields => failure.to_string(),
        Format::Json => failure.to_json(),
    };
    // A closed standard error leaves nobody to tell; the exit code still says it.
    writeln!(io::stderr().lock(), "{text}").unwrap_or_default();
}
