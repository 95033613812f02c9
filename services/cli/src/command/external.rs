//! What a plugin has beside what is registered: `berth volume list --external`, `berth volume
//! adopt`, `berth snapshot list --external`, `berth snapshot adopt`.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::decode::{Unknown, decode};
use berth_contract::message::query::Page;
use berth_contract::message::snapshot::{AdoptSnapshot, SnapshotsChanged};
use berth_contract::message::storage::{
    ExternalSnapshot, ExternalVolume, Externals, ListExternals, Registration,
};
use berth_contract::message::storage_call::{PluginSnapshotStatus, PluginVolumeStatus};
use berth_contract::message::volume::RegisterVolume;
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::{PluginId, VolumeId};
use berth_service::clock;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::listing::check_sort;
use super::new_volume::{capability, mount, of_option};
use super::register::{REGISTER_PATIENCE, registered_text};
use crate::args::{Global, SnapshotAdopt, VolumeAdopt};
use crate::exit;
use crate::failure::Failure;
use crate::output::print_note;
use crate::session::Session;
use crate::show;
use crate::table::plain;

/// How long a list of what a plugin has may take as a whole, unless `--timeout` says otherwise.
const LIST_PATIENCE: Duration = Duration::from_secs(5);
/// The most pages that are read of what a plugin has.
const PAGES_MAX: usize = 1000;
const HELP: &str = "volume adopt";

/// Lists the volumes of a plugin.
pub async fn list_volumes(
    plugin: &PluginId,
    sort: Option<&str>,
    session: &Session,
) -> Result<(), Failure> {
    check_sort::<ExternalVolume>(sort)?;
    let listed = read(plugin, false, None, session).await?;
    session.output.reply(&listed, |listed| show::external_volumes(listed, sort, clock::now()));
    print_gaps(&listed);
    Ok(())
}

/// Lists the snapshots of a plugin.
pub async fn list_snapshots(
    plugin: &PluginId,
    sort: Option<&str>,
    session: &Session,
) -> Result<(), Failure> {
    check_sort::<ExternalSnapshot>(sort)?;
    let listed = read(plugin, true, None, session).await?;
    session.output.reply(&listed, |listed| show::external_snapshots(listed, sort, clock::now()));
    print_gaps(&listed);
    Ok(())
}

async fn read(
    plugin: &PluginId,
    snapshots: bool,
    id: Option<&str>,
    session: &Session,
) -> Result<Externals, Failure> {
    let (plugin, id) = (plugin.clone(), id.map(str::to_owned));
    let mut body = ListExternals { plugin, snapshots, id, page: Page::default() };
    let mut pages = Vec::new();
    let patience = session.patience(LIST_PATIENCE);
    while pages.len() < PAGES_MAX {
        let page = session.pursue::<verb::VolumeExternal>(&session.namespace, &body, patience);
        match page.await {
            Ok(page) => {
                body.page.after.clone_from(&page.next);
                pages.push(page);
            }
            // What was read so far is shown, and that it is not all.
            Err(_) if !pages.is_empty() && Instant::now() >= patience.until => break,
            Err(failure) => return Err(failure),
        }
        if body.page.after.is_none() {
            break;
        }
    }
    Ok(join_pages(body.plugin, pages))
}

/// One list of all pages, each entry once. What any of them lacks, the list lacks.
///
/// A list that was read while it changed may have an entry twice. Two entries with one id and
/// different topologies are of two hosts: then there may be two volumes.
fn join_pages(plugin: PluginId, pages: Vec<Externals>) -> Externals {
    let is_cut = pages.last().is_some_and(|last| last.next.is_some());
    let mut joined = Externals {
        plugin,
        volumes: Vec::new(),
        snapshots: Vec::new(),
        next: None,
        truncated: is_cut,
        not_asked: Vec::new(),
    };
    let (mut volumes, mut snapshots) = (BTreeSet::new(), BTreeSet::new());
    for page in pages {
        joined.volumes.extend(page.volumes.into_iter().filter(|it| {
            let PluginVolumeStatus { external_id, topologies, .. } = &it.listed;
            let owner = (it.namespace.clone(), it.volume.clone());
            volumes.insert((external_id.clone(), topologies.clone(), owner))
        }));
        joined.snapshots.extend(page.snapshots.into_iter().filter(|it| {
            let PluginSnapshotStatus { external_id, topologies, .. } = &it.listed;
            snapshots.insert((external_id.clone(), topologies.clone()))
        }));
        joined.truncated |= page.truncated;
        for controller in page.not_asked {
            if !joined.not_asked.contains(&controller) {
                joined.not_asked.push(controller);
            }
        }
    }
    joined
}

