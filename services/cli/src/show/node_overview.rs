//! The state of a node: by its agent, and by the claims.

use std::collections::{BTreeMap, BTreeSet};

use berth_contract::message::agent::{AgentStatus, MountHealth, MountStatus, WorkStatus};
use berth_contract::message::claim::ClaimStatus;
use berth_contract::message::registry::NodeStatus;
use berth_contract::record::UnreadableRecord;
use berth_domain::Timestamp;
use berth_domain::volume::{MountSummary, State};
use serde::Serialize;

use super::list::list;
use super::{ClaimKey, mounted_as, registry, within};
use crate::span::{ago, until};
use crate::table::{Table, plain};
use berth_explain::next;

/// The facts of a node. As JSON: the node's record, with the other facts beside it.
#[derive(Debug, Serialize)]
pub struct NodeOverview {
    /// The registry's record.
    #[serde(flatten)]
    pub node: NodeStatus,
    /// The agent's status; none when the agent did not answer.
    pub agent: Option<AgentStatus>,
    /// The agent's error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_error: Option<String>,
    /// Every claim for the node; none when the claim service did not answer.
    pub claims: Option<Vec<ClaimStatus>>,
    /// Records of the node and of claims that cannot be read: a claim among them may be the node's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableRecord>,
}

/// One node, with what is on it.
pub fn node_overview(overview: &NodeOverview, now: Timestamp) -> String {
    let claims = overview.claims.as_deref().unwrap_or_default();
    let claimed: BTreeMap<ClaimKey<'_>, &ClaimStatus> = claims
        .iter()
        .map(|claim| ((&claim.namespace, &claim.volume, &claim.alloc), claim))
        .collect();
    let mut parts = vec![registry::node(&overview.node, now)];
    match &overview.agent {
        Some(agent) => parts.extend(agent_parts(agent, &claimed, overview.claims.is_some(), now)),
        None => parts.push(format!(
            "what is mounted is not known: {}\n",
            plain(overview.agent_error.as_deref().unwrap_or("its agent was not asked"))
        )),
    }
    let mounted = |claim: &&ClaimStatus| {
        let mounts = overview.agent.iter().flat_map(|agent| &agent.mounts);
        mounts.into_iter().any(|mount| key(mount) == claim_key(claim))
    };
    let others: Vec<ClaimStatus> = claims.iter().filter(|claim| !mounted(claim)).cloned().collect();
    if overview.claims.is_none() {
        parts.push("the claims of the node are not known: nobody answers for them\n".to_owned());
    } else if !others.is_empty() {
        let heading = match overview.agent {
            _ if overview.node.gone.is_some() => registry::CLAIMS_LEFT,
            Some(_) => "claimed, and not mounted:",
            None => "claimed; whether they are mounted is not known:",
        };
        parts.push(format!("{heading}\n{}", list(&others, None, now)));
    }
    parts.join("\n")
}

fn key(mount: &MountStatus) -> ClaimKey<'_> {
    (&mount.namespace, &mount.volume, &mount.alloc)
}

fn work_key(work: &WorkStatus) -> ClaimKey<'_> {
    (&work.namespace, &work.volume, &work.alloc)
}

fn claim_key(claim: &ClaimStatus) -> ClaimKey<'_> {
    (&claim.namespace, &claim.volume, &claim.alloc)
}

fn agent_parts(
    agent: &AgentStatus,
    claims: &BTreeMap<ClaimKey<'_>, &ClaimStatus>,
    claims_known: bool,
    now: Timestamp,
) -> Vec<String> {
    let mut parts = Vec::new();
    let name = within(agent.mounts.iter().map(|mount| &mount.namespace));
    if agent.mounts.is_empty() {
        parts.push("nothing is mounted\n".to_owned());
    } else {
        let mut table =
            Table::new(["VOLUME", "ALLOC", "STATE", "SINCE", "HEALTH", "CLAIM", "PATH"]);
        for mount in &agent.mounts {
            let claim = claims.get(&key(mount));
            table.row([
                name(&mount.namespace, &mount.volume),
                mount.alloc.to_string(),
                word(&mount.state),
                ago(mount.since, now),
                health(mount),
                match claim {
                    Some(claim) => claim.state.to_string(),
                    None if claims_known => "none".to_owned(),
                    None => "unknown".to_owned(),
                },
                mount.path.clone(),
            ]);
        }
        let notes = agent.mounts.iter().filter_map(|mount| {
            notes(agent, mount, claims.get(&key(mount)).copied(), claims_known, now)
        });
        parts.push(format!("{table}{}", notes.collect::<String>()));
    }
    let mounts: BTreeSet<ClaimKey<'_>> = agent.mounts.iter().map(key).collect();
    let elsewhere = |work: &&WorkStatus| !mounts.contains(&work_key(work));
    let work: Vec<String> = agent
        .work
        .iter()
        .filter(elsewhere)
        .map(|work| format!("  {} on {}: {}\n", work.alloc, work.volume, under_way(work, now)))
        .collect();
    if !work.is_empty() {
        parts.push(format!("under way for what is not mounted here:\n{}", work.concat()));
    }
    // The guard of a `berth run` is left out: the alloc's note shows it.
    let guards =
        agent.guards.iter().filter(|guard_status| !guard_status.guard.contains("berth run"));
    let guards: Vec<String> = guards
        .map(|guard_status| {
            let lives = match &guard_status.unknown {
                Some(why) => format!("cannot be looked at: {}", plain(why)),
                None if guard_status.lives => "lives".to_owned(),
                None => "has ended".to_owned(),
            };
            let alloc = name(&guard_status.namespace, &guard_status.alloc);
            format!("  {alloc} by {}, which {lives}\n", plain(&guard_status.guard))
        })
        .collect();
    if !guards.is_empty() {
        parts.push(format!("guarded, so that its volumes stay:\n{}", guards.concat()));
    }
    if !agent.strays.is_empty() {
        let strays: Vec<String> =
            agent.strays.iter().map(|path| format!("  {}\n", plain(path))).collect();
        parts.push(format!("mounted, and known to nobody:\n{}", strays.concat()));
    }
    parts
}

