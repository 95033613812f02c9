//! `berth-manual DIRECTORY`: writes the man pages into the directory.

use std::io;
use std::path::PathBuf;

use clap::Parser;

/// Write the man pages of all programs
#[derive(Debug, Parser)]
#[command(name = "berth-manual")]
struct Arguments {
    /// Where to write them; made when missing
    directory: PathBuf,
}

fn main() -> io::Result<()> {
    berth_version::declare(berth_version::of_build!());
    berth_manual::write_pages(&Arguments::parse().directory)
}
