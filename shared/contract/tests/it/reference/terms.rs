//! What holds for every message: encoding, headers, errors; and the list of error codes.

use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::service::CLAIM;
use berth_contract::verb::COMMON_ERRORS;
use berth_contract::{header, token};
use berth_domain::limits;

use super::lists;
use super::page::{Page, linked};
use crate::sample;

/// Ids that show each rule of the encoding.
const IDS: [&str; 7] = ["n1", "web-1", "team_a/b", "ebs.csi.aws.com", "team a", "data[0]", "é"];

pub fn write(page: &mut Page) {
    page.say("# The contract");
    page.say(
        "Everything that Berth's processes send to each other and store on the bus: subjects, \
         messages, buckets, keys, records, events and error codes. It is for authors of clients: \
         a client that keeps to these pages can do all that `berth` does. `tests/peers/nats_py` \
         is one. The pages are made from `shared/contract`. [inspect.md](inspect.md) says how to \
         look at a running system, and [nomad.md](nomad.md) where Berth differs from Nomad on \
         purpose.",
    );
    page.say(
        "This page has the rules and the tables. Two files beside it are for programs: \
         [contract.schema.json](contract.schema.json) is the JSON Schema (2020-12) of every \
         message, record and event, with each field's meaning, kind and bounds, whether it may be \
         absent, and an example; [asyncapi.json](asyncapi.json) is an AsyncAPI 3.0 document of \
         every subject, header, key and stream, which refers to these definitions.",
    );
    page.say("## Terms");
    page.say("### Ids in subjects and keys");
    page.say(format!(
        "An id is text of 1 to {} bytes without control characters, compared byte by byte. In a \
         subject or key an id is one token. ASCII letters, digits, `-`, `_` and `/` stand for \
         themselves. Every other byte of its UTF-8 is written as `=` and two upper-case hex \
         digits. Each id has one token only: `=41` for `A` is refused.",
        limits::ID_BYTES_MAX
    ));
    let rows: Vec<[String; 2]> =
        IDS.iter().map(|id| [format!("`{id}`"), format!("`{}`", token::encode(id))]).collect();
    page.table(["id", "token"], &rows);
    page.say(
        "`<ns>`, `<vol>`, `<alloc>`, `<node>`, `<plugin>`, `<snapshot>` and `<class>` below are \
         such tokens. A client that names no namespace means `default`.",
    );
    page.say("### Who sends");
    page.say(
        "The subject of every request and of every event ends in two tokens that name its sender, \
         `<actor>` below: a kind and a name.",
    );
    page.table(["actor", "who it is"], &actors());
    page.say(
        "nats-server lets an identity send only to subjects that end in its own actor, if it was \
         set up by [access.md](access.md). On a server without access control the actor is what \
         the client says of itself, and a service refuses no more than an actor that acts for \
         another node than its own. Services listen, and clients subscribe, at `*.*` in its \
         place. A request to the subject as `nats micro info` lists it, with the wildcards, is \
         answered, too: that is where `nats micro req` sends.",
    );
    page.say("### Messages");
    page.say(format!(
        "A message is a JSON object of at most {} KiB. The body may be empty where no field is \
         required. `null` means absent. A `time` is RFC 3339 in UTC with milliseconds, \
         `2026-01-31T12:00:00.000Z`. A size in a request is a whole number of bytes, or a text \
         with a unit: `\"10GiB\"`, `\"500MB\"`; a unit of one letter is binary, `\"10G\"`. Replies \
         and records have sizes in bytes. Every request is idempotent: a client that got no reply \
         sends it again.",
        limits::MESSAGE_BYTES_MAX >> 10
    ));
    page.say(format!(
        "A request that changes something is refused if it has a field that the service does not \
         know. The error is {}, with the path of each such field, and nothing is written. Other \
         requests ignore unknown fields: those that only read, and those between Berth's own \
         processes, whose versions differ during an upgrade. Clients ignore unknown fields of \
         replies. The contract has version {}; each new field of a request raises it. A client \
         may state its version in `{}`. A service that is older than the client then says so, and \
         that the request may be sent again (`retryable`): another replica may be newer.",
        Code::BadInput,
        header::CONTRACT_VERSION,
        header::CONTRACT
    ));
    lists::write(page);
    page.say("### Headers");
    let rows: Vec<[String; 3]> = headers()
        .into_iter()
        .map(|Header { names, on, meaning }| {
            [format!("`{}`", names.join("`, `")), on.join(", "), meaning]
        })
        .collect();
    page.table(["header", "on", "meaning"], &rows);
    page.say("### Errors");
    page.say(
        "A reply is either the result, or `{\"error\": …}` with the two error headers. A request \
         without a reply may or may not have been done. If no service listens, NATS says so at \
         once (no responders): then nothing was done.",
    );
    let common: Vec<&str> = COMMON_ERRORS.iter().copied().map(Code::as_str).collect();
    page.say(format!(
        "Any request may be answered with one of {}. The tables below name the others of each \
         endpoint.",
        common.join(", ")
    ));
    page.say(format!(
        "The error is a {}; its definition has an example of each code. `message` and `next` are \
         for people and may change; programs use `code` and `retryable`. For example, in `error`",
        linked("Problem")
    ));
    page.example("reply-problem");
    page.say("and for bad input, with every fault at once");
    page.example("reply-problem-of-input");
}

