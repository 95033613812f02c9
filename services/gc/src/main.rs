//! Thin main of `berth-gc`.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_service::process::run(berth_contract::service::GC, berth_gc::run)
}
