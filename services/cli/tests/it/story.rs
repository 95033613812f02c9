//! Events of claims, as the services publish them.

use berth_contract::code::Code;
use berth_contract::event::{Event, EventName as E, PluginCall};
use berth_contract::message::claim::ClaimStatus;
use berth_contract::service::{CLAIM, NODE_AGENT};
use berth_domain::volume::State;
use berth_domain::{AllocId, AttemptId, Namespace, NodeId, PluginId, Timestamp};

use crate::data::{self, volume_id};

/// 12:00:00 of some day; the stories below count milliseconds from then.
pub const NOON: u64 = 1_795_262_400_000;

pub fn at(ms: u64) -> Timestamp {
    Timestamp::from_unix_ms(NOON + ms)
}

pub fn trace(digit: char) -> String {
    digit.to_string().repeat(32)
}

/// Builds the events of a claim of alloc `web-1` on volume `data` for node `n1`.
#[derive(Debug, Clone)]
pub struct Story {
    pub events: Vec<Event>,
    pub volume: &'static str,
    pub claim: char,
    pub release: char,
    releasing: bool,
}

impl Story {
    pub fn new() -> Self {
        let (claim, release) = ('a', 'b');
        Self { events: Vec::new(), volume: "data", claim, release, releasing: false }
    }

    /// Continues with another claim.
    pub fn again(mut self, claim: char, release: char) -> Self {
        (self.claim, self.release, self.releasing) = (claim, release, false);
        self
    }

    fn add(&mut self, event: Event) -> &mut Event {
        self.events.push(event);
        self.events.last_mut().unwrap()
    }

    /// A claim of the alloc is refused, in a trace of its own.
    pub fn refused(mut self, ms: u64, digit: char) -> Self {
        let event = Event {
            volume: Some(volume_id(self.volume)),
            step: Some("claim.take".to_owned()),
            code: Some(Code::Held),
            detail: Some("the volume is held by web-0 on n2 [node n2]".to_owned()),
            trace: Some(trace(digit)),
            ..about(E::RequestRefused, ms)
        };
        self.add(event);
        self
    }

    /// An event of the alloc.
    pub fn alloc(mut self, ms: u64, name: E) -> Self {
        let trace = Some(trace(if name == E::AllocRegistered { self.claim } else { 'f' }));
        let event = Event { trace, ..about(name, ms) };
        self.add(event);
        self
    }

    /// A change of the claim's record.
    pub fn record(mut self, ms: u64, name: E, change: impl FnOnce(&mut Event)) -> Self {
        let of_release = [E::ClaimUnpublishing, E::ClaimNodeDetached, E::ClaimFreed];
        self.releasing |= of_release.contains(&name);
        let now = trace(if self.releasing { self.release } else { self.claim });
        let mut event = Event {
            volume: Some(volume_id(self.volume)),
            trace: Some(now),
            claim_trace: self.releasing.then(|| trace(self.claim)),
            ..about(name, ms)
        };
        change(&mut event);
        self.add(event);
        self
    }

    /// An attempt is recorded.
    pub fn begin(self, ms: u64, name: E, id: &str, call: &str, worker: &str) -> Self {
        let detail = format!("{call} by {worker}");
        self.record(ms, name, |event| {
            event.attempt = Some(attempt(id));
            event.detail = Some(detail);
        })
    }

    /// The attempt failed.
    pub fn fail(self, ms: u64, id: &str, took_ms: u64, error: &str) -> Self {
        self.record(ms, E::ClaimFailed, |event| {
            event.attempt = Some(attempt(id));
            event.took_us = Some(took_ms * 1000);
            event.detail = Some(error.to_owned());
        })
    }

