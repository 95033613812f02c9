//! Thin main of `berth-volumewatcher`.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_service::process::run(berth_contract::service::VOLUMEWATCHER, berth_volumewatcher::run)
}
