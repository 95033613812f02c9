//! `berth bus backup`, `restore` and `accept`

use std::time::Duration;

use berth_bus::restore::{Backups, BegunIncarnation, RestoreError, RestoreStep};
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_service::process::chain;
use tokio::time::Instant;

use crate::args::{BusAccept, BusBackup, BusRestore, Global};
use crate::failure::Failure;
use crate::output::print_note;
use crate::session::Session;
use crate::show;
use crate::wait::print_step;

/// How long the server may take for one step, unless `--timeout` says otherwise.
const STEP_MAX: Duration = Duration::from_secs(60);

/// Writes a backup of every bucket.
pub async fn backup(args: &BusBackup, global: &Global) -> Result<(), Failure> {
    let session = Session::open_within(global, STEP_MAX).await?;
    let began = Instant::now();
    let progress = |bucket: &str| print_step(began, format_args!("backed up {bucket}"));
    let next = "look at the disk and at nats-server; then back up into another directory";
    let backup = session.bus.back_up(&args.dir, progress).await;
    let backup = backup.map_err(|error| explain(&error, "bus.backup", next))?;
    session.output.reply(&backup, |backup| show::backed_up(backup, &args.dir));
    Ok(())
}

/// Replaces buckets by their backups, after it was confirmed.
pub async fn restore(args: &BusRestore, global: &Global) -> Result<(), Failure> {
    let mut backups = Backups::read(&args.dir).await.map_err(|error| {
        Failure::local(chain(&error), "name the directory of `berth bus backup`")
    })?;
    if !args.buckets.is_empty() {
        backups.retain(|bucket| args.buckets.iter().any(|wanted| wanted == bucket));
    }
    let backed_up: Vec<_> = backups.buckets().collect();
    let absent = args.buckets.iter().find(|wanted| !backed_up.iter().any(|(one, _)| one == wanted));
    let (dir, none) = (args.dir.display(), backed_up.is_empty());
    if let Some(bucket) = absent.map(String::as_str).or(none.then_some("any bucket")) {
        let message = format_args!("{dir} has no backup of {bucket}");
        return Err(Failure::usage(message, "name the directory of `berth bus backup`"));
    }
    if !args.yes {
        let revisions =
            backed_up.iter().map(|(bucket, last)| format!("{bucket} (to revision {last})"));
        let revisions = revisions.collect::<Vec<_>>().join(", ");
        return Err(Failure::usage(
            format_args!(
                "this replaces {revisions}; what was written to them since the backup is lost. \
                 Meanwhile every request is answered BERTH0011, and workloads keep their mounts"
            ),
            "make sure that the backup is the right one, then say it again with --yes",
        ));
    }
    let session = Session::open_within(global, STEP_MAX).await?;
    let start = Instant::now();
    let progress = |step: RestoreStep| print_step(start, show::restore_step(&step));
    let next = "repeat the command: it finishes, and nobody serves the buckets before";
    let begun = session.bus.restore_buckets(&backups, progress).await;
    let begun = begun.map_err(|error| explain(&error, "bus.restore", next))?;
    session.output.reply(&begun, |begun| show::begun(begun));
    print_note("look at `berth claim status` and `berth node status` before workloads start");
    Ok(())
}

/// Accepts buckets as they are, after it was confirmed.
pub async fn accept(args: &BusAccept, global: &Global) -> Result<(), Failure> {
    if !args.yes {
        let buckets = args.buckets.join(", ");
        return Err(Failure::usage(
            format_args!(
                "with this you say: the records that {buckets} has now are to be used, and what \
                 else services knew is lost"
            ),
            "restore a backup instead with `berth bus restore DIR`, or say it again with --yes",
        ));
    }
    let session = Session::open_within(global, STEP_MAX).await?;
    let mut begun: Vec<BegunIncarnation> = Vec::new();
    for bucket in &args.buckets {
        let next = "repeat the command: it finishes, and nobody serves the bucket before";
        let incarnation = session.bus.accept_bucket(bucket).await;
        begun.push(incarnation.map_err(|error| explain(&error, "bus.accept", next))?);
    }
    session.output.reply(&begun, |begun| show::begun(begun));
    Ok(())
}

fn explain(error: &RestoreError, step: &str, next: &'static str) -> Problem {
    Problem::new(Code::BusUnavailable, chain(error)).at_step(step).next(next)
}
