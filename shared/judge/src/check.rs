//! Whether a call is allowed now.
//!
//! Owns: the rules of attaching, staging and publishing, as read in CSI's spec. Promises: finds
//! every rule that a call breaks. It is written from the spec, not from the driver, so a mistake in
//! one of the two shows as a disagreement. Never: changes the model.

use std::rc::Rc;

use berth_csi::Rpc;

use super::rule::Rule;
use super::volume_model::{CallContext, VolumeModel};
use super::volume_use::{CallLines, UseLocation, UseRequest, VolumeUse};

/// What an instance requires before a volume is used on its node; nothing until its start was read.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct NodeRequirements {
    /// Volumes are attached before a node call. A foreign driver that serves only its node half
    /// does not report this: then a call of its controller shows it.
    pub attach: bool,
    pub is_foreign: bool,
    pub stage: bool,
}

/// A rule that a call breaks.
#[derive(Debug)]
pub(super) struct BrokenRule {
    pub rule: Rule,
    pub what: String,
    /// The calls that make this call wrong.
    pub others: Vec<CallLines>,
}

/// A call, and the model that it is judged by.
pub(super) struct CallCheck<'a> {
    pub call: &'a CallContext<'a>,
    pub volume: &'a VolumeModel,
    pub needs: NodeRequirements,
    broken: Vec<BrokenRule>,
}

impl<'a> CallCheck<'a> {
    pub fn new(
        call: &'a CallContext<'a>,
        volume: &'a VolumeModel,
        needs: NodeRequirements,
    ) -> Self {
        Self { call, volume, needs, broken: Vec::new() }
    }

    /// All rules that the call breaks by being made now.
    pub fn find_broken_rules(mut self) -> Vec<BrokenRule> {
        match self.call.rpc {
            Rpc::ControllerPublishVolume => self.attach(),
            Rpc::ControllerUnpublishVolume => self.detach(),
            Rpc::NodeStageVolume => self.stage(),
            Rpc::NodePublishVolume => self.publish(),
            Rpc::NodeUnstageVolume => self.unstage(),
            Rpc::NodeExpandVolume => self.node_expand(),
            Rpc::DeleteVolume => self.delete(),
            _ => {}
        }
        self.changed();
        self.broken
    }

    fn add(&mut self, rule: Rule, what: impl Into<String>, others: Vec<CallLines>) {
        self.broken.push(BrokenRule { rule, what: what.into(), others });
    }

    fn attach(&mut self) {
        let node = &self.call.args.node_id;
        let others = self.volume.attachments().filter(|(on, _)| on != node);
        let holders =
            others.map(|(on, volume_use)| HeldUse { on, volume_use, may_write: true }).collect();
        let wanted = UseRequest::from_arguments(self.call.args);
        self.share(holders, &wanted, true, Rule::ExclusiveAttach);
    }

    /// Checks a use on this node against uses on other nodes. A stage writes nothing by itself.
    fn use_here(&mut self, writes: bool) {
        let readonly = |node: &str| {
            self.volume.attachment(node).is_some_and(|attached| attached.asked.readonly)
        };
        let others =
            self.volume.live_uses().filter(|(location, _)| location.node() != self.call.at);
        let holders = others.map(|(location, volume_use)| {
            let on = location.node();
            let may_write = matches!(location, UseLocation::Publication { .. }) && !readonly(on);
            HeldUse { on, volume_use, may_write }
        });
        let holders = holders.collect();
        let wanted = UseRequest::from_arguments(self.call.args);
        let writes = writes && !readonly(self.call.at);
        self.share(holders, &wanted, writes, Rule::ExclusiveUse);
    }

