//! `berth why` on real systems with deliberate faults. It names the true cause, the actor, and
//! commands that run as printed.

mod claims;
mod mounts;
mod nodes;
mod outdated;
mod placement;
mod services;

use std::time::Duration;

use berth_contract::verb::{self, Verb as _};
use berth_domain::NodeId;
use berth_harness::process::binary;
use berth_harness::wait;
use berth_integration::System;
use serde_json::{Value, json};

/// How long a cause may take to show.
const SOON: Duration = Duration::from_secs(40);

/// The actor in a finding.
pub const NOBODY: &str = "nobody";
pub const OPERATOR: &str = "plugin-operator";
pub const YOU: &str = "you";

/// Subcommands that change nothing, so that a test can run them as printed.
const READING: [&str; 7] = ["status", "list", "instances", "events", "why", "explain", "placement"];

/// The first screen that `berth why NAME` prints, for programs.
pub async fn why(system: &System, name: &str) -> Result<Value, String> {
    let (code, out) = berth(system, &["--json", "why", name]).await;
    let answer: Value = serde_json::from_str(&out).map_err(|_| format!("{code:?}: {out}"))?;
    match answer["diagnoses"][0].clone() {
        Value::Null => Err(out),
        first => Ok(first),
    }
}

/// Waits until the first screen has this cause, this actor and this sentence, in which `…` matches
/// any text; then runs its next steps.
pub async fn tells(system: &System, name: &str, cause: &str, who: &str, sentence: &str) -> Value {
    // A missing binary is built here, outside the time limit.
    binary("berth");
    let finding = wait::until(&format!("`berth why {name}` shows {cause}"), SOON, async || {
        let finding = why(system, name).await?;
        let actor = match &finding["who"] {
            Value::String(who) => who.clone(),
            other => {
                other.as_object().and_then(|who| who.keys().next()).cloned().unwrap_or_default()
            }
        };
        let matches_all = finding["cause"] == cause
            && actor == who
            && matches(sentence, finding["sentence"].as_str().unwrap_or_default());
        if matches_all { Ok(finding) } else { Err(format!("{finding:#}")) }
    })
    .await;
    for command in finding["next"].as_array().into_iter().flatten() {
        runs(system, command.as_str().unwrap()).await;
    }
    finding
}

/// Whether the text is the pattern, in which `…` matches any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    for part in parts {
        if part.is_empty() {
            return true;
        }
        let Some(start) = rest.find(part) else { return false };
        rest = &rest[start + part.len()..];
    }
    rest.is_empty()
}

/// Runs a printed command if it is a read of `berth`.
async fn runs(system: &System, command: &str) {
    let command = command.split("   #").next().unwrap_or_default();
    let words: Vec<&str> = command.split_whitespace().collect();
    let [first, words @ ..] = &words[..] else { panic!("an empty command") };
    if *first != "berth" || !words.iter().take(2).any(|word| READING.contains(word)) {
        return;
    }
    let (code, out) = berth(system, words).await;
    assert!(matches!(code, Some(0 | 3 | 4)), "{command}: {code:?} {out}");
}

/// Runs `berth` to its end.
pub async fn berth(system: &System, args: &[&str]) -> (Option<i32>, String) {
    let mut command = system.berth();
    command.args(["--nats", &system.url()]).args(args).kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(60), command.output()).await;
    let output = output.unwrap().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Sends a node's agent one mount request without a retry. The claim may wait in the queue.
async fn ask_to_mount(system: &System, alloc: &str, node: usize, volume: &str) {
    system.alloc(alloc, node, volume, false).await;
    let id = NodeId::new(format!("n{}", node + 1)).unwrap();
    let body = json!({"namespace": "default", "alloc": alloc, "volume": volume, "wait": true});
    let mounted: Result<Value, _> = system
        .ask(&verb::AgentMount::subject(&verb::NodeAndNamespace::any_of(id.clone())), &body)
        .await;
    assert!(mounted.is_err(), "{mounted:?}");
}
