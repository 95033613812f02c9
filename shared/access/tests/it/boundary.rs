//! Every role at every subject of the contract, on a real server: what the design allows works, and
//! the server refuses everything else.
//!
//! The expectations are written in the words of the design ([`design`]), without the code that
//! derives permissions.

mod attempts;
mod design;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use berth_access::{LocalFleet, Role};
use berth_harness::nats::{NatsOptions, NatsServers};

use crate::client::{Client, Dial};
use attempts::{Act, Attempt};
use design::{Kind, Who};

/// Most lines that are sent before the server's refusals are read: they must fit into its buffers.
const BATCH: usize = 200;

#[tokio::test]
async fn every_role_may_do_what_the_design_says_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = LocalFleet::create(&dir.path().join("access"), &["berth"]).unwrap();
    let extra = &fleet.server_config("berth").unwrap();
    let servers = NatsServers::start_with(1, NatsOptions { extra, ..NatsOptions::default() }).await;
    let port = servers.first().port();
    let connect = |role: &Role| {
        let (ca, creds) = (fleet.ca(), fleet.creds(role).unwrap());
        let dial = Dial { port, name: "127.0.0.1", ca: &ca, creds: Some(&creds), token: None };
        Client::connect(dial).unwrap()
    };
    let mut witness = connect(&Role::Admin { name: "witness".to_owned() });
    assert_eq!(witness.exchange("SUB berth.v1.> 1\r\nSUB $KV.> 2\r\n"), [""; 0]);

    let (mut faults, mut total) = (Vec::new(), 0);
    for who in design::everyone() {
        let mut client = connect(&who.role);
        let attempts = attempts::list(who.signature, client.inbox());
        let mut allowed = 0;
        for batch in attempts.chunks(BATCH) {
            let tried = Tried { who: &who, batch };
            allowed += tried.run(&mut client, &mut witness, &mut faults);
        }
        println!("{}: {allowed} of {} allowed", who.role.identity_name(None), attempts.len());
        let is_admin = matches!(who.kind, Kind::Admin);
        assert_eq!(allowed == attempts.len(), is_admin);
        total += attempts.len();
    }
    println!("{total} attempts");
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

/// Some attempts of an identity.
struct Tried<'a> {
    who: &'a Who,
    batch: &'a [Attempt],
}

impl Tried<'_> {
    /// Makes the attempts, and adds each difference from the design to the faults. Returns how many
    /// attempts the server allowed.
    fn run(&self, client: &mut Client, witness: &mut Client, faults: &mut Vec<String>) -> usize {
        let mut lines = String::new();
        for (index, attempt) in self.batch.iter().enumerate() {
            let subject = &attempt.subject;
            // Writing to a String cannot fail.
            let _ = match attempt.act {
                Act::Publish => write!(lines, "PUB {subject} 0\r\n\r\n"),
                Act::Subscribe(None) => {
                    write!(lines, "SUB {subject} {index}\r\nUNSUB {index}\r\n")
                }
                Act::Subscribe(Some(queue)) => {
                    write!(lines, "SUB {subject} {queue} {index}\r\nUNSUB {index}\r\n")
                }
            };
        }
        let answers = client.exchange(&lines);
        let refused: BTreeSet<&str> =
            answers.iter().filter_map(|line| read_refusal(line)).collect();
        let other =
            answers.iter().find(|line| line.starts_with("-ERR") && read_refusal(line).is_none());
        assert_eq!(other, None, "the server said something else");
        // The server delivers a message before it answers its publisher's PING.
        let heard = witness.exchange("");
        let heard: BTreeSet<&str> =
            heard.iter().filter_map(|line| line.strip_prefix("MSG ")?.split(' ').next()).collect();

        let name = self.who.role.identity_name(None);
        let mut allowed = 0;
        for attempt in self.batch {
            let was_refused = refused.contains(format_refusal(attempt).as_str());
            let expected = design::allows(self.who, &attempt.meaning);
            if was_refused == expected {
                let verdict = if was_refused { "refused" } else { "allowed" };
                faults.push(format!("{name}: {verdict} {:?} {}", attempt.act, attempt.subject));
            }
            let subject = attempt.subject.as_str();
            let is_witnessed = subject.starts_with("berth.v1.") || subject.starts_with("$KV.");
            if attempt.act == Act::Publish && is_witnessed && heard.contains(subject) == was_refused
            {
                faults.push(format!("{name}: refused {was_refused}, and yet {subject} was heard"));
            }
            allowed += usize::from(!was_refused);
        }
        allowed
    }
}

/// The server's text when it refuses this attempt.
fn format_refusal(attempt: &Attempt) -> String {
    let subject = &attempt.subject;
    match attempt.act {
        Act::Publish => format!("Publish to \"{subject}\""),
        Act::Subscribe(None) => format!("Subscription to \"{subject}\""),
        Act::Subscribe(Some(queue)) => {
            format!("Subscription to \"{subject}\" using queue \"{queue}\"")
        }
    }
}

fn read_refusal(line: &str) -> Option<&str> {
    line.strip_prefix("-ERR 'Permissions Violation for ")?.strip_suffix('\'')
}
