//! Questions to a plugin's controllers about what is at their storage.
//!
//! **Owns** which controllers are asked, and how long each may take.
//!
//! **Promises** that all pages of one list are asked of the controller that answered the first, and
//! that an answer counts for no more than it shows.
//!
//! **Never** asks for a change at the storage.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_bus::{Call, RequestError};
use berth_contract::code::Code;
use berth_contract::message::storage_call::{
    Answered, PluginSnapshotStatus, PluginVolumeStatus, Question, StorageQuery,
};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, PluginOnNode};
use berth_domain::limits::PLUGIN_ENTRIES_MAX;
use berth_domain::{NodeId, PluginId};
use berth_service::clock;
use tokio::time::Instant;

use super::cursor::{PagePosition, shows_volume};
use crate::store::state::State;

/// Share of the caller's time after which no further page is requested. The rest is for the answer.
const LISTING_SHARE: f64 = 0.7;
/// Share of the remaining time that one page may take.
const PAGE_SHARE: f64 = 0.8;
/// The same, while other hosts are still to be asked: a controller that hangs leaves them theirs.
const HOST_SHARE: f64 = 0.5;
/// Entries of one page: a page fits one message. CSI's 0, no limit, would have a plugin of 100 000
/// volumes answer with more than gRPC and the bus carry.
const PAGE_ENTRIES: usize = 500;

/// Asks one controller a question, on this node or any.
pub async fn ask_controller(
    state: &State,
    plugin: &PluginId,
    node: Option<&NodeId>,
    question: Question,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Answered, Problem> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    let call = Call::within(trace, remaining.mul_f64(0.9).max(Duration::from_millis(100)));
    let query = StorageQuery { plugin: plugin.clone(), question };
    let (bus, plugin) = (&state.bus, plugin.clone());
    let answer = match node.cloned() {
        None => bus.ask_service::<verb::ControllerQuery>(&plugin, &query, &call).await,
        Some(node) => {
            let target = PluginOnNode { plugin: plugin.clone(), node };
            bus.ask_service::<verb::ControllerQueryOnNode>(&target, &query, &call).await
        }
    };
    answer.map_err(|error| match error {
        RequestError::NoResponder { .. } => no_controller(&plugin, node),
        error => error.into_problem("controller.query"),
    })
}

fn no_controller(plugin: &PluginId, node: Option<&NodeId>) -> Problem {
    let place = node.map(|node| format!(" on node {node}")).unwrap_or_default();
    let message = format!("plugin {plugin} has no healthy controller{place}");
    Problem::new(Code::PluginUnhealthy, message).retryable()
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListKind {
    Volumes,
    Snapshots,
    /// One volume, by `ControllerGetVolume`.
    Volume {
        /// The plugin's id.
        id: String,
        /// Whether the plugin cannot list.
        is_only_way: bool,
    },
}

/// The lists of a plugin: that of any controller, or that of each one, if each may have its own
/// storage.
pub struct PluginLists<'a> {
    state: &'a State,
    plugin: &'a PluginId,
    kind: ListKind,
    trace: TraceContext,
    /// The nodes whose controllers may have a storage each; empty if all serve one storage.
    hosts: Vec<NodeId>,
}

/// A page that a controller was asked for, or the reason why there is none.
#[derive(Debug, Default)]
pub struct PageOutcome {
    /// The page's entries, each with its host's topology if it has none.
    pub page: Answered,
    /// Where the next page is; none at the end of the last list.
    pub next: Option<PagePosition>,
    /// Whether entries are missing, or may be, after this page.
    pub is_cut: bool,
    /// Why this controller's list ends without an answer.
    pub failure: Option<(NodeId, Problem)>,
}

impl<'a> PluginLists<'a> {
    pub fn new(
        state: &'a State,
        plugin: &'a PluginId,
        kind: ListKind,
        trace: TraceContext,
    ) -> Self {
        let hosts = state.with_plugin(plugin, |plugin, _| plugin.local_hosts());
        Self { state, plugin, kind, trace, hosts: hosts.unwrap_or_default() }
    }

    /// Whether there is one storage, of all controllers or of one host.
    pub fn is_one_storage(&self) -> bool {
        self.hosts.len() < 2
    }

    /// Whether any controller may be asked.
    pub fn is_shared(&self) -> bool {
        self.hosts.is_empty()
    }

    /// The first page of the first list.
    pub fn first_page(&self) -> Result<PagePosition, Problem> {
        let first = self.hosts.first().cloned().or_else(|| self.draw_controller(None));
        first.map(PagePosition::first_of).ok_or_else(|| no_controller(self.plugin, None))
    }

