//! `berth-bench`: how fast Berth is, beside what the bus under it can do.
//!
//! **Owns** the measurements of `make bench`, the table and the plot, and two programs that run
//! beside the services: one only writes, the other is a node whose plugins do nothing.
//!
//! **Promises** that a number and its limit come from the same minutes: what is compared takes
//! turns, round after round, against the same servers and from the same connection. Each row says
//! how many durable writes an operation made, counted in the stream.
//!
//! **Never** reaches into a service: it starts the programs that a user would start, and sends
//! them requests over the bus.

mod ask;
mod bare;
mod compare;
mod drawing;
mod freed;
mod growth_plot;
mod identity;
mod load;
mod machine;
mod markdown;
mod measure;
mod nomad;
mod numbers;
mod plot;
mod record;
mod row;
mod shares;
mod site;
mod stand_in;
mod stats;
mod table;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::machine::Machine;
use crate::measure::Effort;
use crate::record::{KEPT, RunRecord};
use crate::row::Row;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The file of the rows that a run found kept.
const FORMER: &str = "former.json";

/// Any error that ends a run.
type Fatal = Box<dyn std::error::Error + Send + Sync>;

/// Measures Berth beside the limits of what it stands on
#[derive(Debug, Parser)]
#[command(name = "berth-bench", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure, print tables and what has changed; write bench.json, former.json and plots
    Run(Run),
    /// Print a run's tables as Markdown, beside the rows that were kept before
    Table(Tables),
    /// Draw a run's plots again
    Plot(Written),
    /// Serve guarded writes and nothing else; started by `run`
    #[command(hide = true)]
    Bare(bare::Args),
    /// Stand in for a node whose plugins do nothing; started by `run`
    #[command(hide = true)]
    StandIn(stand_in::Args),
}

#[derive(Debug, Args)]
struct Run {
    /// A look rather than a measurement: shorter rounds, fewer volumes
    #[arg(long)]
    quick: bool,
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
    /// Only these parts
    #[arg(long, value_name = "PART", value_enum)]
    part: Vec<row::Part>,
    /// Keep the rows in docs/bench.json, in place of those of the same parts
    #[arg(long, conflicts_with_all = ["quick", "servers", "at_once"])]
    keep: bool,
    /// Only on so many servers, 1 or 3; both unless given
    #[arg(long, value_name = "N")]
    servers: Option<u32>,
    /// Only with so many callers, 1, 16 or 128; all of them unless given
    #[arg(long, value_name = "N")]
    at_once: Option<u32>,
}

#[derive(Debug, Args)]
struct Written {
    /// What `run` wrote or kept
    #[arg(default_value = "target/bench/bench.json")]
    file: PathBuf,
}

#[derive(Debug, Args)]
struct Tables {
    #[command(flatten)]
    written: Written,
    /// The rows of before; former.json beside the run's file unless given
    #[arg(long, value_name = "FILE")]
    former: Option<PathBuf>,
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    // The bare service gets what the services have: one thread, and the same allocator.
    let mut builder = match command {
        Command::Bare(_) => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = match builder.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into()),
    };
    let result = match command {
        Command::Run(options) => runtime.block_on(run(options)),
        Command::Table(options) => print_tables(&options),
        Command::Plot(written) => draw(&written),
        Command::Bare(args) => runtime.block_on(bare::serve(args)),
        Command::StandIn(args) => runtime.block_on(stand_in::serve(args)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

async fn run(options: Run) -> Result<(), Fatal> {
    let kept_file = berth_harness::repository().join(KEPT);
    let kept = record::read_if_there(&kept_file)?;
    let machine = Machine::look()?;
    say(&machine.to_string())?;
    let effort = if options.quick { Effort::quick() } else { Effort::full() };
    let effort = Effort { at_once: options.at_once, ..effort };
    let rows = measure::all(&effort, &options.part, options.servers).await?;
    say(&table::terminal(&rows))?;
    say(&table::work(&rows))?;
    say(&shares::terminal(&rows))?;
    let run = RunRecord { machine, rows };
    say(&compare::report(&run, &kept))?;
    std::fs::create_dir_all(&options.out)?;
    let write = |name: &str, text: String| std::fs::write(options.out.join(name), text);
    draw_plots(&run.rows, &options.out.join("bench.json"))?;
    write("bench.json", record::to_json(std::slice::from_ref(&run))?)?;
    write(FORMER, record::to_json(&kept)?)?;
    say(&format!("written to {}: bench.json, {FORMER}, plots", options.out.display()))?;
    if options.keep {
        std::fs::write(&kept_file, record::to_json(&record::keep(kept, run))?)?;
        say(&format!("kept in {KEPT}"))?;
    }
    Ok(())
}

fn print_tables(Tables { written, former }: &Tables) -> Result<(), Fatal> {
    let former = match former {
        Some(file) => record::read(file)?,
        None => record::read_if_there(&written.file.with_file_name(FORMER))?,
    };
    say(&markdown::tables(&record::read(&written.file)?, &former))
}

fn draw(written: &Written) -> Result<(), Fatal> {
    draw_plots(&record::rows(&record::read(&written.file)?), &written.file)
}

/// Writes the plots beside a file of rows.
fn draw_plots(rows: &[Row], file: &Path) -> Result<(), Fatal> {
    std::fs::write(file.with_extension("svg"), plot::svg(rows))?;
    if let Some(growth) = growth_plot::svg(rows) {
        std::fs::write(file.with_file_name("scale.svg"), growth)?;
    }
    Ok(())
}

/// Writes a result to standard output.
fn say(text: &str) -> Result<(), Fatal> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

/// Writes progress to standard error.
fn tell(text: &str) {
    // A closed stderr is no reason to stop.
    let _: std::io::Result<()> = writeln!(std::io::stderr(), "{text}");
}

fn fail(error: &Fatal) -> ExitCode {
    tell(&format!("berth-bench: {error}"));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_parts_of_a_full_run_are_kept() {
        let parses = |flags: &[&str]| {
            let arguments = ["berth-bench", "run", "--keep"].iter().chain(flags);
            Cli::try_parse_from(arguments).is_ok()
        };
        assert!(parses(&[]) && parses(&["--part", "claims", "--part", "many-releases"]));
        assert!(!parses(&["--quick"]));
        assert!(!parses(&["--servers", "3"]) && !parses(&["--at-once", "16"]));
    }
}
