//! The run through the calls of all volumes.
//!
//! Owns: checking the rules at the beginning of each call, against the uses that exist or may exist
//! then. Promises: each broken rule is one finding with its proof. It keeps only what later calls
//! are judged by. Never: looks ahead.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use berth_csi::Rpc;

use super::changes::ChangeRegistry;
use super::check::{BrokenRule, CallCheck, NodeRequirements};
use super::check_storage::{StorageCheck, copies_from};
use super::finding::{Finding, FindingKind, LogLine, RuleReference};
use super::kernel::{find_destroyed, find_false_reports};
use super::log_row::{CallEffect, EntryKind, LogRow};
use super::objects::ObjectRegistry;
use super::open_calls::{CallSlot, OpenCall, OpenCalls};
use super::pending::{OverlapProof, PendingFinding, proof};
use super::rule::Rule;
use super::snapshots::SnapshotRegistry;
use super::unanswered::report_unanswered;
use super::volume_model::{CallContext, VolumeModel};
use super::volume_use::{CallId, UseLocation};

pub(super) struct Replay<'a> {
    volumes: HashMap<String, VolumeModel>,
    objects: ObjectRegistry,
    snapshots: SnapshotRegistry,
    changes: ChangeRegistry,
    /// The volume that uses a path on a node.
    paths: HashMap<(String, String), String>,
    /// By node id, from its last start.
    nodes: HashMap<String, NodeRequirements>,
    /// Whether a controller was called to attach a volume.
    attaches: bool,
    /// Fenced nodes.
    fenced: HashSet<String>,
    in_flight: OpenCalls,
    pending: Vec<PendingFinding>,
    last_id: CallId,
    /// The newest line.
    last_line: Option<(u64, LogLine)>,
    found: &'a mut dyn FnMut(Finding),
}

impl<'a> Replay<'a> {
    pub fn new(found: &'a mut dyn FnMut(Finding)) -> Self {
        Self {
            volumes: HashMap::new(),
            attaches: false,
            objects: ObjectRegistry::default(),
            snapshots: SnapshotRegistry::default(),
            changes: ChangeRegistry::default(),
            paths: HashMap::new(),
            nodes: HashMap::new(),
            fenced: HashSet::new(),
            in_flight: OpenCalls::default(),
            pending: Vec::new(),
            last_id: 0,
            last_line: None,
            found,
        }
    }

    pub fn process_line(&mut self, row: LogRow, line: LogLine) {
        self.confirm_in_flight(&row.instance);
        self.last_line = Some((row.time_us(), line.clone()));
        match row.entry {
            EntryKind::Start => self.start(&row),
            EntryKind::Begin => self.begin(row, line),
            EntryKind::Gone => self.gone(&row, line),
            EntryKind::Fence => self.fence(&row),
            EntryKind::End => self.end(&row, line),
        }
    }

    /// Reports the remaining findings, and returns notes.
    pub fn finish(mut self) -> Vec<String> {
        let Self { objects, in_flight, last_line, found, .. } = &mut self;
        let notes = last_line.as_ref().map(|end| report_unanswered(objects, in_flight, end, found));
        let open: Vec<_> = self.in_flight.iter().map(|(id, _)| id).collect();
        for id in open {
            self.in_flight.remove(id);
        }
        self.report_proven();
        notes.unwrap_or_default()
    }

    /// A line of an instance proves that its open calls were in flight until now.
    fn confirm_in_flight(&mut self, instance: &str) {
        let is_there = |id| self.in_flight.get(id).is_some_and(|open| open.instance == instance);
        let overlaps = self.pending.iter_mut().filter_map(|pending| pending.overlap.as_mut());
        for overlap in overlaps.filter(|overlap| !overlap.is_certain) {
            overlap.is_certain = is_there(overlap.during);
        }
    }

    fn start(&mut self, row: &LogRow) {
        let node = &row.node_id;
        let LogRow { attach, stage, foreign: is_foreign, .. } = *row;
        let needs = NodeRequirements { attach, is_foreign, stage };
        self.nodes.insert(node.clone(), needs);
        // A foreign driver does not report what it has in use, so its uses are kept.
        let settled = self.volumes.iter_mut().filter(|_| !row.foreign);
        for (id, volume) in settled {
            volume.settle(node, row.holds.iter().find(|holding| holding.volume_id == *id));
        }
        let is_dead = |open: &OpenCall| open.at == *node && open.instance != row.instance;
        let dead = self.in_flight.iter().filter(|(_, open)| is_dead(open));
        for id in dead.map(|(id, _)| id).collect::<Vec<_>>() {
            self.in_flight.remove(id);
        }
        self.report_proven();
    }

