//! `berth-conformance`: see the library, and docs/schedulers.md.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use berth_conformance::scene::{Scene, UnderTest, play};
use clap::{Parser, Subcommand};

/// Plays faults against a scheduler, and reports its mistakes
#[derive(Debug, Parser)]
#[command(name = "berth-conformance", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Play the scenes; the exit code is 1 if the scheduler made a mistake
    ///
    /// The scheduler reads jobs from its standard input, one a line: `ID VOLUME,VOLUME COMMAND`. It
    /// runs each once, on the node {node}, with the paths of its volumes in variables
    /// `BERTH_VOLUME_…`; and after a restart with the same input it goes on where it was.
    Run {
        /// Only this scene; may be repeated
        #[arg(long, value_name = "SCENE")]
        scene: Vec<String>,
        /// Jobs are JSON lines: {"id": …, "volumes": […], "command": […]}
        #[arg(long)]
        json: bool,
        /// The scheduler's command; {server}, {owner}, {node}, {creds} and {ca} are filled in
        #[arg(last = true, required = true)]
        scheduler: Vec<String>,
    },
    /// What the scheduler runs
    #[command(hide = true)]
    Job { logs: PathBuf, id: String, ms: u64 },
}

#[expect(clippy::print_stdout, reason = "its report is what it is for")]
#[expect(clippy::print_stderr, reason = "its report is what it is for")]
fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Job { logs, id, ms } => {
            match berth_conformance::job::run(&logs, &id, Duration::from_millis(ms)) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("job {id}: {error}");
                    ExitCode::FAILURE
                }
            }
        }
        Command::Run { scene, json, scheduler } => {
            let Ok(kit) = std::env::current_exe() else { return ExitCode::FAILURE };
            let known = |name: &String| Scene::ALL.iter().any(|one| one.name() == name);
            if let Some(unknown) = scene.iter().find(|name| !known(name)) {
                let all: Vec<&str> = Scene::ALL.iter().map(|one| one.name()).collect();
                eprintln!("there is no scene {unknown}; there are {}", all.join(", "));
                return ExitCode::FAILURE;
            }
            let test = UnderTest { command: scheduler, json, kit };
            let Ok(runtime) = tokio::runtime::Runtime::new() else { return ExitCode::FAILURE };
            let is_wanted =
                |one: &Scene| scene.is_empty() || scene.iter().any(|name| name == one.name());
            let mut has_failed = false;
            for one in Scene::ALL.into_iter().filter(is_wanted) {
                let (mistakes, _) = runtime.block_on(play(one, &test));
                let name = one.name();
                if mistakes.is_empty() {
                    println!("{name}: no mistake");
                }
                for mistake in mistakes {
                    has_failed = true;
                    println!("{name}: {mistake}");
                }
            }
            if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
    }
}