/// Says what the list lacks.
fn print_gaps(listed: &Externals) {
    if listed.truncated {
        print_note(
            "the list is cut off, or may be: the time was over (`--timeout 5m` gives it more), the \
             plugin has too many entries, or its list does not end as CSI says; what is \
             registered and not listed is not shown",
        );
    }
    for controller in &listed.not_asked {
        print_note(format_args!("not asked, so what it has is missing: {}", plain(controller)));
    }
}

/// Registers a volume as its plugin lists it.
pub async fn adopt_volume(args: &VolumeAdopt, global: &Global) -> Result<(), Failure> {
    let id = match &args.id {
        Some(id) => id.clone(),
        None => VolumeId::new(args.external_id.as_str()).map_err(|fault| {
            let message = format!("the plugin's id {fault}, so it is no id of a volume here");
            Failure::usage(message, "name the volume with --id")
        })?,
    };
    // The command line is checked before the plugin is asked.
    document(args, &id, None)?;
    let session = Session::open(global).await?;
    let listed = read(&args.plugin, false, Some(&args.external_id), &session).await?;
    let named = listed.volumes.iter().filter(|it| it.listed.external_id == args.external_id);
    let named: Vec<&ExternalVolume> = named.collect();
    let listed_volume = match named.first().copied() {
        Some(first) if named.len() > 1 && first.registration == Registration::NotRegistered => {
            return Err(at_several_hosts(args, &named));
        }
        Some(listed_volume) if listed_volume.registration == Registration::NotRegistered => {
            listed_volume
        }
        Some(listed_volume) => return Err(refuse_known(args, listed_volume)),
        None => return Err(not_listed(args, &listed)),
    };
    let request = document(args, &id, Some(listed_volume))?;
    let patience = session.patience(REGISTER_PATIENCE);
    let reply = session.pursue::<verb::VolumeRegister>(&session.namespace, &request, patience);
    session.output.reply(&reply.await?, registered_text);
    Ok(())
}

/// The document of a volume: what the command line says, and what the plugin lists.
fn document(
    args: &VolumeAdopt,
    id: &VolumeId,
    listed_volume: Option<&ExternalVolume>,
) -> Result<RegisterVolume, Failure> {
    let listed = listed_volume.map(|listed_volume| &listed_volume.listed);
    let external_id = (args.external_id != id.as_str()).then_some(&args.external_id);
    let document: Value = json!({
        "id": id, "plugin": args.plugin, "external_id": external_id, "name": args.name,
        "capability": [capability(&args.uses)], "mount": mount(&args.uses),
        "topology": listed.map(|volume| volume.topologies.as_slice()).unwrap_or_default(),
        "context": listed.map(|volume| volume.context.clone()).unwrap_or_default(),
        "capacity_bytes": listed.and_then(|volume| volume.capacity_bytes),
    });
    decode(document, Unknown::Fault).map_err(|faults| {
        let faults: Vec<_> = faults.into_iter().map(of_option).collect();
        Failure::command_line(&faults, HELP)
    })
}

fn refuse_known(args: &VolumeAdopt, listed_volume: &ExternalVolume) -> Failure {
    let (plugin, external_id) = (&args.plugin, &args.external_id);
    let owner = match (&listed_volume.namespace, &listed_volume.volume) {
        (Some(namespace), Some(volume)) => format!("as {namespace}/{volume}"),
        _ => "in another namespace".to_owned(),
    };
    let lost = match listed_volume.registration {
        Registration::NotListed => ", and its plugin does not list it",
        _ => "",
    };
    Failure::Local {
        exit: exit::CONFLICT,
        message: format!("{external_id} of plugin {plugin} is registered {owner}{lost}"),
        next: "use it by that name, or deregister it first".to_owned(),
    }
}

/// Each host has a storage of its own, and there is a volume of this id at several.
fn at_several_hosts(args: &VolumeAdopt, volumes: &[&ExternalVolume]) -> Failure {
    let place = |volume: &&ExternalVolume| match volume.listed.topologies.as_slice() {
        [] => "an unknown place".to_owned(),
        topologies => show::places(topologies),
    };
    let places: Vec<String> = volumes.iter().map(place).collect();
    let (plugin, external_id) = (&args.plugin, &args.external_id);
    Failure::Local {
        exit: exit::CONFLICT,
        message: format!(
            "plugin {plugin} has a volume {external_id} in {}: each may be another volume",
            places.join(", and in ")
        ),
        next:
            "look at the storages which of them is meant, and name its `topology` in a document: \
               `berth volume init`, then `berth volume register FILE`"
                .to_owned(),
    }
}

fn not_listed(args: &VolumeAdopt, listed: &Externals) -> Failure {
    let is_complete = !listed.truncated && listed.not_asked.is_empty();
    let incomplete = if is_complete { "" } else { "; its list is not complete" };
    let message =
        format!("plugin {} lists no volume {}{incomplete}", args.plugin, args.external_id);
    let problem = Problem::new(Code::NoSuchVolume, message).plugin(&args.plugin);
    let next = format!(
        "see what it has with `berth volume list --external {}`; register what it does not list \
         with `berth volume register FILE`",
        berth_contract::hint::quoted(args.plugin.as_str())
    );
    problem.at_step("volume.external").next(next).into()
}