    /// When to stop asking for pages, of a request with this deadline.
    pub fn stop_at(deadline: Instant) -> Instant {
        let now = Instant::now();
        now + deadline.saturating_duration_since(now).mul_f64(LISTING_SHARE)
    }

    /// Reads a page of at most so many entries.
    ///
    /// A list whose controller goes away, or whose token the plugin does not know any more, begins
    /// again, at another controller if all serve one storage. CSI has the caller of an invalid
    /// token begin without one.
    pub async fn read_page(
        &self,
        position: &PagePosition,
        limit: usize,
        deadline: Instant,
    ) -> PageOutcome {
        let problem = match self.ask_full_page(position, limit, deadline).await {
            Ok((page, is_cut)) => return self.accept_page(position, page, is_cut),
            Err(problem) => problem,
        };
        let node = match self.hosts.as_slice() {
            [] => {
                self.draw_controller(Some(&position.node)).unwrap_or_else(|| position.node.clone())
            }
            _ => position.node.clone(),
        };
        let is_worth_it = position.has_begun() || node != position.node;
        match position.restart(node).filter(|_| is_worth_it) {
            Some(restart) => PageOutcome { next: Some(restart), ..PageOutcome::default() },
            None => PageOutcome {
                next: self.next_host(position),
                failure: Some((position.node.clone(), problem)),
                ..PageOutcome::default()
            },
        }
    }

    fn accept_page(
        &self,
        position: &PagePosition,
        mut page: Answered,
        mut is_cut: bool,
    ) -> PageOutcome {
        let mut next = None;
        if let Some(token) = page.next.take() {
            next = position.next_page(token, count(&page));
            is_cut |= next.is_none();
        }
        self.complete_entries(&mut page, &position.node);
        let next = next.or_else(|| self.next_host(position));
        PageOutcome { page, next, is_cut, failure: None }
    }

    /// Asks for a page. The flag says that the page may lack entries.
    async fn ask_full_page(
        &self,
        position: &PagePosition,
        limit: usize,
        deadline: Instant,
    ) -> Result<(Answered, bool), Problem> {
        let is_host = |node| self.state.with_plugin(self.plugin, |it, _| it.is_controller_on(node));
        if is_host(&position.node) != Some(true) {
            return Err(no_controller(self.plugin, Some(&position.node)));
        }
        let share = if self.next_host(position).is_some() { HOST_SHARE } else { PAGE_SHARE };
        let now = Instant::now();
        let until = now + deadline.saturating_duration_since(now).mul_f64(share);
        let mut limit = limit.clamp(1, PAGE_ENTRIES);
        let mut page = self.ask_page(position, limit, until).await?;
        // CSI: a plugin with more entries than it was asked for returns a token. Upstream's
        // hostpath driver does not, so a full last page is asked for again, with more room.
        while page.next.is_none() && count(&page) >= limit {
            limit = limit.saturating_mul(2);
            if limit > PLUGIN_ENTRIES_MAX {
                return Ok((page, true));
            }
            match self.ask_page(position, limit, until).await {
                Ok(larger) if count(&larger) > count(&page) => page = larger,
                Ok(_) => break,
                Err(_) => return Ok((page, true)),
            }
        }
        Ok((page, false))
    }

    async fn ask_page(
        &self,
        position: &PagePosition,
        limit: usize,
        until: Instant,
    ) -> Result<Answered, Problem> {
        let (token, limit) = (position.token.clone(), u32::try_from(limit).unwrap_or(u32::MAX));
        let question = match &self.kind {
            ListKind::Volumes => Question::Volumes { token, limit },
            ListKind::Snapshots => Question::Snapshots { token, limit },
            ListKind::Volume { id, .. } => Question::Volume { id: id.clone() },
        };
        let (state, node) = (self.state, Some(&position.node));
        ask_controller(state, self.plugin, node, question, self.trace, until).await
    }

    /// Leaves out a volume that the answer does not show, where another host or the plugin's list
    /// may show it. Gives each entry without a topology that of its host: a controller elsewhere
    /// would answer OK to its deletion.
    fn complete_entries(&self, page: &mut Answered, host: &NodeId) {
        if let ListKind::Volume { id, is_only_way } = &self.kind {
            let is_last_word = *is_only_way && self.is_one_storage();
            page.volumes.retain(|volume| is_last_word || shows_volume(volume, id));
        }
        if self.hosts.is_empty() {
            return;
        }
        let topology = self.state.with_plugin(self.plugin, |it, _| it.topology_of(host).cloned());
        let topology = topology.flatten().filter(|topology| !topology.is_empty());
        for volume in page.volumes.iter_mut().filter(|volume| volume.topologies.is_empty()) {
            volume.topologies.extend(topology.clone());
        }
        for snapshot in &mut page.snapshots {
            snapshot.topologies = topology.iter().cloned().collect();
        }
    }

