//! Where words go: data to stdout, talk to stderr.
//!
//! **Promises** that stdout has only the requested output: a table for people, or with
//! `--json` exactly one JSON document, which is the reply as it came over the bus.
//!
//! **Never** panics on a closed pipe: `berth volume status | head -1` ends well.

use std::fmt;
use std::io::{self, Write as _};

use berth_contract::record::UnreadableRecord;
use serde::Serialize;

use crate::failure::Failure;

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// One JSON document instead of tables.
    pub json: bool,
}

impl Output {
    /// Prints a reply: as it is, or as `table` puts it.
    pub fn reply<T: Serialize>(self, reply: &T, table: impl FnOnce(&T) -> String) {
        if self.json {
            // Replies are plain data; one that could not be written would be a defect of its type.
            let text =
                serde_json::to_string_pretty(reply).unwrap_or_else(|error| error.to_string());
            data(&text);
        } else {
            data(table(reply).trim_end());
        }
        for record in unreadable(reply) {
            print_note(format_args!("not in the answer, since it cannot be read: {record}"));
        }
    }

    /// Prints a reply once more, after `before`: as a table, or in one line of JSON. Says when the
    /// reader went away.
    pub fn again<T: Serialize>(
        self,
        before: &str,
        reply: &T,
        table: impl FnOnce(&T) -> String,
    ) -> io::Result<()> {
        if self.json {
            let text = serde_json::to_string(reply).unwrap_or_else(|error| error.to_string());
            line(&text)?;
        } else {
            line(&format!("{before}{}", table(reply).trim_end()))?;
        }
        for record in unreadable(reply) {
            print_note(format_args!("not in the answer, since it cannot be read: {record}"));
        }
        Ok(())
    }

    /// Prints a failure: for people on stderr, and for programs on stdout.
    pub fn failure(self, failure: &Failure) {
        if self.json {
            data(&failure.json().to_string());
        }
        print_note(failure);
    }
}

/// What the reply says of records that no table shows, because they cannot be read. It is looked
/// for here, so that no command can leave it out.
fn unreadable(reply: &impl Serialize) -> Vec<UnreadableRecord> {
    let reply = serde_json::to_value(reply).unwrap_or_default();
    let records = reply.get("unreadable").cloned().unwrap_or_default();
    serde_json::from_value(records).unwrap_or_default()
}

/// Writes a line, or several, to stdout. A reader that went away is no error.
pub fn data(text: &str) {
    let _ = line(text);
}

/// As [`data`], for a command that would go on for ever: says when the reader went away.
pub fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush())
}

/// Says that a list goes on, and how to see the rest.
pub fn more(next: Option<&String>) {
    if let Some(next) = next {
        print_note(format_args!("there are more: --after {next:?}"));
    }
}

/// Writes a line to stderr.
pub fn print_note(text: impl fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
