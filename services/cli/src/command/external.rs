//! What a plugin has beside what is registered: `berth volume list --external`, `berth volume
//! adopt`, `berth snapshot list --external`, `berth snapshot adopt`.

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::decode::{Unknown, decode};
use berth_contract::message::query::Page;
use berth_contract::message::snapshot::{AdoptSnapshot, SnapshotsChanged};
use berth_contract::message::storage::{
    ExternalSnapshot, ExternalVolume, Externals, ListExternals, Registration,
};
use berth_contract::message::volume::RegisterVolume;
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::{PluginId, VolumeId};
use berth_service::clock;
use serde_json::{Value, json};

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

/// How long a plugin may take to list what it has.
const LIST_PATIENCE: Duration = Duration::from_secs(60);
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
    while pages.len() < PAGES_MAX {
        // The plugin is asked for all that it has for each page.
        let patience = session.patience(LIST_PATIENCE);
        let page =
            session.pursue::<verb::VolumeExternal>(&session.namespace, &body, patience).await?;
        body.page.after.clone_from(&page.next);
        pages.push(page);
        if body.page.after.is_none() {
            break;
        }
    }
    Ok(join_pages(body.plugin, pages))
}

/// One list of all pages. What any of them lacks, the list lacks.
fn join_pages(plugin: PluginId, pages: Vec<Externals>) -> Externals {
    let is_cut = pages.last().is_some_and(|last| last.next.is_some());
    let mut all = Externals {
        plugin,
        volumes: Vec::new(),
        snapshots: Vec::new(),
        next: None,
        truncated: is_cut,
        not_asked: Vec::new(),
    };
    for page in pages {
        all.volumes.extend(page.volumes);
        all.snapshots.extend(page.snapshots);
        all.truncated |= page.truncated;
        for controller in page.not_asked {
            if !all.not_asked.contains(&controller) {
                all.not_asked.push(controller);
            }
        }
    }
    all
}

/// Says what the list lacks.
fn print_gaps(listed: &Externals) {
    if listed.truncated {
        print_note(
            "the list is cut off: the plugin has too many entries, or its list does not end; what \
             is registered and not listed is not shown",
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
    // What the command line says is checked before the plugin is asked.
    document(args, &id, None)?;
    let session = Session::open(global).await?;
    let listed = read(&args.plugin, false, Some(&args.external_id), &session).await?;
    let found = listed.volumes.iter().find(|one| one.listed.external_id == args.external_id);
    let found = match found {
        Some(found) if found.registration == Registration::NotRegistered => found,
        Some(found) => return Err(refuse_known(args, found)),
        None => return Err(not_listed(args, &listed)),
    };
    let request = document(args, &id, Some(found))?;
    let patience = session.patience(REGISTER_PATIENCE);
    let asked = session.pursue::<verb::VolumeRegister>(&session.namespace, &request, patience);
    session.output.reply(&asked.await?, registered_text);
    Ok(())
}

/// The document of a volume: what the command line says, and what the plugin lists.
fn document(
    args: &VolumeAdopt,
    id: &VolumeId,
    found: Option<&ExternalVolume>,
) -> Result<RegisterVolume, Failure> {
    let listed = found.map(|found| &found.listed);
    let external_id = (args.external_id != id.as_str()).then_some(&args.external_id);
    let document: Value = json!({
        "id": id, "plugin": args.plugin, "external_id": external_id, "name": args.name,
        "capability": [capability(&args.uses)], "mount": mount(&args.uses),
        "topology": listed.map(|it| it.topologies.as_slice()).unwrap_or_default(),
        "context": listed.map(|it| it.context.clone()).unwrap_or_default(),
        "capacity_bytes": listed.and_then(|it| it.capacity_bytes),
    });
    decode(document, Unknown::Fault).map_err(|faults| {
        let faults: Vec<_> = faults.into_iter().map(of_option).collect();
        Failure::command_line(&faults, HELP)
    })
}

fn refuse_known(args: &VolumeAdopt, found: &ExternalVolume) -> Failure {
    let (plugin, external_id) = (&args.plugin, &args.external_id);
    let owner = match (&found.namespace, &found.volume) {
        (Some(namespace), Some(volume)) => format!("as {namespace}/{volume}"),
        _ => "in another namespace".to_owned(),
    };
    let lost = match found.registration {
        Registration::NotListed => ", and its plugin does not list it",
        _ => "",
    };
    Failure::Here {
        exit: exit::CONFLICT,
        message: format!("{external_id} of plugin {plugin} is registered {owner}{lost}"),
        next: "use it by that name, or deregister it first".to_owned(),
    }
}

fn not_listed(args: &VolumeAdopt, listed: &Externals) -> Failure {
    let is_complete = !listed.truncated && listed.not_asked.is_empty();
    let rest = if is_complete { "" } else { "; its list is not complete" };
    let message = format!("plugin {} lists no volume {}{rest}", args.plugin, args.external_id);
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
    let asked = session.pursue::<verb::SnapshotAdopt>(&session.namespace, &body, patience);
    let adopted = asked.await?;
    session.output.reply(&adopted, |SnapshotsChanged { changed, .. }| {
        let what = if *changed { "registered" } else { "was registered so already" };
        format!("snapshot {} {what}", args.snapshot)
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
    fn what_the_plugin_lists_is_registered_with_all_that_it_says() {
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
        let all = join_pages(plugin(), vec![page("a", Some("x"), false), page("b", None, false)]);
        assert_eq!((all.volumes.len(), all.truncated, all.not_asked.len()), (2, false, 1));
        let all = join_pages(plugin(), vec![page("a", Some("x"), true), page("b", None, false)]);
        assert!(all.truncated && all.next.is_none());
        let all = join_pages(plugin(), vec![page("a", Some("x"), false)]);
        assert!(all.truncated, "pages were left out");
    }

    #[test]
    fn a_wrong_option_is_told_before_the_plugin_is_asked() {
        let uses = UseArgs { fs_type: Some("/x".to_owned()), ..UseArgs::default() };
        let args = VolumeAdopt { uses, ..args("vol-1") };
        let told = document(&args, &VolumeId::new("a").unwrap(), None).unwrap_err().to_string();
        assert!(told.contains("--fs-type must be"), "{told}");
    }

    #[test]
    fn what_is_registered_is_named() {
        let told = refuse_known(&args("vol-1"), &listed("known")).to_string();
        assert!(told.contains("vol-1 of plugin p is registered as team/data"), "{told}");
    }
}
