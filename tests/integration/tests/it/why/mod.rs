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

/// Commands that change nothing, so that a test can run them as printed.
const LOOKING: [&str; 7] = ["status", "list", "instances", "events", "why", "explain", "placement"];

/// The first screen that `berth why NAME` prints, for programs.
pub async fn why(system: &System, name: &str) -> Result<Value, String> {
    let (code, out) = berth(system, &["--json", "why", name]).await;
    let told: Value = serde_json::from_str(&out).map_err(|_| format!("{code:?}: {out}"))?;
    match told["diagnoses"][0].clone() {
        Value::Null => Err(out),
        first => Ok(first),
    }
}

/// Waits until the first screen has this cause, this actor and this sentence, in which `…` matches
/// any text; then runs its next steps.
pub async fn tells(system: &System, name: &str, cause: &str, who: &str, sentence: &str) -> Value {
    // A missing binary is built here, outside the time limit.
    binary("berth");
    let told = wait::until(&format!("`berth why {name}` tells {cause}"), SOON, async || {
        let told = why(system, name).await?;
        let acts = match &told["who"] {
            Value::String(who) => who.clone(),
            other => {
                other.as_object().and_then(|who| who.keys().next()).cloned().unwrap_or_default()
            }
        };
        let is_so = told["cause"] == cause
            && acts == who
            && matches(sentence, told["sentence"].as_str().unwrap_or_default());
        if is_so { Ok(told) } else { Err(format!("{told:#}")) }
    })
    .await;
    for command in told["next"].as_array().into_iter().flatten() {
        runs(system, command.as_str().unwrap()).await;
    }
    told
}

/// Whether the text is the pattern, in which `…` matches any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    for part in parts {
        if part.is_empty() {
            return true;
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty()
}

/// Runs a printed command if it is a read of `berth`.
async fn runs(system: &System, command: &str) {
    let command = command.split("   #").next().unwrap_or_default();
    let words: Vec<&str> = command.split_whitespace().collect();
    let [first, words @ ..] = &words[..] else { panic!("an empty command") };
    if *first != "berth" || !words.iter().take(2).any(|word| LOOKING.contains(word)) {
        return;
    }
    let (code, out) = berth(system, words).await;
    assert!(matches!(code, Some(0 | 3 | 4)), "{command}: {code:?} {out}");
}

/// Runs `berth` to its end.
pub async fn berth(system: &System, args: &[&str]) -> (Option<i32>, String) {
    let mut command = system.berth();
    command.args(["--nats", &system.url()]).args(args).kill_on_drop(true);
    let ran = tokio::time::timeout(Duration::from_secs(60), command.output()).await;
    let ran = ran.unwrap().unwrap();
    (ran.status.code(), String::from_utf8_lossy(&ran.stdout).into_owned())
}

/// Sends a node's agent one mount request without a retry. The claim may wait in the queue.
async fn ask_to_mount(system: &System, alloc: &str, node: usize, volume: &str) {
    system.alloc(alloc, node, volume, false).await;
    let id = NodeId::new(format!("n{}", node + 1)).unwrap();
    let body = json!({"namespace": "default", "alloc": alloc, "volume": volume, "wait": true});
    let asked: Result<Value, _> = system
        .ask(&verb::AgentMount::subject(&verb::NodeAndNamespace::any_of(id.clone())), &body)
        .await;
    assert!(asked.is_err(), "{asked:?}");
}