    /// An agent made the call.
    pub fn call(mut self, ms: u64, id: &str, call: &str, node: &str, rpcs: &[Rpc<'_>]) -> Self {
        let error = rpcs.iter().find(|rpc| rpc.3 != "OK");
        let name = if error.is_some() { E::CallFailed } else { E::CallDone };
        let from = rpcs.first().map_or(ms, |rpc| rpc.1);
        let detail = match error {
            Some((rpc, _, _, code)) => format!("{call}: {rpc} on /run/p.sock: {code}: no"),
            None => call.to_owned(),
        };
        let event = Event {
            volume: Some(volume_id(self.volume)),
            node: Some(NodeId::new(node).unwrap()),
            plugin: Some(PluginId::new("dev.berth").unwrap()),
            detail: Some(detail),
            attempt: Some(attempt(id)),
            took_us: Some((ms - from) * 1000),
            calls: rpcs.iter().map(plugin_call).collect(),
            trace: Some(trace(if self.releasing { self.release } else { self.claim })),
            service: NODE_AGENT.name.to_owned(),
            ..about(name, ms)
        };
        self.add(event);
        self
    }

    /// The node mounted the volume, failed to, or unmounted it.
    pub fn mount(mut self, ms: u64, name: E, took_ms: u64, rpcs: &[Rpc<'_>]) -> Self {
        let failed = name == E::VolumeMountFailed;
        let event = Event {
            volume: Some(volume_id(self.volume)),
            plugin: Some(PluginId::new("dev.berth").unwrap()),
            detail: failed.then(|| "NodeStageVolume on /run/p.sock: INTERNAL: no".to_owned()),
            took_us: Some(took_ms * 1000),
            calls: rpcs.iter().map(plugin_call).collect(),
            trace: Some(trace(if self.releasing { self.release } else { self.claim })),
            service: NODE_AGENT.name.to_owned(),
            ..about(name, ms)
        };
        self.add(event);
        self
    }

    /// The volume is attached and the claim granted.
    pub fn granted(self, ms: u64) -> Self {
        let id = format!("1-p{ms:07}");
        self.begin(ms, E::ClaimPublishing, &id, "controller.publish", "claim/h/41")
            .call(
                ms + 21,
                &id,
                "controller.publish",
                "n2",
                &[("ControllerPublishVolume", ms + 1, 19_800, "OK")],
            )
            .record(ms + 24, E::ClaimTaken, |event| event.took_us = Some(24_000))
            .mount(
                ms + 36,
                E::VolumeMounted,
                11,
                &[
                    ("NodeStageVolume", ms + 25, 7_100, "OK"),
                    ("NodePublishVolume", ms + 33, 3_400, "OK"),
                ],
            )
    }

    /// The volume is unmounted and detached.
    pub fn released(self, ms: u64) -> Self {
        let (worker, one, two) =
            ("volumewatcher/h/7", format!("2-d{ms:07}"), format!("3-u{ms:07}"));
        self.alloc(ms, E::AllocComplete)
            .begin(ms + 5, E::ClaimUnpublishing, &one, "agent.detach", worker)
            .mount(ms + 16, E::VolumeUnmounted, 9, &[])
            .call(
                ms + 17,
                &one,
                "agent.detach",
                "n1",
                &[
                    ("NodeUnpublishVolume", ms + 7, 4_000, "OK"),
                    ("NodeUnstageVolume", ms + 11, 4_200, "OK"),
                ],
            )
            .begin(ms + 19, E::ClaimNodeDetached, &two, "controller.unpublish", worker)
            .call(
                ms + 40,
                &two,
                "controller.unpublish",
                "n2",
                &[("ControllerUnpublishVolume", ms + 20, 19_000, "OK")],
            )
            .freed(ms + 42, 37)
    }

    pub fn freed(self, ms: u64, took_ms: u64) -> Self {
        self.record(ms, E::ClaimFreed, |event| {
            event.took_us = Some(took_ms * 1000);
            event.detail = Some("detached from its node and its controller".to_owned());
        })
    }

    /// The record, as it is shown.
    pub fn status(&self, since_ms: u64, state: State) -> ClaimStatus {
        let leaving = matches!(state, State::Unpublishing | State::NodeDetached);
        ClaimStatus {
            volume: volume_id(self.volume),
            state,
            since: at(since_ms),
            trace: Some(trace(if leaving { self.release } else { self.claim })),
            mount: None,
            ..data::taken("web-1")
        }
    }
}

fn about(name: E, ms: u64) -> Event {
    Event {
        namespace: Some(Namespace::default()),
        alloc: Some(AllocId::new("web-1").unwrap()),
        node: Some(NodeId::new("n1").unwrap()),
        ..Event::new(name, at(ms), CLAIM)
    }
}

/// RPC, start in milliseconds, duration in microseconds, code.
pub type Rpc<'a> = (&'a str, u64, u64, &'a str);

fn plugin_call((rpc, ms, took_us, code): &Rpc<'_>) -> PluginCall {
    PluginCall { rpc: (*rpc).to_owned(), at: at(*ms), took_us: *took_us, code: (*code).to_owned() }
}

pub fn attempt(id: &str) -> AttemptId {
    AttemptId::new(id).unwrap()
}
