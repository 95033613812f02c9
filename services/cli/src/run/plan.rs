//! The plan of a `berth run`, made before any request.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use berth_contract::message::alloc::RegisterAlloc;
use berth_domain::alloc::{TaskDriverMounts, VolumeRequest, VolumeType};
use berth_domain::size::Size;
use berth_domain::{AllocId, ClassId, NodeId, VolumeId, limits};

use super::child::Bind;
use super::stage;
use crate::args::{Run, RunVolumeArg, VolumeArg};
use crate::failure::Failure;
use crate::privilege;

/// A volume that the command wants.
#[derive(Debug)]
pub struct CommandVolume {
    /// The volume's name on the command line.
    pub source: VolumeId,
    /// The volume's id.
    pub volume: VolumeId,
}

/// A volume that is mounted here.
#[derive(Debug)]
pub struct Mounted {
    /// The volume.
    pub source: VolumeId,
    /// Its path on the node.
    pub path: PathBuf,
}

/// A volume that is created for this run alone.
#[derive(Debug)]
pub struct EphemeralVolume {
    /// The volume's id, made of the alloc's.
    pub id: VolumeId,
    /// Its class, if the command line names one for it.
    pub class: Option<ClassId>,
    /// Its smallest size.
    pub size: Size,
}

/// A path at which the command sees a volume.
#[derive(Debug)]
struct View {
    source: VolumeId,
    path: PathBuf,
    read_only: bool,
}

/// The alloc, its volumes, and their paths for the command.
#[derive(Debug)]
pub struct Plan {
    /// The alloc that will hold the claims.
    pub alloc: AllocId,
    /// The node of the command: this host.
    pub node: NodeId,
    index: Option<u32>,
    requests: Vec<VolumeRequest>,
    volumes: Vec<CommandVolume>,
    ephemeral: Vec<EphemeralVolume>,
    /// Outer paths first, so that a path inside another volume's path is bound after it.
    views: Vec<View>,
    mounts: TaskDriverMounts,
    /// Whether the run waits for volumes, including those that are not registered yet.
    waits: bool,
    note: String,
}

impl Plan {
    /// Builds the plan from the command line; `chance` makes the alloc's id, unless one is given.
    pub fn new(args: &Run, host: &str, chance: u32) -> Result<Self, Failure> {
        let node = match &args.node {
            Some(node) => node.clone(),
            None => NodeId::new(host).map_err(|fault| {
                Failure::usage(format!("the host name {fault}"), "name the node with --node")
            })?,
        };
        let alloc = match &args.alloc {
            Some(alloc) => alloc.clone(),
            None => AllocId::new(format!("run-{chance:08x}"))
                .map_err(|fault| Failure::local(fault, "name the alloc with --alloc"))?,
        };
        let (requested, ephemeral) = name_volumes(args, &alloc)?;
        let is_new = |source: &VolumeId| ephemeral.iter().any(|new| new.id == *source);
        // One claim for each volume, however many paths it has. It writes if it writes at one of
        // them.
        let only_read = |source: &VolumeId| {
            requested.iter().all(|other| other.source != *source || other.read_only)
        };
        let request = |source: &VolumeId| VolumeRequest {
            read_only: only_read(source),
            per_alloc: args.per_alloc.is_some() && !is_new(source),
            access: args.access,
            attachment: args.attachment,
            ..VolumeRequest::for_volume(source.clone())
        };
        // The same order in every run: two runs that wait for the same volumes cannot deadlock.
        let sources: BTreeSet<&VolumeId> = requested.iter().map(|volume| &volume.source).collect();
        let requests: Vec<VolumeRequest> = sources.into_iter().map(request).collect();
        let wanted = |request: &VolumeRequest| {
            let volume = request.volume(args.per_alloc).map_err(|fault| {
                let message = format!("volume {} {fault}", request.source);
                Failure::usage(message, "give the volume a shorter id")
            })?;
            Ok(CommandVolume { source: request.source.clone(), volume })
        };
        let volumes = requests.iter().map(wanted).collect::<Result<_, Failure>>()?;
        let view = |volume: &VolumeArg| {
            let VolumeArg { source, path, read_only } = volume.clone();
            Some(View { source, path: path?, read_only })
        };
        let mut views: Vec<View> = requested.iter().filter_map(view).collect();
        views.sort_by(|view, other| view.path.cmp(&other.path));
        // Only the program's name, because arguments may hold secrets.
        let program = args.command.first().map(Path::new).and_then(Path::file_name);
        let program = program.unwrap_or_default().to_string_lossy();
        let what = format!("berth run: {}", program.chars().take(64).collect::<String>());
        Ok(Self {
            alloc,
            node,
            index: args.per_alloc,
            requests,
            volumes,
            ephemeral,
            views,
            mounts: args.task_driver_mounts,
            waits: args.wait.is_some(),
            note: what,
        })
    }