/// An actor of each kind.
fn actors() -> [[String; 2]; 4] {
    let row = |actor: Actor, meaning: &str| [format!("`{}`", actor.tokens()), meaning.to_owned()];
    [
        row(Actor::user("alice@example"), "a person or a program"),
        row(Actor::service(CLAIM), "a service without a node of its own, any replica of it"),
        row(Actor::Node(sample::node_id()), "the agent of a node"),
        row(Actor::Docker(sample::node_id()), "Docker's volume plugin on a node"),
    ]
}

/// A header, or several that come together.
pub struct Header {
    pub names: &'static [&'static str],
    /// On which sorts of messages.
    pub on: &'static [&'static str],
    pub meaning: String,
}

/// Every header.
pub fn headers() -> Vec<Header> {
    let header = |names, on, meaning: &str| Header { names, on, meaning: meaning.to_owned() };
    vec![
        header(
            &[header::TRACEPARENT],
            &["requests", "events", "writes"],
            "W3C trace context, `00-<32 hex>-<16 hex>-01`. Optional: if it is absent or \
             malformed, a new trace begins. Its trace id is in records, events and errors.",
        ),
        header(
            &[header::DEADLINE],
            &["requests"],
            &format!(
                "The caller's deadline, in milliseconds since 1970. Optional: {} s after arrival. \
                 After the deadline nothing is done, and the answer is {}.",
                limits::REQUEST_TIMEOUT.as_secs(),
                Code::Late
            ),
        ),
        header(
            &[header::CONTRACT],
            &["requests"],
            "The version of the contract that the caller was written for. Optional: with it, an \
             older service that refuses an unknown field says that a newer replica may take it.",
        ),
        header(
            &["Nats-Service-Error", "Nats-Service-Error-Code"],
            &["replies"],
            "Present if and only if the request was not done: the message in one line, and the \
             code.",
        ),
        header(
            &[header::OPERATION, header::WRITE],
            &["writes"],
            "The operation and the call that wrote to a bucket. The writer recognizes its own \
             write by them. Other clients ignore them.",
        ),
    ]
}

pub fn codes(page: &mut Page) {
    page.say("## Error codes");
    page.say(
        "A code is never reused. \"again\" says whether the same request may succeed later \
         without a change by anybody. Where it is empty, a reply may still have `\"retryable\": \
         true`. \"scheduler\" says what a scheduler does about it ([schedulers](schedulers.md)): \
         `wait`, go `elsewhere`, `never` ask so again, or `unknown`, when it may have been done; a \
         reply with `\"retryable\": true` turns `never` into `wait`. `berth explain CODE` shows \
         the same.",
    );
    let rows: Vec<[String; 5]> = Code::ALL
        .iter()
        .map(|code| {
            let again = if code.retryable() { "yes" } else { "" };
            let (title, next) = (code.title().to_owned(), code.next().to_owned());
            let advice = code.advice().to_string();
            [format!("`{code}`"), again.to_owned(), advice, title, next]
        })
        .collect();
    let head = ["code", "again", "scheduler", "what it means", "what to try next"];
    page.table(head, &rows);
}
