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
mod freed;
mod identity;
mod load;
mod machine;
mod markdown;
mod measure;
mod nomad;
mod numbers;
mod plot;
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
use crate::row::Row;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    /// Measure, print the table, and write bench.json, machine.json and bench.svg
    Run(Run),
    /// Print a run's table as Markdown
    Table(Written),
    /// Draw a run's plot again
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
    /// Only on so many servers, 1 or 3; both unless given
    #[arg(long, value_name = "N")]
    servers: Option<u32>,
    /// Only with so many callers, 1, 16 or 128; all of them unless given
    #[arg(long, value_name = "N")]
    at_once: Option<u32>,
}

#[derive(Debug, Args)]
struct Written {
    /// What `run` wrote; machine.json is looked for beside it
    #[arg(default_value = "target/bench/bench.json")]
    file: PathBuf,
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
        Command::Table(written) => written
            .read()
            .and_then(|(rows, machine)| say(&markdown::tables(&rows, machine.as_ref()))),
        Command::Plot(written) => written.read().and_then(|(rows, _)| {
            Ok(std::fs::write(written.file.with_extension("svg"), plot::svg(&rows))?)
        }),
        Command::Bare(args) => runtime.block_on(bare::serve(args)),
        Command::StandIn(args) => runtime.block_on(stand_in::serve(args)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

async fn run(options: Run) -> Result<(), Fatal> {
    let machine = Machine::look()?;
    say(&machine.to_string())?;
    let effort = if options.quick { Effort::quick() } else { Effort::full() };
    let effort = Effort { at_once: options.at_once, ..effort };
    let rows = measure::all(&effort, &options.part, options.servers).await?;
    say(&table::terminal(&rows))?;
    say(&table::work(&rows))?;
    say(&shares::terminal(&rows))?;
    std::fs::create_dir_all(&options.out)?;
    let write = |name: &str, text: String| std::fs::write(options.out.join(name), text);
    write("bench.json", row::to_json(&rows)?)?;
    write("machine.json", serde_json::to_string_pretty(&machine)?)?;
    write("bench.svg", plot::svg(&rows))?;
    say(&format!("written to {}: bench.json, machine.json, bench.svg", options.out.display()))
}

impl Written {
    fn read(&self) -> Result<(Vec<Row>, Option<Machine>), Fatal> {
        let rows = row::from_json(&read(&self.file)?)?;
        let machine_file = self.file.with_file_name("machine.json");
        let machine =
            machine_file.exists().then(|| Machine::from_json(&read(&machine_file)?)).transpose()?;
        Ok((rows, machine))
    }
}

fn read(path: &Path) -> Result<String, Fatal> {
    std::fs::read_to_string(path)
        .map_err(|error| format!("{}: {error}; run `make bench` first", path.display()).into())
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
