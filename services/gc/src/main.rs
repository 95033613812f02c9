//! Thin main of `berth-gc`.

use std::process::ExitCode;

use berth_contract::role::Role;

fn main() -> ExitCode {
    let name = berth_contract::service::GC;
    berth_service::process::run(name, |_| Role::Gc, berth_gc::run)
}
