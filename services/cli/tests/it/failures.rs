//! Failures in text and in JSON.

use berth_cli::failure::Failure;
use berth_contract::code::Code;
use berth_contract::decode::Fault;
use berth_contract::problem::Problem;

fn golden(failure: &Failure) -> String {
    format!("{failure}\n(exit code {})\n\n{:#}", failure.exit(), failure.json())
}

#[test]
fn a_refusal_names_the_holder_and_what_to_try() {
    let message = "the volume is held by alloc web-1 on node n1 (write, taken since \
        2026-11-21T07:00:00.000Z); its access mode allows one claim at a time";
    let problem = Problem::new(Code::Held, message)
        .at_step("claim.take")
        .volume("default/data")
        .plugin("dev.berth")
        .node("n2")
        .trace("0af7651916cd43dd8448eb211c80319c");
    insta::assert_snapshot!(golden(&problem.into()));
}

#[test]
fn faults_of_a_document_stand_at_their_lines() {
    let fault = |path: &str, problem: &str, line| Fault {
        path: path.to_owned(),
        problem: problem.to_owned(),
        line,
    };
    let faults = vec![
        fault("capability[0].access", "is not known here", Some(12)),
        fault("plugin", "is missing", None),
        fault("", "is not TOML: unclosed string", Some(1)),
    ];
    let next = "mend what is listed; `berth volume init -` prints an example".to_owned();
    let failure = Failure::Document { name: "data.toml".to_owned(), faults, next };
    insta::assert_snapshot!(golden(&failure));
}

#[test]
fn failures_on_this_machine_name_a_remedy() {
    let failure = Failure::local("no nats-server 2.12.3 or newer", "one of these:\nthis\nthat");
    insta::assert_snapshot!(golden(&failure));
}
