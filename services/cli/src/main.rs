//! `berth`: the operator's CLI.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_version::declare(berth_version::of_build!());
    berth_cli::run_process()
}
