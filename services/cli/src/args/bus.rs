//! `berth bus …`

use berth_bus::copies::is_copies;
use clap::{Args, Subcommand};

/// `berth bus …`
#[derive(Debug, Subcommand)]
pub enum BusCommand {
    /// Show how many copies each bucket and stream has, and raise the number
    ///
    /// Three servers of a cluster give three copies, five give five, and one gives one. A bucket
    /// that was made before the cluster had all its servers, or that was restored from the backup
    /// of one server, keeps the copies that it was made with: what it holds is lost with one
    /// server. The list shows for each bucket and stream its copies, the wanted number, how many
    /// copies have everything that was acknowledged, and the leader.
    ///
    /// With --raise, buckets and streams with fewer copies than wanted get them, while everything
    /// goes on. The command waits until all copies have everything, 2 minutes at most or for
    /// --timeout. Copies become fewer only with --to.
    ///
    /// Exit code 1 says that a bucket or stream has fewer copies than wanted, or after --raise that
    /// a copy does not have everything yet. Exit code 4 says that the bus does not answer fully.
    #[command(after_long_help = "EXAMPLES
    berth bus copies
    berth bus copies --json | jq '.streams[] | select(.copies < .wanted)'
    berth bus copies --raise
    berth bus copies --raise --to 3 --timeout 10m")]
    Copies(BusCopies),
}

/// `berth bus copies`
#[derive(Debug, Args)]
pub struct BusCopies {
    /// Raise the copies of all buckets and streams to the wanted number, and wait
    #[arg(long)]
    pub raise: bool,
    /// Give all of them exactly so many copies: 1, 3 or 5 [default: by the cluster's size]
    #[arg(long, value_name = "N", requires = "raise", value_parser = number)]
    pub to: Option<u8>,
}

fn number(text: &str) -> Result<u8, String> {
    let number = text.parse().ok().filter(|number| is_copies(*number));
    number.ok_or_else(|| "write 1, 3 or 5".to_owned())
}