    fn fence(&mut self, row: &LogRow) {
        if !row.fenced {
            self.fenced.remove(&row.node_id);
            return;
        }
        self.fenced.insert(row.node_id.clone());
        self.volumes.values_mut().for_each(|volume| volume.cut_off(&row.node_id));
    }

    fn begin(&mut self, row: LogRow, line: LogLine) {
        let now_us = row.time_us();
        let Some(open) = OpenCall::from_row(row, line) else { return };
        self.last_id += 1;
        let by = self.last_id;
        let call = open.context(by);
        self.overlaps(&call, &open);
        let broken = self.check(&call);
        for broken in broken {
            self.add(&call, broken, None);
        }
        self.apply_begin(&call, now_us);
        self.in_flight.add(by, open);
    }

    /// The rules of order that the call breaks by being made now.
    fn check(&self, call: &CallContext<'_>) -> Vec<BrokenRule> {
        let blank = VolumeModel::default();
        let volume = call.args.volume().and_then(|id| self.volumes.get(id)).unwrap_or(&blank);
        let mut needs = self.nodes.get(call.at).copied().unwrap_or_default();
        needs.attach |= needs.is_foreign && self.attaches;
        // A fenced node's volume is detached without the knowledge of the node's agent.
        needs.attach &= !self.fenced.contains(call.at);
        let mut broken = CallCheck::new(call, volume, needs).find_broken_rules();
        let Self { objects, snapshots, changes, in_flight, .. } = self;
        let storage = StorageCheck { call, objects, snapshots, changes, in_flight };
        broken.extend(storage.find_broken_rules());
        broken.extend(self.path_of_another(call));
        broken.extend(self.undo_of_another(call));
        broken.extend(self.stale_use(call));
        broken
    }

    /// After the fence is lifted, a node must undo all its old uses of any volume before it uses
    /// one again.
    fn stale_use(&self, call: &CallContext<'_>) -> Option<BrokenRule> {
        if self.fenced.contains(call.at) {
            return None;
        }
        call.created_location().as_ref().and_then(UseLocation::path)?;
        let mut stale = self.volumes.values().flat_map(|volume| volume.stale_on(call.at));
        let (location, volume_use) = stale.next()?;
        let path = location.path().unwrap_or_default();
        let what = format!("{} was fenced and still has {path:?} from before; undo that", call.at);
        Some(BrokenRule { rule: Rule::StaleUse, what, others: volume_use.proof() })
    }

    fn path_of_another(&self, call: &CallContext<'_>) -> Option<BrokenRule> {
        let location = call.created_location()?;
        let path = location.path()?;
        let other = self.paths.get(&(call.at.to_owned(), path.to_owned()))?;
        let is_there =
            |(at, _): &(&UseLocation, _)| at.path() == Some(path) && at.node() == call.at;
        let (_, volume_use) = self.volumes.get(other)?.uses().find(is_there)?;
        if call.args.volume() == Some(other) {
            return None;
        }
        let what = format!("{path:?} on {} is volume {other:?}'s; choose another path", call.at);
        Some(BrokenRule { rule: Rule::PathOfAnotherVolume, what, others: volume_use.proof() })
    }

    /// A plugin that only looks at the path would undo the other volume's use.
    fn undo_of_another(&self, call: &CallContext<'_>) -> Option<BrokenRule> {
        let path = match call.rpc {
            Rpc::NodeUnstageVolume => &call.args.staging_target_path,
            Rpc::NodeUnpublishVolume => &call.args.target_path,
            _ => return None,
        };
        let other = self.paths.get(&(call.at.to_owned(), path.clone()))?;
        if call.args.volume() == Some(other) {
            return None;
        }
        let is_there =
            |(at, _): &(&UseLocation, _)| at.path() == Some(path) && at.node() == call.at;
        let (_, volume_use) = self.volumes.get(other)?.uses().find(is_there)?;
        let what = format!("{path:?} on {} is volume {other:?}'s; name that one", call.at);
        Some(BrokenRule { rule: Rule::UndoOfAnotherVolume, what, others: volume_use.proof() })
    }

