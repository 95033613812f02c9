//! The man pages of all programs.
//!
//! **Owns** the list of programs that have a page, and the section of each page.
//!
//! **Promises** that a page says what `--help` says: both come from the same definition.
//!
//! **Never** starts a program.

use std::fs;
use std::io;
use std::path::Path;

use berth_cli::args::Cli;
use berth_contract::service::{
    CLAIM, DOCKER, GC, NODE_AGENT, PLUGIN_REGISTRY, ServiceName, VOLUMEWATCHER,
};
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

/// The services that are programs; an agent also answers as `berth-controller`.
const SERVICES: [ServiceName; 6] = [CLAIM, PLUGIN_REGISTRY, VOLUMEWATCHER, GC, NODE_AGENT, DOCKER];

/// Writes every page into the directory: `berth.1`, one for each of its commands, `berth-claim.8` …
pub fn write_pages(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let for_tests = [berth_csi_dev::cli::command(), berth_csi_proxy::cli::command()];
    for command in [Cli::command()].into_iter().chain(for_tests) {
        clap_mangen::generate_to(command, directory)?;
    }
    for service in SERVICES {
        write_service_page(berth_service::process::command(service), directory)?;
    }
    Ok(())
}

/// Writes the page of a service, which is for administrators: section 8.
fn write_service_page(command: Command, directory: &Path) -> io::Result<()> {
    let file = directory.join(format!("{}.8", command.get_name()));
    let mut page = Vec::new();
    Man::new(command).section("8").render(&mut page)?;
    fs::write(file, page)
}
