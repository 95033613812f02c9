//! `berth snapshot …`, except for what a plugin lists and for `restore`.

use std::collections::BTreeMap;

use berth_contract::code::Code;
use berth_contract::message::snapshot::{
    CreateSnapshot, DeleteSnapshot, ListSnapshots, SnapshotStub, Snapshots, SnapshotsChanged,
};
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::volume::storage::SnapshotState;
use berth_domain::{SnapshotId, VolumeId};
use berth_service::clock;

use super::change::deadline;
use super::external;
use super::listing;
use super::new_volume::ArgFaults;
use crate::args::{
    Global, GroupCreate, GroupList, SnapshotArg, SnapshotCreate, SnapshotDelete, SnapshotList,
    WaitArgs,
};
use crate::failure::Failure;
use crate::output::print_note;
use crate::session::Session;
use crate::storage::{SnapshotGoal, await_snapshots, name_snapshot, read_snapshot};
use crate::{show, size};

/// The most pages of snapshots that are read.
const PAGES_MAX: usize = 100;

/// Cuts a snapshot of a volume.
pub async fn create(args: &SnapshotCreate, global: &Global) -> Result<(), Failure> {
    let SnapshotCreate { volume, snapshot, param, wait } = args;
    let parameters = read_parameters(param, "snapshot create")?;
    let session = Session::open(global).await?;
    let (volumes, snapshot) = (vec![volume.clone()], snapshot.clone());
    let body = CreateSnapshot { snapshot, volumes, group: false, parameters };
    cut(&body, *wait, &session).await
}

/// Cuts snapshots of several volumes.
pub async fn create_group(args: &GroupCreate, global: &Global) -> Result<(), Failure> {
    let GroupCreate { snapshot, volumes, param, wait } = args;
    let parameters = read_parameters(param, "snapshot group create")?;
    let session = Session::open(global).await?;
    let (volumes, snapshot) = (volumes.clone(), snapshot.clone());
    let body = CreateSnapshot { snapshot, volumes, group: true, parameters };
    cut(&body, *wait, &session).await
}

fn read_parameters(
    pairs: &[String],
    help: &'static str,
) -> Result<BTreeMap<String, String>, Failure> {
    let mut faults = ArgFaults::default();
    let parameters = faults.pairs("--param", pairs);
    faults.check(help).map(|()| parameters)
}

async fn cut(body: &CreateSnapshot, wait: WaitArgs, session: &Session) -> Result<(), Failure> {
    let until = deadline(session);
    let changed = session.ask_service::<verb::SnapshotCreate>(&session.namespace, body).await?;
    if wait.no_wait {
        session.output.reply(&changed, |_| format!("{}: to be cut", names(body)));
        return Ok(());
    }
    await_snapshots(session, &changed.snapshots, SnapshotGoal::Ready, until).await?;
    let snapshots = read_all(session, &body.volumes, &body.snapshot).await?;
    let reply = SnapshotsChanged { snapshots, ..changed };
    session.output.reply(&reply, |SnapshotsChanged { changed, snapshots }| {
        let (is, was) = if body.volumes.len() > 1 { ("are", "were") } else { ("is", "was") };
        let sentence =
            if *changed { format!("{is} ready") } else { format!("{was} ready already") };
        let bytes = size::sum(snapshots.iter().filter_map(|snapshot| snapshot.size_bytes));
        let size = if bytes > 0 { format!(": {}", size::short(bytes)) } else { String::new() };
        format!("{} {sentence}{size}", names(body))
    });
    Ok(())
}

/// `snapshot data@monday`, `snapshots a@monday, b@monday`
fn names(body: &CreateSnapshot) -> String {
    let CreateSnapshot { volumes, snapshot, .. } = body;
    let names = volumes.iter().map(|volume| format!("{volume}@{snapshot}"));
    let names = names.collect::<Vec<_>>().join(", ");
    let s = if volumes.len() > 1 { "s" } else { "" };
    format!("snapshot{s} {names}")
}

/// Reads those of these volumes' snapshots that exist.
async fn read_all(
    session: &Session,
    volumes: &[VolumeId],
    snapshot: &SnapshotId,
) -> Result<Vec<SnapshotStub>, Failure> {
    let mut snapshots = Vec::new();
    for volume in volumes {
        snapshots.extend(read_snapshot(session, volume, snapshot).await?);
    }
    Ok(snapshots)
}