    /// Adds overlaps with other calls that may be in flight.
    fn overlaps(&mut self, call: &CallContext<'_>, open: &OpenCall) {
        let mut overlaps = self.shared_slots(open);
        if let (Rpc::ControllerUnpublishVolume, Some(id)) = (call.rpc, call.args.volume()) {
            let blank = VolumeModel::default();
            let volume = self.volumes.get(id).unwrap_or(&blank);
            for node in volume.nodes_of(call.args) {
                if self.fenced.contains(&node) {
                    continue;
                }
                // The check of order reports existing uses.
                if volume.uses_on(&node).next().is_none() {
                    let slot = CallSlot::VolumeOnNode(id.to_owned(), node.clone());
                    overlaps.extend(self.in_flight.in_slot(&slot).map(|(id, other)| {
                        let what = format!("{} is in flight on {node}; wait for it", other.rpc);
                        (id, Overlap { rule: Rule::DetachBeforeUnstage, what, is_watched: true })
                    }));
                }
            }
        }
        let deleted = self.snapshots.deletes(call);
        if !deleted.is_empty() {
            let open_calls = self.in_flight.iter();
            let copies =
                open_calls.filter(|(id, other)| copies_from(&deleted, &other.context(*id)));
            overlaps.extend(copies.map(|(id, other)| {
                let what = format!("{} is making something from it; wait for it", other.rpc);
                (id, Overlap { rule: Rule::DeleteOfSource, what, is_watched: false })
            }));
        }
        for (id, overlap) in overlaps {
            let Some(other) = self.in_flight.get(id) else { continue };
            let others = vec![Rc::clone(&other.lines)];
            let is_certain = other.instance == open.instance;
            let Overlap { rule, what, is_watched } = overlap;
            let broken = BrokenRule { rule, what, others };
            self.add(call, broken, Some(OverlapProof { during: id, is_certain, is_watched }));
        }
    }

    /// The calls in flight that are waited for, in the same slots as this one.
    fn shared_slots(&self, open: &OpenCall) -> Vec<(CallId, Overlap)> {
        let mut overlaps = BTreeMap::new();
        for slot in &open.slots {
            let waited_for = self.in_flight.in_slot(slot).filter(|(_, other)| !other.is_gone);
            for (id, other) in waited_for {
                let rule = match slot {
                    CallSlot::VolumeOnNode(..) => Rule::OverlappingNodeCalls,
                    _ => Rule::OverlappingControllerCalls,
                };
                let what = format!("made while {} is in flight; wait for its answer", other.rpc);
                let overlap =
                    overlaps.entry(id).or_insert(Overlap { rule, what, is_watched: false });
                overlap.is_watched |= slot.is_checked_by_driver();
            }
        }
        overlaps.into_iter().collect()
    }

    fn add(&mut self, call: &CallContext<'_>, broken: BrokenRule, overlap: Option<OverlapProof>) {
        let BrokenRule { rule, what, others } = broken;
        let (object, about) = call.object();
        let (by, lines) = (call.by, Rc::clone(call.lines));
        let (is_noticed, is_missed) = (false, false);
        #[rustfmt::skip]
        self.pending.push(PendingFinding {
            rule, object, about, what, by, lines, others, overlap, is_noticed, is_missed,
        });
    }

    fn apply_begin(&mut self, call: &CallContext<'_>, now_us: u64) {
        self.objects.apply_begin(call, now_us);
        self.changes.apply_begin(call);
        let Some(id) = call.args.volume() else { return };
        self.volumes.entry(id.to_owned()).or_default().apply_begin(call);
        if let Some(path) = call.created_location().as_ref().and_then(UseLocation::path) {
            let node_and_path = (call.at.to_owned(), path.to_owned());
            self.paths.entry(node_and_path).or_insert_with(|| id.to_owned());
        }
    }

    fn gone(&mut self, row: &LogRow, line: LogLine) {
        let Some(id) = self.in_flight.find(row) else { return };
        if let Some(open) = self.in_flight.get_mut(id) {
            open.is_gone = true;
            open.lines.borrow_mut().push(line);
            self.objects.apply_gone(&open.context(id), row.time_us());
        }
    }

    fn end(&mut self, row: &LogRow, line: LogLine) {
        let Some(rpc) = row.rpc else { return };
        self.attaches |= rpc == Rpc::ControllerPublishVolume && row.is_known_success();
        let open_id = self.in_flight.find(row);
        let by = open_id.unwrap_or_else(|| {
            self.last_id += 1;
            self.last_id
        });
        let lines = match self.in_flight.get(by) {
            Some(open) => Rc::clone(&open.lines),
            // The log does not have its beginning.
            None => Rc::default(),
        };
        lines.borrow_mut().push(line);
        let call = CallContext { by, rpc, at: &row.node_id, args: &row.args, lines: &lines };
        if open_id.is_some() {
            self.compare(&call, row);
        } else {
            self.apply_begin(&call, row.time_us());
        }
        let cut_off = |volume: &VolumeModel| -> BTreeSet<String> {
            let cut = volume.uses().filter(|(_, volume_use)| volume_use.is_cut);
            cut.filter_map(|(location, _)| location.path()).map(str::to_owned).collect()
        };
        let cut_off = self.volumes.get(&row.args.volume_id).map(cut_off).unwrap_or_default();
        let is_gone = self.in_flight.remove(by).is_some_and(|open| open.is_gone);
        self.apply_end(&call, row, row.is_known_success() && !is_gone);
        let destroyed =
            find_destroyed(row, &cut_off).map(|report| (FindingKind::Violation, report));
        let false_reports = find_false_reports(row).into_iter();
        let false_reports = false_reports.map(|report| (FindingKind::FalseReport, report));
        for (kind, (rule, what)) in false_reports.chain(destroyed) {
            (self.found)(Finding {
                kind,
                rule: rule.into(),
                object: call.object().0,
                about: call.object().1,
                what,
                noticed: false,
                proof: proof(call.lines, &[]),
            });
        }
        self.report_proven();
    }