    /// Checks what can be checked on this machine before anything is claimed.
    pub fn check(&self) -> Result<(), Failure> {
        if let Some(why) = self.mounts.lacks(VolumeType::Csi) {
            let volumes: Vec<&str> =
                self.volumes.iter().map(|volume| volume.volume.as_ref()).collect();
            let message = format!("volume {}: {why}", volumes.join(", "));
            let next = "run the command where volumes can be mounted for it, or without them";
            return Err(Failure::local(message, next));
        }
        for (at, View { source, path, .. }) in self.views.iter().enumerate() {
            // A path inside another volume does not exist before that volume is mounted.
            if self.views.iter().take(at).any(|outer| path.starts_with(&outer.path)) {
                continue;
            }
            if let Err(error) = path.metadata() {
                let path = path.display();
                let message = format!("volume {source} cannot be put at {path}: {error}");
                return Err(Failure::local(
                    message,
                    format!("make the directory: mkdir -p {path}"),
                ));
            }
        }
        if !self.views.is_empty() && !privilege::may_mount() {
            let message = "putting a volume at a path needs the right to mount (CAP_SYS_ADMIN)";
            let next = "run it as root, or leave out :PATH and use $BERTH_VOLUME_<SOURCE>";
            return Err(Failure::local(message, next));
        }
        Ok(())
    }

    /// The request that registers the alloc.
    pub fn register(&self) -> RegisterAlloc {
        RegisterAlloc {
            index: self.index,
            note: Some(self.note.clone()),
            task_driver_mounts: self.mounts,
            allow_missing: self.waits,
            ..RegisterAlloc::new(self.alloc.clone(), self.node.clone(), self.requests.clone())
        }
    }

    /// The volumes, in the order in which they are claimed.
    pub fn volumes(&self) -> &[CommandVolume] {
        &self.volumes
    }

    /// The volumes that are created for this run, in the order of the command line.
    pub fn ephemeral(&self) -> &[EphemeralVolume] {
        &self.ephemeral
    }

    /// The command, with the paths of its volumes in the environment.
    pub fn command(&self, args: &Run, mounted: &[Mounted]) -> Command {
        let mut command = stage::command(&args.command);
        for volume in mounted {
            let new = self.ephemeral.iter().position(|new| new.id == volume.source);
            let name = new.map_or_else(|| variable(volume.source.as_str()), new_variable);
            command.env(name, &volume.path);
        }
        command
    }

    /// The binds of volumes to paths, outer paths first.
    pub fn binds(&self, mounted: &[Mounted]) -> Vec<Bind> {
        let bind = |view: &View| {
            let from = mounted.iter().find(|volume| volume.source == view.source)?.path.clone();
            Some(Bind { from, to: view.path.clone(), read_only: view.read_only })
        };
        self.views.iter().filter_map(bind).collect()
    }
}

/// The volumes by their ids, and those among them that are to be created.
fn name_volumes(
    args: &Run,
    alloc: &AllocId,
) -> Result<(Vec<VolumeArg>, Vec<EphemeralVolume>), Failure> {
    let (mut all, mut ephemeral, mut there) = (Vec::new(), Vec::new(), Vec::new());
    for volume in &args.volumes {
        match volume {
            RunVolumeArg::There(volume) => {
                there.push(volume.clone());
                all.push(volume.clone());
            }
            RunVolumeArg::New(new) => {
                let id = VolumeId::new(format!("{alloc}-new-{}", ephemeral.len()));
                let id = id.map_err(|fault| {
                    let message = format!("the id of a new volume, made of the alloc's, {fault}");
                    Failure::usage(message, "give the run a shorter --alloc")
                })?;
                let path = new.path.clone();
                all.push(VolumeArg { source: id.clone(), path, read_only: false });
                let class = new.class.clone().or_else(|| args.class.clone());
                ephemeral.push(EphemeralVolume { id, class, size: new.size });
            }
        }
    }
    if ephemeral.is_empty() && args.class.is_some() {
        let message = "--class is for new volumes, and there is none";
        return Err(Failure::usage(message, "ask for one: --volume new:10GiB, or leave it out"));
    }
    let new_names = (0..ephemeral.len()).map(new_variable).collect();
    check_distinct(&all, &there, new_names)?;
    Ok((all, ephemeral))
}

