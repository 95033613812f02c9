//! The output streams: data goes to stdout, messages to stderr.
//!
//! **Promises** that stdout has only the requested output: a table for people, or with
//! `--json` exactly one JSON document, which is the reply as it came over the bus.
//!
//! **Never** panics on a closed pipe: `berth volume status | head -1` ends without an error.

use std::fmt;
use std::io::{self, Write as _};

use berth_contract::record::UnreadableRecord;
use serde::Serialize;

use crate::failure::Failure;

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// One JSON document instead of tables.
    pub json: bool,
}

impl Output {
    /// Prints a reply: as JSON unchanged, or as formatted by `table`.
    pub fn reply<T: Serialize>(self, reply: &T, table: impl FnOnce(&T) -> String) {
        if self.json {
            // Replies are plain data. A failed serialization would be a defect of the type.
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

    /// Prints another reply, after `before`: as a table, or in one line of JSON. Fails when stdout
    /// is closed.
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

    /// Prints a failure: to stderr for people, and to stdout for programs.
    pub fn failure(self, failure: &Failure) {
        if self.json {
            data(&failure.json().to_string());
        }
        print_note(failure);
    }
}

/// Unreadable records that the reply names; no table shows them. Every reply is searched for them
/// here, so that no command omits them.
fn unreadable(reply: &impl Serialize) -> Vec<UnreadableRecord> {
    let reply = serde_json::to_value(reply).unwrap_or_default();
    let records = reply.get("unreadable").cloned().unwrap_or_default();
    serde_json::from_value(records).unwrap_or_default()
}

/// Writes one or more lines to stdout. A closed stdout is no error.
pub fn data(text: &str) {
    let _ = line(text);
}

/// As [`data`], for a command without an end: fails when stdout is closed.
pub fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush())
}

/// Prints that a list has more pages, and how to see them.
pub fn more(next: Option<&String>) {
    if let Some(next) = next {
        print_note(format_args!("there are more: --after {next:?}"));
    }
}

/// Writes a line to stderr.
pub fn print_note(text: impl fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