/// The mount's health, in a word.
fn health(mount: &MountStatus) -> String {
    match mount.health {
        MountHealth::Unknown if mount.mounted => "mounted".to_owned(),
        MountHealth::Unknown => "not mounted".to_owned(),
        health => word(&health),
    }
}

/// The value's text in the contract.
fn word<T: Serialize>(value: &T) -> String {
    let written = serde_json::to_value(value).ok();
    written.as_ref().and_then(|word| word.as_str()).unwrap_or_default().to_owned()
}

/// Details that do not fit a column.
fn notes(
    agent: &AgentStatus,
    mount: &MountStatus,
    claim: Option<&ClaimStatus>,
    claims_known: bool,
    now: Timestamp,
) -> Option<String> {
    let mut lines: Vec<(&str, String)> = Vec::new();
    if let Some(trouble) = &mount.trouble {
        // A plugin's report about a well mounted volume has no time.
        let since = mount.health_since.filter(|_| mount.health != MountHealth::Well);
        let since = since.map(|since| format!(", for {}", ago(since, now)));
        lines.push(("trouble", format!("{trouble}{}", since.unwrap_or_default())));
    }
    if mount.options.fs_type.is_some() || mount.options.mount_flags > 0 {
        let MountSummary { fs_type, mount_flags, .. } = &mount.options;
        lines.push(("mounted as", mounted_as(fs_type.as_deref(), *mount_flags)));
    }
    for left_out in &mount.left_out {
        lines.push(("not as asked", left_out.clone()));
    }
    if mount.earlier_boot {
        lines.push(("from before", "it was mounted before the host was booted last".to_owned()));
    }
    let of_mount = (&mount.namespace, &mount.volume, &mount.alloc);
    let work = agent.work.iter().filter(|work| work_key(work) == of_mount);
    lines.extend(work.map(|work| ("under way", under_way(work, now))));
    let failed = agent
        .failures
        .iter()
        .find(|failure| (&failure.namespace, &failure.volume, &failure.alloc) == of_mount);
    if let Some(failed) = failed {
        let tries = format!("{} times", failed.tries);
        let attempt = format!("{} failed {tries}, {} ago", failed.step, ago(failed.at, now));
        lines.push(("last here", format!("{attempt}: {}", failed.failure)));
    }
    match claim {
        Some(claim) if claim.state != State::Taken || claim.tries > 0 => {
            let tries =
                format!("{} for {}, {} tries", claim.state, ago(claim.since, now), claim.tries);
            let next = claim.next_try.map(|at| format!(", next {}", until(at, now)));
            lines.push(("its claim", format!("{tries}{}", next.unwrap_or_default())));
            lines.extend(claim.error().map(|error| ("last error", error.to_owned())));
            lines.extend(claim.hint.clone().map(|hint| ("what to do", hint)));
        }
        None if claims_known => {
            let warning = "no claim stands behind this mount: its workload must not write any more";
            lines.push(("unclaimed", warning.to_owned()));
        }
        _ => {}
    }
    if matches!(mount.health, MountHealth::Missing | MountHealth::Dead) && claim.is_some() {
        let republish = next::republish(&mount.volume, &agent.node, &mount.alloc, &mount.namespace);
        lines.push(("bring it back", republish));
    }
    if lines.is_empty() {
        return None;
    }
    let notes: Vec<String> =
        lines.iter().map(|(label, text)| format!("    {label}: {}\n", plain(text))).collect();
    Some(format!("\n  {} on {}\n{}", mount.alloc, mount.volume, notes.concat()))
}