/// Volumes that are requested twice, or that the command could not distinguish.
fn check_distinct(
    requested: &[VolumeArg],
    there: &[VolumeArg],
    new_names: BTreeSet<String>,
) -> Result<(), Failure> {
    let volumes = requested;
    if volumes.len() > limits::VOLUMES_PER_ALLOC_MAX {
        let message = format!("{} volumes are too many for one command", volumes.len());
        let next = format!("ask for at most {}", limits::VOLUMES_PER_ALLOC_MAX);
        return Err(Failure::usage(message, next));
    }
    let (mut sources, mut names, mut paths) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
    for VolumeArg { source, .. } in there {
        let name = variable(source.as_str());
        let other = names.insert(name.clone(), source).filter(|other| *other != source);
        let other = other.map(|other| format!("volumes {other} and {source}"));
        let new = new_names.contains(&name).then(|| format!("volume {source} and a new one"));
        if let Some(duplicates) = other.or(new) {
            let message = format!("{duplicates} would both be ${name}");
            return Err(Failure::usage(message, "run them apart, or register one by another id"));
        }
    }
    for VolumeArg { source, path, .. } in volumes {
        // Without a path of its own, a volume is only at its path on the node, which is named once.
        if path.is_none() && !sources.insert(source) {
            let message = format!("volume {source} is asked for twice");
            return Err(Failure::usage(message, "name it once, or give each place a path"));
        }
        if let Some(path) = path
            && !paths.insert(path)
        {
            let message = format!("two volumes are to be at {}", path.display());
            return Err(Failure::usage(message, "give each a path of its own"));
        }
    }
    Ok(())
}

/// `BERTH_VOLUME_NEW_0` for the first new volume.
fn new_variable(at: usize) -> String {
    variable(&format!("new-{at}"))
}

