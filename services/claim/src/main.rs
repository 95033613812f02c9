//! Thin main of `berth-claim`.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_service::process::run(berth_contract::service::CLAIM, berth_claim::run)
}
