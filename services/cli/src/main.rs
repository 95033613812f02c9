//! `berth`: the operator's CLI.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_cli::run_process()
}