fn under_way(work: &WorkStatus, now: Timestamp) -> String {
    let call = work.rpc.as_ref().map(|rpc| {
        let since = work.rpc_since.map(|since| format!(" for {}", ago(since, now)));
        format!("; {rpc} not answered{}", since.unwrap_or_default())
    });
    let hung = if work.hung { "hung: " } else { "" };
    let since = ago(work.since, now);
    format!("{hung}{} for {since}{}", work.step, call.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn overview() -> NodeOverview {
        let node = json!({
            "id": "n1", "state": "ready", "since": Timestamp::from_unix_ms(1_000),
            "clock_skew_ms": 0, "version": "0.1.0", "boot_id": "b1", "attributes": {},
            "instances": [],
        });
        let mount = |alloc: &str, more: serde_json::Value| {
            let mut mount = json!({
                "namespace": "default", "volume": "data", "alloc": alloc, "epoch": 7,
                "path": format!("/s/{alloc}/target"), "mounted": true, "state": "published",
                "since": Timestamp::from_unix_ms(2_000), "health": "well",
            });
            let (Some(mount_fields), Some(more)) = (mount.as_object_mut(), more.as_object()) else {
                panic!("objects")
            };
            mount_fields.extend(more.clone());
            mount
        };
        let at = Timestamp::from_unix_ms;
        let agent = json!({
            "node": "n1", "boot_id": "b1", "since": at(1_500), "controllers": [],
            "mounts": [
                mount("well", json!({})),
                mount("dead", json!({
                    "fs_type": "ext4", "mount_flags": 1,
                    "health": "dead", "trouble": "Transport endpoint is not connected",
                    "health_since": at(5_000),
                })),
                mount("hung", json!({"state": "leaving", "health": "unknown"})),
                mount("orphan", json!({"earlier_boot": true, "mounted": false,
                    "health": "missing", "trouble": "the host was booted since"})),
            ],
            "strays": ["/s/stray"],
            "guards": [{
                "namespace": "default", "alloc": "dead", "guard": "process 4711", "lives": true,
            }],
            "work": [{
                "namespace": "default", "volume": "data", "alloc": "hung", "step": "agent.detach",
                "since": at(3_000), "rpc": "NodeUnpublishVolume", "rpc_since": at(4_000),
                "hung": true,
            }, {
                "namespace": "default", "volume": "shared", "alloc": "far",
                "step": "controller.publish", "since": at(3_000), "hung": true,
            }],
            "failures": [{
                "namespace": "default", "volume": "data", "alloc": "hung", "step": "agent.detach",
                "tries": 3, "error": "no answer of plugin p yet", "at": at(9_000),
            }],
        });
        let claim = |alloc: &str, state: &str, tries: u32| {
            json!({
                "namespace": "default", "volume": "data", "alloc": alloc, "node": "n1",
                "state": state, "mode": "write", "since": at(2_000), "tries": tries, "epoch": 7,
                "error": (tries > 0).then_some("no answer"),
                "next_try": (tries > 0).then(|| at(14_000)),
            })
        };
        let claims = json!([
            claim("well", "taken", 0),
            claim("dead", "taken", 0),
            claim("hung", "unpublishing", 3),
            claim("new", "publishing", 0),
        ]);
        NodeOverview {
            node: serde_json::from_value(node).unwrap(),
            agent: Some(serde_json::from_value(agent).unwrap()),
            agent_error: None,
            claims: Some(serde_json::from_value(claims).unwrap()),
            unreadable: Vec::new(),
        }
    }

    #[test]
    fn faults_on_a_node_are_shown_with_their_age_and_next_command() {
        let shown = node_overview(&overview(), Timestamp::from_unix_ms(10_000));
        for part in [
            "mounted as: ext4, 1 mount flag\n",
            "trouble: Transport endpoint is not connected, for 5",
            "bring it back: berth volume republish data --node n1 --alloc dead",
            "under way: hung: agent.detach for 7",
            "NodeUnpublishVolume not answered for 6",
            "last here: agent.detach failed 3 times, 1",
            "its claim: unpublishing for 8",
            "next in 4",
            "dead by process 4711, which lives",
            "unclaimed: no claim stands behind this mount",
            "before the host was booted last",
            "known to nobody:\n  /s/stray",
            "not mounted here:\n  far on shared: hung: controller.publish for 7",
            "claimed, and not mounted:",
        ] {
            assert!(shown.contains(part), "{part:?} is not in\n{shown}");
        }
        let well: Vec<&str> = shown.lines().filter(|line| line.contains("well")).collect();
        assert_eq!(well.len(), 1, "nothing more is said of what is well:\n{shown}");
    }

    #[test]
    fn unanswered_facts_are_shown_as_not_known() {
        let overview = NodeOverview {
            agent: None,
            agent_error: Some("no service answers there".to_owned()),
            claims: None,
            ..overview()
        };
        let shown = node_overview(&overview, Timestamp::from_unix_ms(10_000));
        assert!(shown.contains("what is mounted is not known: no service answers"), "{shown}");
        assert!(shown.contains("claims of the node are not known"), "{shown}");
        assert!(!shown.contains("nothing is mounted"), "{shown}");
    }

    #[test]
    fn an_agent_that_is_away_leaves_it_open_what_is_mounted() {
        let agent_error = Some("no service answers there".to_owned());
        let overview = NodeOverview { agent: None, agent_error, ..overview() };
        let shown = node_overview(&overview, Timestamp::from_unix_ms(10_000));
        assert!(shown.contains("claimed; whether they are mounted is not known:"), "{shown}");
        assert!(!shown.contains("not mounted:"), "{shown}");
    }
}
