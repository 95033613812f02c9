//! Thin main of `berth-docker`.

use std::collections::BTreeSet;
use std::process::ExitCode;

use berth_contract::role::Role;
use berth_domain::Namespace;

fn main() -> ExitCode {
    berth_version::declare(berth_version::of_build!());
    let name = berth_contract::service::DOCKER;
    // The identity names the namespaces that it serves; at least this one.
    let namespaces = BTreeSet::from([Namespace::default()]);
    let role = move |own: &berth_docker::Config| {
        let (node, namespaces) = (own.node.clone(), namespaces.clone());
        Role::Docker { node, namespaces }
    };
    berth_service::process::run(name, role, berth_docker::run)
}
