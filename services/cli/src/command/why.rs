//! `berth why`

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_service::clock;

use crate::args::{Global, Why};
use crate::exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::session::Session;
use crate::show;
use crate::why::gather;
use berth_explain::{Cause, Diagnoses, bus_away, diagnose, names};

/// Prints the findings for everything with this name; returns the exit code.
pub async fn why(args: &Why, global: &Global) -> Result<u8, Failure> {
    let output = Output { json: global.json };
    let session = match Session::open(global).await {
        Ok(session) => session,
        Err(Failure::Problem(problem)) if problem.code == Code::BusUnavailable => {
            let answer = Diagnoses { diagnoses: vec![bus_away(&args.name, &problem)] };
            output.reply(&answer, |answer| show::why(answer, clock::now()));
            return Ok(exit::UNAVAILABLE);
        }
        Err(failure) => return Err(failure),
    };
    let facts = gather(&session, names(&args.name)).await;
    let answer = Diagnoses { diagnoses: diagnose(&facts) };
    let Some(first) = answer.diagnoses.first() else { return Err(unknown(args, &session).into()) };
    let away = [Cause::BusAway, Cause::ServiceAway].contains(&first.finding.cause);
    output.reply(&answer, |answer| show::why(answer, facts.now));
    Ok(if away { exit::UNAVAILABLE } else { exit::OK })
}

fn unknown(args: &Why, session: &Session) -> Problem {
    let (name, namespace) = (&args.name, &session.namespace);
    let message = format!(
        "no volume, alloc or snapshot in namespace {namespace}, no node and no plugin is called \
         {name:?}"
    );
    Problem::new(Code::NoSuchVolume, message).at_step("why").next(
        "list what there is with `berth volume list`, `berth alloc list --all`, `berth node list` \
         and `berth plugin list`; is it another --namespace?",
    )
}