    /// Checks what one node wants against the uses of other nodes.
    fn share(
        &mut self,
        holders: Vec<HeldUse<'_>>,
        wanted: &UseRequest,
        writes: bool,
        exclusive: Rule,
    ) {
        let attaching = exclusive == Rule::ExclusiveAttach;
        // The driver refuses a request without a mode as incomplete.
        if wanted.capability.is_none() && attaching {
            return;
        }
        let clashes = holders
            .iter()
            .filter(|holder| !wanted.is_shared() || !holder.volume_use.asked.is_shared());
        let clashes: Vec<_> = clashes.collect();
        if !clashes.is_empty() {
            let done = if attaching { "attached to" } else { "in use on" };
            let what = |nodes: &str| {
                format!("{done} {nodes}, and not for many nodes; end that before it goes elsewhere")
            };
            return self.add_conflict(exclusive, &clashes, what);
        }
        let writes_alone = |holder: &&HeldUse<'_>| {
            holder.may_write
                && holder.volume_use.asked.is_for_one_writer()
                && !holder.volume_use.asked.readonly
        };
        let writing: Vec<_> = holders.iter().filter(writes_alone).collect();
        if writes && wanted.is_for_one_writer() && !wanted.readonly && !writing.is_empty() {
            let what = |nodes: &str| {
                format!("{nodes} may write, and the mode allows one writer; be read-only, or wait")
            };
            self.add_conflict(Rule::SecondWriter, &writing, what);
        }
    }

    fn add_conflict(
        &mut self,
        rule: Rule,
        holders: &[&HeldUse<'_>],
        what: impl Fn(&str) -> String,
    ) {
        let nodes = holders.iter().map(|holder| holder.on);
        let mut nodes: Vec<_> = nodes.collect();
        nodes.dedup();
        let what = what(&nodes.join(", "));
        let uses: Vec<_> = holders.iter().map(|holder| holder.volume_use).collect();
        self.require_gone(rule, what, &uses);
    }

    /// Adds a violation unless all these uses are gone and the CO knows it.
    fn require_gone(&mut self, rule: Rule, what: String, uses: &[&VolumeUse]) {
        let remaining: Vec<_> =
            uses.iter().filter(|volume_use| !volume_use.is_undone_but_unconfirmed()).collect();
        if !remaining.is_empty() {
            let others = remaining.iter().flat_map(|volume_use| volume_use.proof()).collect();
            self.add(rule, what, others);
        } else if !uses.is_empty() {
            let others = uses.iter().flat_map(|volume_use| volume_use.proof()).collect();
            let what = "a call that undoes was not answered; repeat it until it succeeds";
            self.add(Rule::UnconfirmedUndo, what, others);
        }
    }

    fn detach(&mut self) {
        for node in self.volume.nodes_of(self.call.args) {
            let located = self.volume.live_uses().filter(|(location, _)| location.node() == node);
            let located: Vec<_> = located.collect();
            let paths = located.iter().filter_map(|(location, _)| location.path());
            let paths = paths.collect::<Vec<_>>().join(", ");
            let what = format!(
                "still in use on {node} at {paths}; unpublish and unstage it there before detaching"
            );
            let uses: Vec<_> = located.iter().map(|(_, volume_use)| *volume_use).collect();
            self.require_gone(Rule::DetachBeforeUnstage, what, &uses);
        }
    }

    /// Checks the attachment that a node call needs. False if there is none: later checks would
    /// only repeat the violation.
    fn attached(&mut self) -> bool {
        if !self.needs.attach {
            return true;
        }
        let node = self.call.at;
        let Some(attached) = self.volume.attachment(node) else {
            let what = format!("not attached to {node}; call ControllerPublishVolume first");
            self.add(Rule::NodeCallBeforeAttach, what, Vec::new());
            return false;
        };
        if !attached.is_sure() {
            let what = format!(
                "not known to be attached to {node}; call ControllerPublishVolume until it succeeds"
            );
            self.add(Rule::NodeCallAfterUncertainAttach, what, attached.proof());
            return true;
        }
        let passed = &self.call.args.publish_context;
        if attached.context.as_ref().is_some_and(|returned| returned != passed) {
            let what = "publish_context is not what ControllerPublishVolume returned last";
            self.add(Rule::StalePublishContext, what, attached.proof());
        }
        let wanted = UseRequest::from_arguments(self.call.args);
        let is_publish = self.call.rpc == Rpc::NodePublishVolume;
        if is_publish && attached.asked.readonly && !wanted.is_for_readers() {
            let what = format!("attached to {node} read-only, and published for writing");
            self.add(Rule::ReadonlyMismatch, what, attached.proof());
        }
        true
    }

    fn stage(&mut self) {
        self.attached();
        self.use_here(false);
        let (node, path) = (self.call.at, &self.call.args.staging_target_path);
        let stages = self.volume.uses_on(node).filter(|(location, _)| match location {
            UseLocation::Stage { path: other, .. } => other != path,
            _ => false,
        });
        let stages: Vec<_> = stages.map(|(_, volume_use)| volume_use).collect();
        let what = format!("staged on {node} elsewhere, and has one staging path per node");
        self.require_gone(Rule::SecondStagingPath, what, &stages);
    }

    fn publish(&mut self) {
        let is_attached = self.attached();
        self.use_here(true);
        if self.needs.stage && is_attached {
            self.staged();
        }
        let (node, path) = (self.call.at, &self.call.args.target_path);
        let wanted = UseRequest::from_arguments(self.call.args);
        let other_targets =
            self.volume.uses_on(node).filter(|(location, volume_use)| match location {
                UseLocation::Publication { path: other, .. } => {
                    let many =
                        wanted.is_for_many_targets() && volume_use.asked.is_for_many_targets();
                    other != path && !many
                }
                _ => false,
            });
        let other_targets: Vec<_> = other_targets.map(|(_, volume_use)| volume_use).collect();
        let what = format!("published on {node} at another target, in a mode that allows one");
        self.require_gone(Rule::SecondTarget, what, &other_targets);
    }

    /// Checks the stage that a publication needs.
    fn staged(&mut self) {
        let (node, path) = (self.call.at.to_owned(), self.call.args.staging_target_path.clone());
        let staged = self.volume.all_uses.get(&UseLocation::Stage { node, path: path.clone() });
        let Some(staged) = staged else {
            let what = format!("not staged at {path:?}; call NodeStageVolume until it succeeds");
            return self.add(Rule::PublishBeforeStage, what, Vec::new());
        };
        if !staged.is_sure() {
            let what = format!("not known to be staged at {path:?}; repeat NodeStageVolume");
            return self.add(Rule::PublishAfterUncertainStage, what, staged.proof());
        }
        if staged.asked.capability != self.call.args.volume_capability {
            let what = format!("published with another capability than it is staged at {path:?}");
            self.add(Rule::OtherCapability, what, staged.proof());
        }
    }

    fn unstage(&mut self) {
        let uses = self.volume.uses_on(self.call.at);
        let published =
            uses.filter(|(location, _)| matches!(location, UseLocation::Publication { .. }));
        let published: Vec<_> = published.collect();
        let paths = published.iter().filter_map(|(location, _)| location.path());
        let paths = paths.collect::<Vec<_>>().join(", ");
        let what = format!("still published on {} at {paths}; unpublish it first", self.call.at);
        let uses: Vec<_> = published.iter().map(|(_, volume_use)| *volume_use).collect();
        self.require_gone(Rule::UnstageBeforeUnpublish, what, &uses);
    }

    fn node_expand(&mut self) {
        let waiting = self.volume.expansion.as_ref().filter(|newest| !newest.is_known);
        if let Some(newest) = waiting {
            let what = "expanded on the node before ControllerExpandVolume succeeded";
            self.add(Rule::NodeExpandBeforeController, what, vec![Rc::clone(&newest.lines)]);
        }
        let is_ready = |(location, volume_use): (&UseLocation, &VolumeUse)| {
            let is_stage = matches!(location, UseLocation::Stage { .. });
            volume_use.is_sure() && is_stage == self.needs.stage
        };
        if !self.volume.uses_on(self.call.at).any(is_ready) {
            let step = if self.needs.stage { "staged" } else { "published" };
            let what = format!("expanded on {}, where it is not {step}", self.call.at);
            self.add(Rule::NodeExpandBeforeUse, what, Vec::new());
        }
    }

    fn delete(&mut self) {
        // A fenced node cannot write, and may never come back.
        let uses: Vec<_> =
            self.volume.all_uses.values().filter(|volume_use| !volume_use.is_cut).collect();
        let what = "attached, staged or published; take all that down before deleting it";
        self.require_gone(Rule::DeleteInUse, what.to_owned(), &uses);
    }

    /// Checks that a repeated request has the same arguments.
    fn changed(&mut self) {
        let Some(location) = self.call.created_location() else { return };
        let Some(volume_use) = self.volume.all_uses.get(&location) else { return };
        // A use that is being undone may be created again with other arguments.
        if volume_use.asked == UseRequest::from_arguments(self.call.args)
            || volume_use.is_undone_but_unconfirmed()
        {
            return;
        }
        let (rule, what) = if volume_use.was_known() {
            (Rule::ChangedInPlace, "there already, otherwise; undo it before it is made so")
        } else {
            (Rule::RetryChanged, "asked for again otherwise, and may be there; repeat it the same")
        };
        self.add(rule, what, volume_use.proof());
    }
}

/// A use of the volume by another node.
struct HeldUse<'a> {
    on: &'a str,
    volume_use: &'a VolumeUse,
    may_write: bool,
}