/// `BERTH_VOLUME_DATA_0` for `data-0`.
fn variable(source: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let name: String = source.chars().map(letter).collect();
    format!("BERTH_VOLUME_{name}")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn args(volumes: &[&str]) -> Run {
        Run {
            volumes: volumes.iter().map(|volume| volume.parse().unwrap()).collect(),
            node: None,
            alloc: None,
            wait: None,
            access: None,
            attachment: None,
            per_alloc: None,
            class: None,
            task_driver_mounts: TaskDriverMounts::All,
            no_wait_release: false,
            command: ["/bin/sh", "-c", "secret"].map(OsString::from).to_vec(),
        }
    }

    fn mounted(source: &str, path: &str) -> Mounted {
        Mounted { source: VolumeId::new(source).unwrap(), path: PathBuf::from(path) }
    }

    #[test]
    fn volumes_are_claimed_in_one_order_whatever_order_they_are_given_in() {
        let plan = Plan::new(&args(&["b:ro", "a"]), "host-7", 0xab).unwrap();
        let register = plan.register();
        assert_eq!(register.id.as_str(), "run-000000ab");
        assert_eq!(register.node.as_str(), "host-7");
        let volumes: Vec<(&str, bool)> = register
            .volumes
            .iter()
            .map(|volume| (volume.source.as_str(), volume.read_only))
            .collect();
        assert_eq!(volumes, [("a", false), ("b", true)]);
    }

    #[test]
    fn a_run_with_an_index_requests_the_volumes_of_that_index() {
        let args = Run { per_alloc: Some(2), ..args(&["shard"]) };
        let plan = Plan::new(&args, "h", 0).unwrap();
        assert_eq!(plan.register().index, Some(2));
        assert_eq!(plan.volumes()[0].volume.as_str(), "shard[2]");
        assert_eq!(plan.volumes()[0].source.as_str(), "shard");
    }

    #[test]
    fn arguments_stay_out_of_the_record() {
        let note = Plan::new(&args(&["a"]), "h", 0).unwrap().register().note.unwrap();
        assert_eq!(note, "berth run: sh");
    }

    #[test]
    fn the_command_is_told_where_its_volumes_are() {
        let args = args(&["my.data-0", "x:/srv/x", "y:/srv"]);
        let plan = Plan::new(&args, "h", 0).unwrap();
        let mounted = [mounted("my.data-0", "/b/1"), mounted("x", "/b/2"), mounted("y", "/b/3")];
        let mut environment: Vec<(String, String)> = plan
            .command(&args, &mounted)
            .get_envs()
            .map(|(name, value)| (name, value.unwrap()))
            .map(|(name, value)| (name.to_str().unwrap().into(), value.to_str().unwrap().into()))
            .collect();
        environment.sort();
        let expected = [
            ("BERTH_VOLUME_MY_DATA_0", "/b/1"),
            ("BERTH_VOLUME_X", "/b/2"),
            ("BERTH_VOLUME_Y", "/b/3"),
        ];
        assert_eq!(environment, expected.map(|(name, path)| (name.to_owned(), path.to_owned())));
        let bind =
            |from: &str, to: &str| Bind { from: from.into(), to: to.into(), read_only: false };
        assert_eq!(plan.binds(&mounted), [bind("/b/3", "/srv"), bind("/b/2", "/srv/x")]);
    }

    #[test]
    fn a_new_volume_has_an_id_of_the_alloc_and_a_variable_of_its_own() {
        let args = Run {
            per_alloc: Some(2),
            class: ClassId::new("fast").ok(),
            ..args(&["new:1GiB:/proc", "shard", "new:big:2GiB"])
        };
        let plan = Plan::new(&args, "h", 0xab).unwrap();
        let new: Vec<(&str, Option<&str>, u64)> = plan
            .ephemeral()
            .iter()
            .map(|new| (new.id.as_str(), new.class.as_ref().map(ClassId::as_str), new.size.bytes()))
            .collect();
        let expected = [
            ("run-000000ab-new-0", Some("fast"), 1 << 30),
            ("run-000000ab-new-1", Some("big"), 2 << 30),
        ];
        assert_eq!(new, expected);
        let volumes: Vec<&str> =
            plan.volumes().iter().map(|volume| volume.volume.as_str()).collect();
        assert_eq!(volumes, ["run-000000ab-new-0", "run-000000ab-new-1", "shard[2]"]);
        let mounted = [mounted("run-000000ab-new-0", "/b/1")];
        let command = plan.command(&args, &mounted);
        let environment: Vec<_> = command.get_envs().collect();
        assert_eq!(environment, [("BERTH_VOLUME_NEW_0".as_ref(), Some("/b/1".as_ref()))]);
        assert_eq!(plan.binds(&mounted)[0].to, Path::new("/proc"));
    }

    #[test]
    fn a_class_without_a_new_volume_is_refused() {
        let args = Run { class: ClassId::new("fast").ok(), ..args(&["data"]) };
        let failure = Plan::new(&args, "h", 0).unwrap_err();
        assert_eq!(failure.exit(), crate::exit::USAGE);
    }

    #[test]
    fn volumes_with_equal_variables_or_paths_are_refused_before_anything_is_sent() {
        for (volumes, reason) in [
            (["a", "a:ro"], "volume a is asked for twice"),
            (["a-b", "a_b"], "volumes a-b and a_b would both be $BERTH_VOLUME_A_B"),
            (["a:/srv", "b:/srv"], "two volumes are to be at /srv"),
            (["new-0", "new:1GiB"], "volume new-0 and a new one would both be $BERTH_VOLUME_NEW_0"),
        ] {
            let failure = Plan::new(&args(&volumes), "h", 0).unwrap_err();
            assert_eq!(failure.exit(), crate::exit::USAGE);
            assert!(failure.to_string().contains(reason), "{failure}");
        }
    }

    #[test]
    fn a_volume_at_several_paths_is_one_claim_that_writes_when_one_of_them_does() {
        let plan = Plan::new(&args(&["a:/srv", "a:/srv/x:ro", "b:/y:ro", "b:/z:ro"]), "h", 0);
        let plan = plan.unwrap();
        let volumes: Vec<(String, bool)> = plan
            .register()
            .volumes
            .iter()
            .map(|volume| (volume.source.to_string(), volume.read_only))
            .collect();
        assert_eq!(volumes, [("a".to_owned(), false), ("b".to_owned(), true)]);
        let binds = plan.binds(&[mounted("a", "/n/a"), mounted("b", "/n/b")]);
        let binds: Vec<_> = binds
            .iter()
            .map(|bind| (bind.from.to_str().unwrap(), bind.to.to_str().unwrap(), bind.read_only))
            .collect();
        let expected = [
            ("/n/a", "/srv", false),
            ("/n/a", "/srv/x", true),
            ("/n/b", "/y", true),
            ("/n/b", "/z", true),
        ];
        assert_eq!(binds, expected);
    }

    #[test]
    fn volumes_that_the_runner_cannot_mount_are_refused_before_anything_is_sent() {
        for (mounts, words) in
            [(TaskDriverMounts::None, "no volumes"), (TaskDriverMounts::Host, "host only")]
        {
            let args = Run { task_driver_mounts: mounts, ..args(&["b", "a"]) };
            let failure = Plan::new(&args, "h", 0).unwrap().check().unwrap_err().to_string();
            assert!(failure.contains("volume a, b: ") && failure.contains(words), "{failure}");
        }
    }

    #[test]
    fn a_path_inside_another_volume_need_not_exist_yet() {
        let plan = Plan::new(&args(&["a:/proc/nowhere", "b:/proc"]), "h", 0).unwrap();
        let failure = plan.check().err().map(|failure| failure.to_string()).unwrap_or_default();
        assert!(!failure.contains("nowhere"), "{failure}");
    }

    #[test]
    fn a_path_must_exist_before_anything_is_claimed() {
        let plan = Plan::new(&args(&["a:/nonexistent/x"]), "h", 0).unwrap();
        let failure = plan.check().unwrap_err().to_string();
        assert!(failure.contains("volume a cannot be put at /nonexistent/x"), "{failure}");
    }
}