    /// The list of the next host, if each has its own.
    fn next_host(&self, position: &PagePosition) -> Option<PagePosition> {
        self.hosts.iter().find(|host| **host > position.node).cloned().map(PagePosition::first_of)
    }

    /// One of the controllers that can be asked; this one only if there is no other.
    fn draw_controller(&self, other_than: Option<&NodeId>) -> Option<NodeId> {
        let able = self
            .state
            .with_plugin(self.plugin, |plugin, is_ready| plugin.controllers(&[], is_ready))?;
        let others: Vec<&NodeId> = able.iter().filter(|node| Some(*node) != other_than).collect();
        let drawn = others.get(clock::jitter() as usize % others.len().max(1)).copied();
        drawn.or(able.first()).cloned()
    }

    /// Reads all lists to their end, as far as the time allows.
    pub async fn read_all(&self, deadline: Instant) -> Result<WholeList, Problem> {
        let stop_at = Self::stop_at(deadline);
        let (mut whole, mut next) = (WholeList::default(), Some(self.first_page()?));
        while let Some(position) = next {
            let read = self.read_page(&position, PAGE_ENTRIES, deadline).await;
            next = read.next;
            whole.is_complete &= !read.is_cut && read.failure.is_none();
            let is_empty = whole.volumes.is_empty() && whole.snapshots.is_empty();
            if let Some((_, problem)) = read.failure.filter(|_| is_empty && self.is_shared()) {
                return Err(problem);
            }
            whole.volumes.extend(read.page.volumes);
            let host = (!self.hosts.is_empty()).then(|| position.node.clone());
            let snapshots = read.page.snapshots.into_iter();
            whole.snapshots.extend(snapshots.map(|snapshot| (host.clone(), snapshot)));
            if next.is_some() && Instant::now() >= stop_at {
                whole.is_complete = false;
                break;
            }
        }
        Ok(whole)
    }
}

fn count(page: &Answered) -> usize {
    page.volumes.len().max(page.snapshots.len())
}

/// All that a plugin lists.
#[derive(Debug)]
pub struct WholeList {
    pub volumes: Vec<PluginVolumeStatus>,
    /// Each with the node whose controller listed it, if each may have its own storage.
    pub snapshots: Vec<(Option<NodeId>, PluginSnapshotStatus)>,
    /// Whether nothing is missing.
    pub is_complete: bool,
}

impl Default for WholeList {
    fn default() -> Self {
        Self { volumes: Vec::new(), snapshots: Vec::new(), is_complete: true }
    }
}

impl WholeList {
    /// The snapshot with this id, and the node whose controller alone listed it, if each may have
    /// its own storage. Refuses two snapshots with one id: deleting the one would delete the other.
    pub fn snapshot(
        self,
        external_id: &str,
    ) -> Result<(PluginSnapshotStatus, Option<NodeId>), Problem> {
        let mut listed =
            self.snapshots.into_iter().filter(|(_, snapshot)| snapshot.external_id == external_id);
        let Some((host, snapshot)) = listed.next() else {
            let incomplete = if self.is_complete { "" } else { "; its list is not complete" };
            let message = format!("the plugin lists no snapshot {external_id}{incomplete}");
            return Err(Problem::new(Code::NoSuchSnapshot, message));
        };
        let same = |other: &PluginSnapshotStatus| {
            (&other.source, other.size_bytes, other.cut_at, &other.group)
                == (&snapshot.source, snapshot.size_bytes, snapshot.cut_at, &snapshot.group)
        };
        let mut is_alone = true;
        for (other_host, other) in listed {
            is_alone &= other_host == host;
            if let Some((host, other_host)) =
                host.as_ref().zip(other_host).filter(|_| !same(&other))
            {
                let message = format!(
                    "node {host} and node {other_host} each list a snapshot {external_id}, and \
                     not the same one"
                );
                let next = "delete one of the two with the storage's own tools";
                return Err(Problem::new(Code::BadInput, message).next(next));
            }
        }
        Ok((snapshot, host.filter(|_| is_alone)))
    }

    /// The plugin's ids of all that it lists.
    pub fn ids(&self) -> BTreeSet<&str> {
        let volumes = self.volumes.iter().map(|volume| volume.external_id.as_str());
        let snapshots = self.snapshots.iter();
        volumes.chain(snapshots.map(|(_, snapshot)| snapshot.external_id.as_str())).collect()
    }
}
