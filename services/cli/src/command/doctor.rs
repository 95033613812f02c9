//! `berth doctor`

use std::time::Duration;

use berth_contract::code::Code;
use berth_service::clock;

use crate::args::{Doctor, Global};
use crate::doctor::{AccessFacts, DoctorReport, bus_away, examine, gather, gather_access};
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
            bus_away(&problem, &read_access(global).await?, clock::now())
        }
        Err(Failure::Problem(problem)) if problem.code == Code::NotAllowed => {
            let report = bus_away(&problem, &read_access(global).await?, clock::now());
            // Nothing has expired, so the connection is described wrongly.
            if report.checks.len() == 1 {
                return Err(Failure::Problem(problem));
            }
            report
        }
        Err(failure) => return Err(failure),
    };
    print(args, global, &report);
    Ok(report.verdict.exit())
}

/// What can be read without a connection.
async fn read_access(global: &Global) -> Result<AccessFacts, Failure> {
    Ok(gather_access(&Session::describe_bus(global)?).await)
}

fn print(args: &Doctor, global: &Global, report: &DoctorReport) {
    let output = Output { json: global.json };
    output.reply(report, |report| show::doctor(report, args.quiet));
}
