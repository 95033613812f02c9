//! `berth search`

use berth_contract::message::alloc::{AllocStub, ListAllocs};
use berth_contract::message::class::{ClassStatus, ListClasses};
use berth_contract::message::paged::{Paged, PagedReply};
use berth_contract::message::query::Page;
use berth_contract::message::registry::{ListNodes, ListPlugins, NodeStatus, PluginStatus};
use berth_contract::message::snapshot::{ListSnapshots, SnapshotStub};
use berth_contract::message::volume::{ListVolumes, VolumeStub};
use berth_contract::record::UnreadableRecord;
use berth_contract::verb::{self, Verb};
use berth_domain::VolumeId;
use berth_explain::node_state;

use crate::args::Search;
use crate::failure::Failure;
use crate::search::{MATCHES_MAX, SearchAnswer, SearchKind, SearchMatch, SearchPage};
use crate::session::Session;
use crate::show;

/// Asks for the first matches of each kind, of all kinds at the same time.
pub async fn search(args: &Search, session: &Session) -> Result<(), Failure> {
    let query = SearchQuery { args, session };
    let (namespace, prefix) = (&session.namespace, &args.prefix);
    let volumes = ListVolumes { prefix: prefix.clone(), ..ListVolumes::default() };
    let allocs = ListAllocs { prefix: prefix.clone(), ..ListAllocs::default() };
    let plugins = ListPlugins { prefix: prefix.clone(), ..ListPlugins::default() };
    let nodes = ListNodes { prefix: prefix.clone(), ..ListNodes::default() };
    let classes = ListClasses { prefix: prefix.clone(), ..ListClasses::default() };
    let (volumes, allocs, plugins, nodes, snapshots, classes) = tokio::join!(
        query.list::<verb::VolumeList, _>(SearchKind::Volumes, namespace, volumes, |page| {
            (page.volumes.into_iter().map(volume).collect(), page.unreadable)
        }),
        query.list::<verb::AllocList, _>(SearchKind::Allocs, namespace, allocs, |page| {
            (page.allocs.into_iter().map(alloc).collect(), page.unreadable)
        }),
        query.list::<verb::PluginStatus, _>(SearchKind::Plugins, &(), plugins, |page| {
            (page.plugins.into_iter().map(plugin).collect(), page.unreadable)
        }),
        query.list::<verb::NodeStatus, _>(SearchKind::Nodes, &(), nodes, |page| {
            (page.nodes.into_iter().map(node).collect(), page.unreadable)
        }),
        query.list::<verb::SnapshotList, _>(
            SearchKind::Snapshots,
            namespace,
            list_snapshots(prefix),
            |page| (page.snapshots.into_iter().map(snapshot).collect(), page.unreadable)
        ),
        query.list::<verb::ClassList, _>(SearchKind::Classes, namespace, classes, |page| {
            // A service of the last release does not know the field.
            let named = page.classes.into_iter().filter(|one| one.id.as_str().starts_with(prefix));
            (named.map(class).collect(), page.unreadable)
        }),
    );
    let pages = [volumes, allocs, plugins, nodes, snapshots, classes];
    let answer = SearchAnswer::from_pages(prefix, pages.into_iter().flatten().collect())?;
    session.output.reply(&answer, show::search);
    Ok(())
}

struct SearchQuery<'a> {
    args: &'a Search,
    session: &'a Session,
}

impl SearchQuery<'_> {
    /// The first page of a kind; none if the kind is not searched.
    async fn list<V, F>(
        &self,
        kind: SearchKind,
        to: &V::To,
        mut request: V::Request,
        read: F,
    ) -> Option<(SearchKind, Result<SearchPage, Failure>)>
    where
        V: Verb<Request: Paged, Reply: PagedReply>,
        F: FnOnce(V::Reply) -> (Vec<SearchMatch>, Vec<UnreadableRecord>),
    {
        let kinds = &self.args.kinds;
        if !kinds.is_empty() && !kinds.contains(&kind) {
            return None;
        }
        *request.page_mut() = Page { limit: Some(MATCHES_MAX), after: None };
        // Boxed, because six of these large futures wait together.
        let answer = Box::pin(self.session.ask_service::<V>(to, &request)).await;
        let page = answer.map(|page| {
            let has_more = page.next_page().is_some();
            let (matches, unreadable) = read(page);
            SearchPage { matches, has_more, unreadable }
        });
        Some((kind, page))
    }
}

/// Snapshots are looked for by their own ids, and after `VOLUME@` among those of the volume.
fn list_snapshots(prefix: &str) -> ListSnapshots {
    let of_volume = prefix
        .split_once('@')
        .and_then(|(volume, prefix)| Some((VolumeId::new(volume).ok()?, prefix)));
    let (volume, prefix) = match of_volume {
        Some((volume, prefix)) => (Some(volume), prefix),
        None => (None, prefix),
    };
    ListSnapshots { volume, prefix: prefix.to_owned(), ..ListSnapshots::default() }
}

fn volume(volume: VolumeStub) -> SearchMatch {
    let (state, kind) = (show::stage(&volume), SearchKind::Volumes);
    SearchMatch { kind, namespace: Some(volume.namespace), id: volume.id.to_string(), state }
}

fn alloc(alloc: AllocStub) -> SearchMatch {
    let state = format!("{} on {}", alloc.state, alloc.node);
    let (kind, id) = (SearchKind::Allocs, alloc.id.to_string());
    SearchMatch { kind, namespace: Some(alloc.namespace), id, state }
}

fn plugin(plugin: PluginStatus) -> SearchMatch {
    let state = format!("{} nodes healthy", plugin.nodes);
    SearchMatch { kind: SearchKind::Plugins, namespace: None, id: plugin.id.to_string(), state }
}

fn node(node: NodeStatus) -> SearchMatch {
    let (state, _) = node_state(&node);
    SearchMatch { kind: SearchKind::Nodes, namespace: None, id: node.id.to_string(), state }
}

fn snapshot(snapshot: SnapshotStub) -> SearchMatch {
    SearchMatch {
        kind: SearchKind::Snapshots,
        id: format!("{}@{}", snapshot.volume, snapshot.snapshot),
        namespace: Some(snapshot.namespace),
        state: snapshot.state.to_string(),
    }
}

fn class(class: ClassStatus) -> SearchMatch {
    let state = format!("of plugin {}", class.class.plugin);
    SearchMatch { kind: SearchKind::Classes, namespace: None, id: class.id.to_string(), state }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_found_by_its_own_id_or_by_its_volume_and_id() {
        let listed = |prefix| {
            let query = list_snapshots(prefix);
            (query.volume.map(|volume| volume.to_string()), query.prefix)
        };
        assert_eq!(listed("mon"), (None, "mon".to_owned()));
        assert_eq!(listed("data@mon"), (Some("data".to_owned()), "mon".to_owned()));
        assert_eq!(listed("@mon"), (None, "@mon".to_owned()));
    }
}
