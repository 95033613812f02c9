//! `berth bus …`

use std::path::PathBuf;

use berth_bus::copies::is_copies;
use berth_contract::bucket::{ALL, BUCKETS};
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
    /// Back up every bucket
    ///
    /// Writes one directory for each bucket below DIR. Services may run meanwhile. DIR must not
    /// hold a backup yet. The stock `nats` CLI reads and writes the same files.
    ///
    /// The key file of berth-claim (`secrets.key_file`) is no part of it: keep that, too.
    #[command(after_long_help = "EXAMPLES
    berth bus backup /var/backups/berth/2026-01-31")]
    Backup(BusBackup),
    /// Replace buckets by their backups
    ///
    /// Without --yes it says what it would replace. Services may run: from the first step to the
    /// last they answer BERTH0011 to every request. Then they forget what they knew, read the
    /// restored buckets, and go on. Workloads keep their mounts.
    ///
    /// What happened after the backup is not in it. Mounts whose claims are missing are reported by
    /// the agents; until every node has reported, no volume is granted exclusively.
    ///
    /// A command that was interrupted leaves buckets that nobody serves. Repeat it with the same
    /// DIR: it finishes. Do not restore buckets with another tool: services refuse those until
    /// somebody says `berth bus accept`.
    #[command(after_long_help = "EXAMPLES
    berth bus restore /var/backups/berth/2026-01-31
    berth bus restore /var/backups/berth/2026-01-31 --yes
    berth bus restore /var/backups/berth/2026-01-31 berth-volumes berth-allocs --yes")]
    Restore(BusRestore),
    /// Accept a bucket as it is, after another tool restored it or set it back
    ///
    /// Services that knew a bucket answer BERTH0011 when its stream lacks what they saw in it. With
    /// this you say that the records that are there now are to be used. Without --yes it says what
    /// that means.
    #[command(after_long_help = "EXAMPLES
    berth bus accept berth-volumes
    berth bus accept berth-volumes berth-allocs --yes")]
    Accept(BusAccept),
}

/// `berth bus backup`
#[derive(Debug, Args)]
pub struct BusBackup {
    /// Where the backup is written
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// `berth bus restore`
#[derive(Debug, Args)]
pub struct BusRestore {
    /// The backup
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Only these buckets [default: all that are in the backup]
    #[arg(value_name = "BUCKET", value_parser = bucket)]
    pub buckets: Vec<String>,
    /// Replace them
    #[arg(long)]
    pub yes: bool,
}

/// `berth bus accept`
#[derive(Debug, Args)]
pub struct BusAccept {
    /// The buckets
    #[arg(value_name = "BUCKET", required = true, value_parser = bucket)]
    pub buckets: Vec<String>,
    /// Accept them
    #[arg(long)]
    pub yes: bool,
}

fn bucket(text: &str) -> Result<String, String> {
    let bucket_names = ALL.iter().chain([&BUCKETS]).map(|spec| spec.name);
    let names: Vec<&str> = bucket_names.collect();
    if names.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!("the buckets are {}", names.join(", ")))
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
