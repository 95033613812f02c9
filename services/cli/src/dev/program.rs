//! The processes of a `berth dev`, and their start.
//!
//! **Promises** that a child cannot outlive this process. The kernel kills the child when the
//! thread that started it ends (`setpriv --pdeathsig`), and that is the main thread.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, Command};

use super::layout::Layout;
use super::own_plugin::{OwnCommand, OwnPlugin};
use crate::failure::Failure;

/// The order in which processes are stopped. The bus is last, because all others use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Node agents: they end their plugin calls while the plugins still answer.
    Agents,
    /// The driver's instances.
    Drivers,
    /// The control services.
    Services,
    /// The bus.
    Bus,
}

impl Tier {
    /// All, in the order of stopping.
    pub const STOPPING: [Self; 4] = [Self::Agents, Self::Drivers, Self::Services, Self::Bus];
}

/// A process to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The base name of its log and pid files.
    pub name: String,
    /// When it is stopped.
    pub tier: Tier,
    path: PathBuf,
    args: Vec<OsString>,
    /// Where its output is appended.
    pub log: PathBuf,
    /// Where its pid is written.
    pub pid: PathBuf,
    /// A driver of the user's own.
    own: Option<OwnCommand>,
}

/// The binaries beside our own.
#[derive(Debug, Clone)]
pub struct Binaries(PathBuf);

const SERVICES: [&str; 4] = ["claim", "plugin-registry", "volumewatcher", "gc"];

impl Binaries {
    /// The directory of this executable, which must contain all other programs.
    pub fn beside_our_own() -> Result<Self, Failure> {
        let next = "build them all (cargo build --bins), or install them beside `berth`";
        let own = std::env::current_exe().map_err(|error| Failure::local(error, next))?;
        let dir = own.parent().unwrap_or(Path::new("/")).to_owned();
        let missing: Vec<String> = SERVICES
            .into_iter()
            .chain(["node-agent", "csi-dev"])
            .map(|name| format!("berth-{name}"))
            .filter(|name| !dir.join(name).is_file())
            .collect();
        if missing.is_empty() {
            return Ok(Self(dir));
        }
        let message = format!("missing in {}: {}", dir.display(), missing.join(", "));
        Err(Failure::local(message, next))
    }

    /// The directory of the binaries.
    pub fn dir(&self) -> &Path {
        &self.0
    }

    fn get(&self, name: &str) -> PathBuf {
        self.0.join(format!("berth-{name}"))
    }
}

/// Every process of the system, in the order of their start.
pub fn all_programs(
    nats: &Path,
    binaries: &Binaries,
    layout: &Layout,
    nodes: &[String],
    own: &[OwnPlugin],
) -> Vec<Program> {
    let program = |name: &str, tier, path: PathBuf, args: Vec<OsString>| Program {
        name: name.to_owned(),
        tier,
        path,
        args,
        log: layout.log(name),
        pid: layout.pid(name),
        own: None,
    };
    let config = |name: &str| vec!["--config".into(), layout.config(name, "toml").into()];
    let conf = vec!["-c".into(), layout.config("nats-server", "conf").into()];
    let mut programs = vec![program("nats-server", Tier::Bus, nats.to_owned(), conf)];
    for name in SERVICES {
        programs.push(program(name, Tier::Services, binaries.get(name), config(name)));
    }
    for node in nodes {
        let mut endpoint = OsString::from("unix://");
        endpoint.push(layout.socket(node));
        let args: Vec<OsString> = vec![
            "serve".into(),
            "--endpoint".into(),
            endpoint,
            "--node-id".into(),
            node.into(),
            "--backend".into(),
            layout.backend().into(),
            "--log".into(),
            layout.calls(node).into(),
            "--faults".into(),
            layout.faults().into(),
        ];
        let name = format!("driver-{node}");
        programs.push(program(&name, Tier::Drivers, binaries.get("csi-dev"), args));
    }
    let commands = nodes.iter().flat_map(|node| own.iter().map(move |plugin| (plugin, node)));
    for command in commands.filter_map(|(plugin, node)| plugin.command(layout, node)) {
        let Some((path, args)) = command.argv.split_first() else { continue };
        let args = args.iter().map(OsString::from).collect();
        let started = program(&command.name, Tier::Drivers, path.into(), args);
        programs.push(Program { own: Some(command.clone()), ..started });
    }
    for node in nodes {
        let name = format!("agent-{node}");
        let path = binaries.get("node-agent");
        programs.push(program(&name, Tier::Agents, path, config(&name)));
    }
    programs
}

impl Program {
    /// Starts the process, with its output appended to its log.
    pub fn start(&self) -> io::Result<Child> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(&self.path).args(&self.args);
        // Variables for `berth` in the user's shell are not passed on to the services.
        for (key, _) in std::env::vars_os() {
            if key.to_string_lossy().starts_with("BERTH_") {
                command.env_remove(key);
            }
        }
        if let Some(own) = &self.own {
            // A user's own driver gets the same environment as from the agent of a fleet.
            let path = std::env::var_os("PATH").unwrap_or_default();
            command.env_clear().env("PATH", path).envs(&own.env).current_dir("/");
            // A killed driver leaves its socket, and many drivers cannot bind it again.
            match std::fs::remove_file(&own.socket) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        // Its own process group: Ctrl-C reaches `berth dev` only, which stops the others in order.
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("setpriv (util-linux) cannot be run: {error}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_is_there_once_and_the_bus_goes_first_and_last() {
        let nodes = ["n1".to_owned(), "n2".to_owned()];
        let layout = Layout::in_dir(PathBuf::from("/d"));
        let programs =
            all_programs(Path::new("/nats-server"), &Binaries("/b".into()), &layout, &nodes, &[]);
        let names: Vec<&str> = programs.iter().map(|program| program.name.as_str()).collect();
        let expected = [
            "nats-server",
            "claim",
            "plugin-registry",
            "volumewatcher",
            "gc",
            "driver-n1",
            "driver-n2",
            "agent-n1",
            "agent-n2",
        ];
        assert_eq!(names, expected);
        assert_eq!(programs[0].tier, Tier::Bus);
        assert_eq!(Tier::STOPPING.last(), Some(&Tier::Bus));
        assert!(Tier::STOPPING.is_sorted());
    }
}
