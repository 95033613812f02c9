//! Thin main of `berth-gc`.

use std::process::ExitCode;

use berth_contract::role::Role;

fn main() -> ExitCode {
    berth_version::declare(berth_version::of_build!());
    let name = berth_contract::service::GC;
    berth_service::process::run(name, |_| Role::Gc, berth_gc::run)
}
