//! What a claim waits for, and what an operator can do about it; pure.

use berth_contract::hint::{host_is_off, namespace_option, volume_argument};
use berth_contract::message::claim::ClaimWait;
use berth_domain::plugin::{Half, Node, NodeState, Plugin};
use berth_domain::proof::ProofKind;
use berth_domain::volume::{CallKind, Claim, State, Volume};
use berth_domain::{AllocId, NodeId, PluginId, Timestamp, VolumeKey};
use berth_service::call::was_not_there;

/// Claims ahead that are named: as many as an operator reads.
const NAMED_MAX: usize = 5;

/// The holders of a volume, and the claims in line for it. It is built once for all claims.
pub struct VolumeQueue<'a> {
    volume: &'a Volume,
    /// The first claims that hold the volume, or may hold it.
    first: Vec<(&'a AllocId, &'a Claim)>,
    /// How many claims hold the volume, or may hold it.
    holders: usize,
    /// In line, first come first.
    waiting: Vec<(&'a AllocId, &'a Claim)>,
}

impl<'a> VolumeQueue<'a> {
    /// The holders and the line of a volume.
    pub fn new(volume: &'a Volume) -> Self {
        let waiting: Vec<_> = volume.claims.in_line().collect();
        let holders = volume.claims.len() - waiting.len();
        Self { volume, first: volume.holders().take(NAMED_MAX).collect(), holders, waiting }
    }

    /// How many claims in line are before this one.
    fn position(&self, claim: &Claim) -> usize {
        self.waiting.partition_point(|(_, other)| other.epoch < claim.epoch)
    }

    /// The first claims before this one: the volume's holders, then those in line.
    fn ahead(&self, claim: &Claim) -> impl Iterator<Item = &(&'a AllocId, &'a Claim)> {
        let before = &self.waiting[..self.position(claim)];
        self.first.iter().chain(before).take(NAMED_MAX)
    }
}

/// A claim with all that decides what it waits for.
pub struct ClaimContext<'a> {
    pub now: Timestamp,
    pub volume: &'a VolumeKey,
    pub alloc: &'a AllocId,
    pub claim: &'a Claim,
    pub line: &'a VolumeQueue<'a>,
    /// Whether its alloc has not ended.
    pub wanted: bool,
}