/// Registers a snapshot that a plugin has.
pub async fn adopt_snapshot(args: &SnapshotAdopt, session: &Session) -> Result<(), Failure> {
    let body = AdoptSnapshot {
        volume: args.snapshot.volume.clone(),
        snapshot: args.snapshot.snapshot.clone(),
        plugin: args.plugin.clone(),
        external_id: args.external_id.clone(),
    };
    let patience = session.patience(LIST_PATIENCE);
    let reply = session.pursue::<verb::SnapshotAdopt>(&session.namespace, &body, patience);
    let adopted = reply.await?;
    session.output.reply(&adopted, |SnapshotsChanged { changed, .. }| {
        let outcome = if *changed { "registered" } else { "was registered so already" };
        format!("snapshot {} {outcome}", args.snapshot)
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::UseArgs;

    fn args(external_id: &str) -> VolumeAdopt {
        VolumeAdopt {
            plugin: PluginId::new("p").unwrap(),
            external_id: external_id.to_owned(),
            id: None,
            name: None,
            uses: UseArgs::default(),
        }
    }

    fn listed(registration: &str) -> ExternalVolume {
        serde_json::from_value(json!({
            "registration": registration, "external_id": "vol-1", "capacity_bytes": 4096,
            "context": {"share": "/a"}, "topologies": [{"zone": "a"}],
            "volume": "data", "namespace": "team",
        }))
        .unwrap()
    }

    #[test]
    fn an_adopted_volume_has_all_fields_that_the_plugin_lists() {
        let (args, id) = (args("vol-1"), VolumeId::new("vol-1").unwrap());
        let register = document(&args, &id, Some(&listed("not-registered"))).unwrap();
        let spec = &register.spec;
        assert_eq!((spec.external_id.clone(), spec.capacity_bytes), (None, Some(4096)));
        assert_eq!(spec.context["share"], "/a");
        assert_eq!(spec.topologies[0]["zone"], "a");
        let other = VolumeId::new("data").unwrap();
        let register = document(&args, &other, None).unwrap();
        assert_eq!(register.spec.external_id.as_deref(), Some("vol-1"));
    }

    #[test]
    fn pages_are_one_list_that_lacks_what_any_page_lacks() {
        let page = |volume: &str, next: Option<&str>, truncated: bool| -> Externals {
            serde_json::from_value(json!({
                "plugin": "p", "next": next, "truncated": truncated, "not_asked": ["node n1: no"],
                "volumes": [{"registration": "known", "external_id": volume}],
            }))
            .unwrap()
        };
        let plugin = || PluginId::new("p").unwrap();
        let joined =
            join_pages(plugin(), vec![page("a", Some("x"), false), page("b", None, false)]);
        assert_eq!((joined.volumes.len(), joined.truncated, joined.not_asked.len()), (2, false, 1));
        let joined = join_pages(plugin(), vec![page("a", Some("x"), true), page("b", None, false)]);
        assert!(joined.truncated && joined.next.is_none());
        let joined = join_pages(plugin(), vec![page("a", Some("x"), false)]);
        assert!(joined.truncated, "pages were left out");
        let joined =
            join_pages(plugin(), vec![page("a", Some("x"), false), page("a", None, false)]);
        assert_eq!(joined.volumes.len(), 1, "the list began again");
    }

    #[test]
    fn a_volume_of_two_hosts_is_not_adopted() {
        let page = |host: &str| -> Externals {
            serde_json::from_value(json!({"plugin": "p", "volumes": [
                {"registration": "not-registered", "external_id": "vol-1",
                    "topologies": [{"host": host}]},
            ]}))
            .unwrap()
        };
        let joined = join_pages(PluginId::new("p").unwrap(), vec![page("h1"), page("h2")]);
        let volumes: Vec<&ExternalVolume> = joined.volumes.iter().collect();
        let text = at_several_hosts(&args("vol-1"), &volumes).to_string();
        assert!(text.contains("a volume vol-1 in host=h1, and in host=h2"), "{text}");
    }

    #[test]
    fn a_wrong_option_is_told_before_the_plugin_is_asked() {
        let uses = UseArgs { fs_type: Some("/x".to_owned()), ..UseArgs::default() };
        let args = VolumeAdopt { uses, ..args("vol-1") };
        let text = document(&args, &VolumeId::new("a").unwrap(), None).unwrap_err().to_string();
        assert!(text.contains("--fs-type must be"), "{text}");
    }

    #[test]
    fn adopting_a_registered_volume_is_refused_with_its_name() {
        let text = refuse_known(&args("vol-1"), &listed("known")).to_string();
        assert!(text.contains("vol-1 of plugin p is registered as team/data"), "{text}");
    }
}
