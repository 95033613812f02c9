//! Services and their endpoints.

use berth_contract::code::Code;
use berth_contract::service;
use berth_contract::verb::{self, Effect, Row};

use super::page::{Page, golden_file, linked};

pub fn write(page: &mut Page) {
    page.say("## Services");
    page.say(
        "Each is a NATS micro service: `nats micro ls`, `nats micro info berth-claim`, `nats micro \
         stats berth-claim`. The `data` of an endpoint's statistics says how many requests are \
         under way (`in_flight` of `max_in_flight`), how many wait for a turn or a change \
         (`waiting`, of as many), which sender has the most (`busiest`, of `max_per_sender`), and \
         how many were answered with which error code (`errors`). Answers that only say to wait \
         (BERTH0107, BERTH0108, BERTH0114, BERTH0116) are no errors: `waits` counts them. An \
         instance's id begins with its node and plugin, or with its worker, as its metadata names \
         them.",
    );
    page.say(
        "A request works for its caller until its deadline, and for 300 s at most. One that waits \
         for others, for a claim's turn or a newer index, is held for 15 s at most and then \
         answered with how it is: who still waits asks again, because the bus does not say that a \
         caller has gone. One sender has a quarter of the places of an endpoint; beyond that, and \
         where all are taken, the answer is BERTH0008.",
    );
    page.say(
        "Each endpoint is of one kind. A `read` changes nothing. A `change` changes something. A \
         `brief change` changes records and calls no plugin, so it is answered within moments. A \
         `report` says how its sender is, and is taken after its deadline, too. A change that a \
         person or a program may send is refused for an unknown field; in all others unknown \
         fields are ignored.",
    );
    page.say(
        "\"sent by\" names the capabilities of people and programs that allow it, and the services \
         that send it. [access.md](access.md) says how they are given.",
    );
    page.say(
        "Request and reply are definitions in [contract.schema.json](contract.schema.json): every \
         field, and an example. The errors are those of the endpoint's own. Its step in errors and \
         traces is its anchor here with `.` for the first `-`: `claim.take` for \
         [claim-take](#claim-take). [asyncapi.json](asyncapi.json) names the operations by these \
         anchors.",
    );
    for service in service::ALL {
        page.say(format!("### {}", service.name));
        let writes = match service.writes().join("`, `") {
            none if none.is_empty() => "nothing".to_owned(),
            some => format!("`{some}`"),
        };
        page.say(format!("{}. Writes: {writes}.", service.description));
        let endpoints = verb::ALL.iter().filter(|one| one.service == service);
        let rows: Vec<[String; 8]> = endpoints.map(row).collect();
        if rows.is_empty() {
            page.say("It answers no requests but those of `nats micro`.");
            continue;
        }
        page.table(
            [
                "endpoint",
                "subject",
                "what it does",
                "kind",
                "sent by",
                "request",
                "reply",
                "errors",
            ],
            &rows,
        );
    }
    example(page);
}

/// One endpoint, with the anchor that `nats micro info` names.
fn row(one: &Row) -> [String; 8] {
    assert_eq!(one.anchor().replacen('-', ".", 1), one.step, "the page says so");
    let errors: Vec<&str> = one.errors().map(Code::as_str).collect();
    [
        format!("<a id=\"{}\"></a>{}", one.anchor(), one.endpoint),
        format!("`{}.<actor>`", one.subject),
        one.description.to_owned(),
        kind(one).to_owned(),
        one.senders_in_words(),
        linked(one.request),
        linked(one.reply),
        errors.join(", "),
    ]
}

/// What it does to the records, as the page explains it.
pub const fn kind(one: &Row) -> &'static str {
    match one.effect {
        Effect::Read => "read",
        Effect::Change => "change",
        Effect::BriefChange => "brief change",
        Effect::Report => "report",
    }
}

/// One request and its reply, whole.
fn example(page: &mut Page) {
    page.say("### An example");
    page.say(
        "Examples, here and in the schema, show every field that there may be. A claim is taken by \
         a request to `berth.v1.claim.take.team=20a.node.host=2Eexample` with the headers \
         `traceparent` and `Berth-Deadline`, and",
    );
    page.example("request-claim-take");
    page.say("The grant says what the node needs:");
    page.example("reply-claim-take");
    page.say(
        "Were the volume held by others, the reply would be the problem [above](#errors), in \
         `error`.",
    );
}

/// The golden file that shows a message: of its endpoint, or of its type if several share it.
pub fn golden(message: &str, direction: &str, one: &Row) -> String {
    let of_anchor = |anchor: &str| format!("{direction}-{anchor}");
    let own = of_anchor(&one.anchor());
    let of_pair = of_anchor(one.anchor().trim_end_matches("-on-node"));
    if let Some(found) = [&own, &of_pair].into_iter().find(|name| golden_file(name).is_some()) {
        return found.clone();
    }
    match message {
        "call::Called" => "reply-call".to_owned(),
        "alloc::AllocStatus" => "reply-alloc-status".to_owned(),
        _ => own,
    }
}