    /// Compares the findings at the call's beginning with what the driver did.
    fn compare(&mut self, call: &CallContext<'_>, row: &LogRow) {
        let noticed = row.violation.as_deref();
        let was_done =
            row.effect != Some(CallEffect::None) && row.fault.as_deref() != Some("before");
        let still = if was_done { self.still_broken(call) } else { Vec::new() };
        let mut is_agreed = noticed.is_none();
        let about = |pending: &PendingFinding| {
            pending.by == call.by || pending.is_overlap() && pending.during() == Some(call.by)
        };
        for pending in self.pending.iter_mut().filter(|pending| about(pending)) {
            let same = noticed.is_some_and(|name| pending.rule.matches_driver_rule(name));
            is_agreed |= same;
            pending.is_noticed |= same;
            // The driver can refuse only because of a call that it had in flight.
            if let Some(overlap) = &mut pending.overlap {
                overlap.is_certain |= same;
            }
            // A lenient driver carries out calls that it could refuse.
            let is_strict = !row.lenient;
            if pending.by == call.by && is_strict && pending.rule.is_checked_by_driver() && was_done
            {
                pending.is_missed = match pending.overlap {
                    Some(OverlapProof { during, is_watched, .. }) => {
                        is_watched && self.in_flight.contains(during)
                    }
                    None => still.contains(&pending.rule),
                };
            }
        }
        if let (Some(name), false) = (noticed, is_agreed) {
            (self.found)(Finding {
                kind: FindingKind::OnlyTheDriver,
                rule: RuleReference::by_name(name),
                object: call.object().0,
                about: call.object().1,
                what: "refused by the driver".to_owned(),
                noticed: true,
                proof: proof(call.lines, &[]),
            });
        }
    }

    /// The rules that the call still breaks at its end: the driver checked at some time between.
    fn still_broken(&self, call: &CallContext<'_>) -> Vec<Rule> {
        let is_attached = |id: &str| {
            let Some(volume) = self.volumes.get(id) else { return false };
            volume.nodes_of(call.args).iter().any(|node| volume.attachment(node).is_some())
        };
        // A detach without an attachment does nothing, and the driver checks no further.
        let is_nothing = call.rpc == Rpc::ControllerUnpublishVolume
            && !call.args.volume().is_some_and(is_attached);
        if is_nothing {
            return Vec::new();
        }
        self.check(call).into_iter().map(|broken| broken.rule).collect()
    }

    /// `is_told`: the CO knows that the call succeeded.
    fn apply_end(&mut self, call: &CallContext<'_>, row: &LogRow, is_told: bool) {
        let deleted = self.snapshots.deletes(call);
        self.snapshots.apply_end(call, row, is_told, &deleted);
        self.objects.apply_end(call, row, is_told, deleted);
        self.changes.apply_end(call, row, is_told, &self.objects);
        let Some(id) = call.args.volume() else { return };
        let volume = self.volumes.entry(id.to_owned()).or_default();
        volume.apply_end(call, row);
        if call.rpc == Rpc::DeleteVolume && row.effect == Some(CallEffect::Done) {
            volume.expansion = None;
        }
        let is_free = |path: &str| volume.uses_on(call.at).all(|(at, _)| at.path() != Some(path));
        for path in [&call.args.staging_target_path, &call.args.target_path] {
            if !path.is_empty() && is_free(path) {
                self.paths.remove(&(call.at.to_owned(), path.clone()));
            }
        }
        if volume.is_blank() {
            self.volumes.remove(id);
        }
    }

    /// Reports findings that are proven, and drops those that cannot be.
    fn report_proven(&mut self) {
        let Self { pending, in_flight, found, .. } = self;
        let is_over = |id: CallId| !in_flight.contains(id);
        let ready = |finding: &mut PendingFinding| {
            is_over(finding.by) && finding.during().is_none_or(is_over)
        };
        for finding in pending.extract_if(.., ready).filter(PendingFinding::is_certain) {
            finding.into_findings().for_each(&mut **found);
        }
    }
}

/// A call in flight, and the rule that another call breaks by overlapping with it.
struct Overlap {
    rule: Rule,
    what: String,
    /// Whether the driver also checks that call.
    is_watched: bool,
}
