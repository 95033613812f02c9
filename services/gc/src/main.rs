//! Thin main of `berth-gc`.

use std::process::ExitCode;

use berth_contract::actor::Actor;

fn main() -> ExitCode {
    let name = berth_contract::service::GC;
    berth_service::process::run(name, |_| Actor::service(name), berth_gc::run)
}