/// Deletes a snapshot, or its whole group, after it was confirmed.
pub async fn delete(
    args: &SnapshotDelete,
    as_group: bool,
    session: &Session,
) -> Result<(), Failure> {
    let until = deadline(session);
    let SnapshotArg { volume, snapshot } = &args.snapshot;
    let Some(shown) = read_snapshot(session, volume, snapshot).await? else {
        let message = format!("no snapshot {}", args.snapshot);
        return Err(Problem::new(Code::NoSuchSnapshot, message).at_step("snapshot.list").into());
    };
    let is_there = shown.state != SnapshotState::Failed;
    // A snapshot of a group is refused by the service, which names the right command.
    if is_there && !args.yes && (as_group || shown.group.is_empty()) {
        return Err(if args.forget {
            Failure::usage(
                format!("this forgets snapshot {}: it stays at the storage", name_snapshot(&shown)),
                "make sure that its plugin cannot delete it, then say it again with --yes",
            )
        } else {
            Failure::usage(
                destroys(&shown),
                "make sure that nobody needs it, then say it again with --yes",
            )
        });
    }
    let (volume, snapshot) = (volume.clone(), snapshot.clone());
    let body = DeleteSnapshot {
        volume,
        snapshot,
        group: as_group,
        forget: args.forget,
        // Deletes the snapshot that was shown, not a new one that has taken its name since.
        create_index: Some(shown.create_index),
    };
    let deletion = session.ask_service::<verb::SnapshotDelete>(&session.namespace, &body).await;
    let is_gone =
        deletion.as_ref().is_err_and(|failure| failure.code() == Some(Code::NoSuchSnapshot))
            && read_snapshot(session, &body.volume, &body.snapshot).await?.is_none();
    let changed = if is_gone {
        // The snapshot existed when the command began: an earlier try, whose answer was lost,
        // deleted it.
        SnapshotsChanged { changed: false, snapshots: Vec::new() }
    } else {
        deletion?
    };
    let (s, is) = if shown.group.is_empty() { ("", "is") } else { ("s", "are") };
    let subject = format!("snapshot{s} {}", name_snapshot(&shown));
    if args.wait.no_wait {
        session.output.reply(&changed, |_| format!("{subject}: to be deleted"));
        return Ok(());
    }
    await_snapshots(session, &changed.snapshots, SnapshotGoal::Deleted, until).await?;
    let reply = SnapshotsChanged { snapshots: Vec::new(), ..changed };
    session.output.reply(&reply, |_| match (args.forget, is_there) {
        (true, _) => format!("{subject} {is} forgotten; what is at the storage stays there"),
        (false, true) => format!("{subject} {is} deleted at the storage"),
        (false, false) => format!("{subject} {is} removed; nothing was at the storage"),
    });
    Ok(())
}

/// `this destroys snapshot data@monday: 10GiB at plugin p, which calls it snap-1`
fn destroys(snapshot: &SnapshotStub) -> String {
    let SnapshotStub { plugin, external_id, size_bytes, group, .. } = snapshot;
    let name = name_snapshot(snapshot);
    if !group.is_empty() {
        return format!("this destroys the snapshots {name}, at plugin {plugin}");
    }
    let size = size_bytes.map(|bytes| format!("{} ", size::short(bytes))).unwrap_or_default();
    let called = external_id.as_ref().map(|id| format!(", which calls it {id}"));
    format!("this destroys snapshot {name}: {size}at plugin {plugin}{}", called.unwrap_or_default())
}

/// Lists snapshots.
pub async fn list(args: &SnapshotList, session: &Session) -> Result<(), Failure> {
    if let Some(plugin) = &args.external {
        return external::list_snapshots(plugin, args.view.sort.as_deref(), session).await;
    }
    let request = |newer| ListSnapshots {
        volume: args.volume.clone(),
        prefix: args.prefix.clone(),
        plugin: args.plugin.clone(),
        page: (&args.page).into(),
        newer,
    };
    listing::list::<verb::SnapshotList>(session, &session.namespace, &args.view, None, request)
        .await
}

/// Lists groups of snapshots.
pub async fn list_groups(args: &GroupList, session: &Session) -> Result<(), Failure> {
    let query = ListSnapshots { prefix: args.prefix.clone(), ..ListSnapshots::default() };
    let mut groups =
        Snapshots { index: 0, snapshots: Vec::new(), next: None, unreadable: Vec::new() };
    let take = |page: Snapshots| {
        groups.index = page.index;
        groups
            .snapshots
            .extend(page.snapshots.into_iter().filter(|snapshot| !snapshot.group.is_empty()));
        // Every page names all unreadable records.
        groups.unreadable = page.unreadable;
    };
    let namespace = &session.namespace;
    if !session.pages::<verb::SnapshotList>(namespace, query, PAGES_MAX, take).await? {
        print_note("there are more snapshots than were read; name their --prefix");
    }
    session.output.reply(&groups, |groups| show::snapshot_groups(&groups.snapshots, clock::now()));
    Ok(())
}
