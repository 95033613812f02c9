//! The command line of `berth-csi-proxy`.
//!
//! Owns: arguments, exit codes and printed text, also of the command `judge` of our own drivers.
//! Promises: stdout is data, stderr is messages. Never: does the work itself.

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use berth_judge::{Finding, judge};
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use tokio::runtime::Runtime;

use crate::behind::Behind;
use crate::causes::chain;
use crate::serve::{self, Settings};

pub const EXIT_OK: u8 = 0;
/// Also if `judge` found violations.
pub const EXIT_FAILED: u8 = 1;
pub const EXIT_USAGE: u8 = 64;

/// A CSI socket in front of any driver: logs its calls, and plants faults
#[derive(Debug, Parser)]
#[command(name = "berth-csi-proxy", version = berth_version::current())]
#[command(after_help = "Exit codes: 0 done; 1 failed, or violations found; 64 wrong arguments.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Pass calls on to a driver, until SIGTERM
    Serve(Box<ServeArgs>),
    /// Find what a CO did wrong, in the logs of all instances together
    Judge(JudgeArgs),
}

#[derive(Args, Debug)]
#[command(after_help = SERVE_HELP)]
struct ServeArgs {
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    behind: Behind,
}

const SERVE_HELP: &str = "Start the driver at the socket of --to, and have the CO use --endpoint. \
The driver is not told how long a caller waits, and is heard to the end of each call. While a call \
about a volume is with the driver, another one of the same service is answered ABORTED. A fault \
with \"crash\" ends this process, not the driver.";

/// Arguments of `judge`.
#[derive(Args, Debug)]
#[command(after_help = JUDGE_HELP)]
pub struct JudgeArgs {
    /// Print each finding as one JSON object
    #[arg(long)]
    json: bool,
    /// The logs of all instances
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
}

const JUDGE_HELP: &str = "Each finding is printed with its rule, the safety rule and CSI section \
it comes from, and the lines that prove it: the call that broke the rule, then the calls that made \
it wrong. A DISAGREEMENT is a rule that the driver applied and the judge did not, or the other \
way. A FALSE REPORT is a call that the driver says is done, where the kernel's mount table says \
otherwise.";

/// The command line, for its man page.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => {
            // Clap returns help and version as errors, for stdout.
            let _ = error.print();
            return if error.use_stderr() { EXIT_USAGE } else { EXIT_OK }.into();
        }
    };
    let done = match command {
        Command::Serve(args) => run_serve(*args),
        Command::Judge(args) => args.run(),
    };
    match done {
        Ok(()) => EXIT_OK.into(),
        Err(error) => {
            eprintln!("berth-csi-proxy: {}", chain(&*error));
            EXIT_FAILED.into()
        }
    }
}

fn run_serve(args: ServeArgs) -> Result<(), Box<dyn Error>> {
    let ServeArgs { settings, behind } = args;
    let runtime = Runtime::new()?;
    let served = runtime.block_on(serve::serve(settings, async |all| behind.tap(all).await));
    // Abandons calls that still run after the drain.
    runtime.shutdown_background();
    Ok(served?)
}

impl JudgeArgs {
    /// Prints what the judge finds; an error if it finds anything.
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        let mut count = 0_u64;
        let mut printed = Ok(());
        let mut report = |finding: Finding| {
            count += 1;
            // A finding can always be written as JSON.
            let json = || serde_json::to_string(&finding).unwrap_or_default();
            let text = if self.json { json() } else { finding.to_string() };
            if printed.is_ok() {
                printed = print(&text);
            }
        };
        let summary = judge(&self.logs, &mut report)?;
        summary.notes.iter().for_each(|note| eprintln!("{note}"));
        printed?;
        if count > 0 {
            return Err(format!("{count} violation(s)").into());
        }
        eprintln!("no violation in {} lines", summary.lines);
        Ok(())
    }
}

fn print(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
