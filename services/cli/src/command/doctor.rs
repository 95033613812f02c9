//! `berth doctor`

use std::time::Duration;

use berth_contract::code::Code;

use crate::args::{Doctor, Global};
use crate::doctor::{DoctorReport, bus_away, examine, gather};
use crate::failure::Failure;
use crate::output::Output;
use crate::session::Session;
use crate::show;

/// How long the bus may take to connect, unless `--timeout` says otherwise: monitoring waits.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// Checks the whole system and prints the report; returns the exit code.
pub async fn doctor(args: &Doctor, global: &Global) -> Result<u8, Failure> {
    let report = match Session::open_within(global, CONNECT_MAX).await {
        Ok(session) => examine(&Box::pin(gather(&session)).await),
        Err(Failure::Problem(problem)) if problem.code == Code::BusUnavailable => {
            bus_away(&problem)
        }
        Err(failure) => return Err(failure),
    };
    print(args, global, &report);
    Ok(report.verdict.exit())
}

fn print(args: &Doctor, global: &Global, report: &DoctorReport) {
    let output = Output { json: global.json };
    output.reply(report, |report| show::doctor(report, args.quiet));
}
