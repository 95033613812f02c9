//! `berth bus …`

use std::time::Duration;

use berth_bus::Copies;
use berth_bus::replication::{CopiesReport, StreamCopies};
use tokio::time::Instant;

use crate::args::{BusCopies, Global};
use crate::exit;
use crate::failure::Failure;
use crate::output::print_note;
use crate::session::Session;
use crate::show;
use crate::wait::print_step;

/// How long `--raise` waits for the new copies, unless `--timeout` says otherwise.
const RAISE_WITHIN: Duration = Duration::from_secs(120);

/// Prints the copies of each bucket and stream, after it raised them; returns the exit code.
pub async fn copies(args: &BusCopies, global: &Global) -> Result<u8, Failure> {
    let session = Session::open(global).await?;
    let report = if args.raise {
        let within = session.timeout.unwrap_or(RAISE_WITHIN);
        let began = Instant::now();
        let progress = |report: &CopiesReport| print_step(began, show::copies_progress(report));
        session.bus.raise_copies(args.to, within, progress).await
    } else {
        session.bus.copies(Copies::ByCluster).await
    };
    session.output.reply(&report, show::copies);
    if !report.servers.iter().any(|server| server.answers) {
        print_note(
            "no server said that it is there, so there may be more than are known; this user needs \
             the permission to publish to $SYS.REQ.ACCOUNT.PING.STATZ",
        );
    } else if !args.raise && report.short().any(|stream| stream.copies.is_some()) {
        print_note("to give them their copies: berth bus copies --raise");
    }
    Ok(exit_code(&report, args.raise))
}

fn exit_code(report: &CopiesReport, raised: bool) -> u8 {
    let mut streams = report.streams.iter();
    if report.short().any(|stream| stream.copies.is_some()) {
        exit::FAILED
    } else if streams.any(|stream| stream.copies.is_none())
        || !report.servers.iter().any(|server| server.answers)
    {
        exit::UNAVAILABLE
    } else if raised && !report.streams.iter().all(StreamCopies::is_settled) {
        exit::FAILED
    } else {
        exit::OK
    }
}