impl ClaimContext<'_> {
    /// For a claim in line: how many in line are before it, and the first claims before it.
    pub fn ahead(&self) -> Option<(usize, Vec<AllocId>)> {
        (self.claim.state == State::Waiting).then(|| {
            let ahead = self.line.ahead(self.claim).map(|(alloc, _)| (*alloc).clone());
            (self.line.position(self.claim), ahead.collect())
        })
    }

    /// The present or next call.
    pub fn step(&self) -> Option<CallKind> {
        if let Some(attempt) = &self.claim.progress.attempt {
            return Some(attempt.call);
        }
        match self.claim.state {
            State::Waiting => None,
            State::Publishing => Some(CallKind::ControllerPublish),
            State::Taken if self.wanted => None,
            State::Taken | State::Unpublishing => Some(CallKind::NodeDetach),
            State::NodeDetached => self.claim.controller.then_some(CallKind::ControllerUnpublish),
        }
    }

    /// What the claim waits for, with words for people; none for a claim at rest.
    pub fn waits_for(&self) -> Option<(ClaimWait, String)> {
        let Self { now, claim, .. } = self;
        if let Some(attempt) = &claim.progress.attempt {
            let who = &attempt.worker;
            let words = if *now <= attempt.ends() {
                format!("{} by {who}, until {}", attempt.call, attempt.ends())
            } else {
                format!("another try: {} by {who} was not answered", attempt.call)
            };
            return Some((ClaimWait::Call, words));
        }
        let next = claim.progress.next_try.filter(|next| next > now);
        let again = |call: CallKind, next| (ClaimWait::NextTry, format!("{call}, again at {next}"));
        let step = |call: CallKind| match next {
            Some(next) => again(call, next),
            None => (ClaimWait::Watcher, format!("a volumewatcher to make the call {call}")),
        };
        match claim.state {
            State::Taken if self.wanted => None,
            State::Taken => {
                Some((ClaimWait::Release, "its release: the alloc has ended".to_owned()))
            }
            State::Waiting => Some((ClaimWait::Turn, self.turn())),
            State::Publishing => Some(match next {
                Some(next) => again(CallKind::ControllerPublish, next),
                None => (ClaimWait::Caller, "its caller to ask again".to_owned()),
            }),
            State::Unpublishing => Some(step(CallKind::NodeDetach)),
            State::NodeDetached => {
                let claims = &self.line.volume.claims;
                Some(match claims.attachment_user(claim) {
                    Some((alloc, user)) if next.is_none() => {
                        let words = format!(
                            "the end of alloc {alloc} on node {}: the storage has the volume \
                             attached to {:?} for both",
                            user.node,
                            claim.external_node.as_deref().unwrap_or_default()
                        );
                        (ClaimWait::Attachment, words)
                    }
                    _ => step(CallKind::ControllerUnpublish),
                })
            }
        }
    }

    /// The claims whose end a claim in line waits for, in words.
    pub fn turn(&self) -> String {
        let ahead = self.line.ahead(self.claim);
        let mut named: Vec<String> = ahead
            .map(|(alloc, held)| format!("{alloc} on {} ({})", held.node, held.state))
            .collect();
        let all = self.line.holders + self.line.position(self.claim);
        if all > named.len() {
            named.push(format!("{} more", all - named.len()));
        }
        match named.join(", ") {
            nobody if nobody.is_empty() => "its turn, which has come".to_owned(),
            somebody => format!("its turn, after {somebody}"),
        }
    }

    /// What an operator can do where the claim does not go on by itself, or only slowly. The node
    /// comes with the revision of its record.
    pub fn hint(
        &self,
        node: Option<(&Node, u64)>,
        plugin: Option<(&PluginId, &Plugin)>,
        ready: impl Fn(&NodeId) -> bool,
    ) -> Option<String> {
        let Self { claim, .. } = self;
        if claim.exhausted {
            return Some(self.exhausted_hint(plugin, ready));
        }
        match claim.state {
            State::Taken if self.wanted => None,
            State::Taken => Some(
                "if it stays so, see with `nats micro ls` whether a volumewatcher runs".to_owned(),
            ),
            State::Waiting => self.line.ahead(claim).next().map(|(first, _)| {
                let stop = self.stop_command(first);
                format!("it is granted in its turn; to end the first: {stop}")
            }),
            State::Unpublishing => self.node_hint(node, plugin),
            State::Publishing | State::NodeDetached => self.controller_hint(plugin, ready),
        }
    }

    /// The hint while the node's agent has to unmount the volume.
    fn node_hint(
        &self,
        node: Option<(&Node, u64)>,
        plugin: Option<(&PluginId, &Plugin)>,
    ) -> Option<String> {
        let node_id = &self.claim.node;
        match node {
            Some((Node { gone: Some(_), .. }, _)) => return None,
            Some((Node { state: NodeState::Ready, .. }, _))
                if self.claim.progress.failure.as_deref().is_some_and(was_not_there) =>
            {
                return Some(format!(
                    "the agent of node {node_id} did not listen at the last try, and the node is \
                     shown as ready until its lease ends: start the agent, or read its log; {}",
                    host_is_off(node_id, None)
                ));
            }
            Some((Node { state: NodeState::Ready, .. }, _)) => {}
            Some((Node { state: NodeState::Down, since, .. }, revision)) => {
                return Some(format!(
                    "start the agent of node {node_id}, which is down since {since}; {}",
                    host_is_off(node_id, Some(revision))
                ));
            }
            None => {
                return Some(format!(
                    "nobody knows node {node_id}: start its agent there; {}",
                    host_is_off(node_id, Some(0))
                ));
            }
        }
        let here =
            plugin.map(|(id, found)| (id, found.instances.get(&(node_id.clone(), Half::Node))));
        match here {
            Some((plugin, instance)) if !instance.is_some_and(|one| one.healthy) => Some(format!(
                "have plugin {plugin} run on node {node_id}: `berth plugin status {plugin}` shows \
                 how it is"
            )),
            None => {
                Some(format!("start the plugin on node {node_id} and report it: nobody knows it"))
            }
            Some((plugin, _)) => self.advice_after_failure(match self.own_advice() {
                Some(advice) => format!("{advice}{}", self.confirmation_advice()),
                None => format!(
                    "see the last error, and `berth node status {node_id}` for what hangs there; \
                     if {plugin} does not answer, read its log there and restart it{}",
                    self.confirmation_advice()
                ),
            }),
        }
    }

    /// The hint while the plugin's controller has to be called.
    fn controller_hint(
        &self,
        plugin: Option<(&PluginId, &Plugin)>,
        ready: impl Fn(&NodeId) -> bool,
    ) -> Option<String> {
        match plugin {
            _ if !self.claim.controller => None,
            None => Some("start a controller of its plugin: nobody knows one".to_owned()),
            Some((id, found)) if found.count(Half::Controller, ready).healthy == 0 => {
                Some(format!(
                    "have a controller of plugin {id} run: `berth plugin status {id}` shows how \
                     they are{}",
                    self.confirmation_advice()
                ))
            }
            Some((id, _)) => self.advice_after_failure(match self.own_advice() {
                Some(advice) => {
                    format!("{}{advice}{}", self.fence_advice(), self.confirmation_advice())
                }
                None => format!(
                    "{}see the last error, and mend in the storage what it says; if {id} does not \
                     answer, read its log on the node that the error names and restart it there{}",
                    self.fence_advice(),
                    self.confirmation_advice()
                ),
            }),
        }
    }

    /// What the executor of the last call advised.
    fn own_advice(&self) -> Option<&str> {
        self.claim.progress.failure.as_ref()?.facts.next.as_deref()
    }

    /// A storage may keep a volume attached to a host that still reaches it, also after an operator
    /// declared the node gone.
    fn fence_advice(&self) -> String {
        let Some(proof) = self.claim.proof.as_ref().filter(|_| self.claim.denied) else {
            return String::new();
        };
        let node = &self.claim.node;
        match proof.kind {
            ProofKind::StorageFenced => String::new(),
            ProofKind::PoweredOff | ProofKind::Confirmed => format!(
                "the storage does not detach the volume from node {node}, which counts as gone: \
                 where it refuses because the host still reaches it, fence the host at the \
                 storage or switch it off; "
            ),
        }
    }

    /// How an operator confirms what the plugin cannot: that the volume is off the node (rule 18),
    /// or detached from it (rule 16).
    fn confirmation_advice(&self) -> String {
        let (volume, node) = (volume_argument(self.volume), &self.claim.node);
        match self.claim.state {
            _ if !self.claim.denied => String::new(),
            State::Unpublishing => format!(
                "; if it never takes the volume down, and nothing of the volume is left on the \
                 node, `berth volume detach {volume} {node} --unstaged-on-node --yes`"
            ),
            _ => format!(
                "; if it cannot say that the volume is detached, and the storage shows that it \
                 is, `berth volume detach {volume} {node} --detached-at-storage --yes`"
            ),
        }
    }

    /// The hint while the plugin has no room on the node. As long as this claim exists, the plugin
    /// is asked for no other node (rule 7). So another node helps only once this claim's alloc is
    /// stopped.
    fn exhausted_hint(
        &self,
        plugin: Option<(&PluginId, &Plugin)>,
        ready: impl Fn(&NodeId) -> bool,
    ) -> String {
        let node = &self.claim.node;
        let Some((id, found)) = plugin else {
            return format!("release another volume of its plugin on node {node}");
        };
        let serves = |(at, half): &(NodeId, Half)| *half == Half::Node && at != node && ready(at);
        let mut others = found.instances.iter().filter(|(place, one)| one.healthy && serves(place));
        let elsewhere = others.next().map(|_| {
            format!(
                "; or {}, and place it where `berth volume placement --volume {}` finds room",
                self.stop_command(self.alloc),
                volume_argument(self.volume)
            )
        });
        let elsewhere = elsewhere.unwrap_or_default();
        format!("release another volume of plugin {id} on node {node}{elsewhere}")
    }

    fn stop_command(&self, alloc: &AllocId) -> String {
        format!("`berth alloc stop {alloc}{}`", namespace_option(&self.volume.namespace))
    }

    /// Advice for a call that has failed and is repeated by itself.
    fn advice_after_failure(&self, what: String) -> Option<String> {
        (self.claim.progress.tries > 0).then(|| what + ". The call is repeated by itself")
    }
}

#[cfg(test)]
mod tests;
