//! Plugins that come and go while the agent runs, and processes that it runs.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::plugin::{
    AgentPlugins, AgentPluginsQuery, LocalInstance, OrderedInstances, StartPlugin, StopPlugin,
};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb};
use berth_domain::plugin::{Half, Instance};
use berth_domain::{NodeId, PluginId};
use berth_harness::process::binary;
use berth_harness::wait;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::world::{Differences, EXTERNAL, PATIENCE, PLUGIN, World, call, half, node, plugin};

pub const LONG: Duration = Duration::from_secs(60);

/// A world with directories in which plugins are found; the configured one is away. The processes
/// that its agent runs end with it.
pub struct Plant(World);

impl Deref for Plant {
    type Target = World;

    fn deref(&self) -> &World {
        &self.0
    }
}

impl Drop for Plant {
    fn drop(&mut self) {
        self.agent.kill9();
        let records = fs::read_dir(self.dir.join("state/plugins"));
        for dir in records.into_iter().flatten().flatten() {
            let text = fs::read_to_string(dir.path().join("instance.json")).unwrap_or_default();
            let record: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            if let Some(pid) = record["process"]["pid"].as_i64() {
                signal(u32::try_from(pid).unwrap(), Signal::SIGKILL);
            }
        }
    }
}

fn signal(pid: u32, signal: Signal) {
    let _ = kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal);
}

fn runs(pid: u32) -> bool {
    let stat = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        // Nothing else says that there is no such process: ENOENT, or ESRCH while it goes.
        Err(error) if matches!(error.raw_os_error(), Some(2 | 3)) => return false,
        Err(error) => panic!("process {pid} cannot be looked at: {error}"),
    };
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

impl Plant {
    pub async fn start() -> Self {
        let agent = "plugins_dir = '{dir}/plugins.d'\nsockets_dir = '{dir}/sockets'\n\
                     finish_releases_ms = 500";
        let differences = Differences { agent, ..Differences::default() };
        let plant = Self(World::start_without_waiting(differences).await);
        plant.driver.kill9();
        for dir in ["plugins.d", "sockets"] {
            fs::create_dir(plant.dir.join(dir)).unwrap();
        }
        wait::until("the agent answers", PATIENCE, async || plant.here().await).await;
        plant
    }

    pub async fn here(&self) -> Result<AgentPlugins, Problem> {
        self.ask_agent::<verb::AgentPlugins>(&AgentPluginsQuery {}).await
    }

    async fn ask_agent<V: Verb<To = NodeId>>(
        &self,
        request: &V::Request,
    ) -> Result<V::Reply, Problem> {
        self.ask(&V::subject(&node()), request, Duration::from_secs(5)).await
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join("plugins.d").join(format!("{name}.toml"))
    }

    /// Puts a file there at once, as a careful operator does.
    pub fn write(&self, name: &str, text: &str) {
        let (beside, file) = (self.dir.join("beside"), self.file(name));
        fs::write(&beside, text).unwrap();
        fs::rename(beside, file).unwrap();
    }

    pub fn remove(&self, name: &str) {
        fs::remove_file(self.file(name)).unwrap();
    }

    /// The development driver as a command, of this version.
    pub fn command(&self, id: &str, version: &str, more: &str) -> String {
        let path = |name: &str| self.dir.join(name).display().to_string();
        let argv = [
            binary("berth-csi-dev").display().to_string(),
            "serve".to_owned(),
            "--node-id=node-1".to_owned(),
            format!("--backend={}", path("backend")),
            format!("--log={}", path("calls.log")),
            format!("--vendor-version={version}"),
        ];
        format!("id = '{id}'\ncommand = {argv:?}\nstop_timeout_ms = 500\n{more}")
    }

    /// The instances of the plugin that come from a file or socket of this name.
    pub async fn of(&self, name: &str) -> Vec<LocalInstance> {
        let here = self.here().await.unwrap();
        let of_it = |one: &LocalInstance| one.source.contains(name);
        here.instances.into_iter().filter(of_it).collect()
    }

    /// Waits until one instance is from there, and as it is to be.
    pub async fn one(
        &self,
        name: &str,
        as_it_is_to_be: impl Fn(&LocalInstance) -> bool,
    ) -> LocalInstance {
        wait::until(&format!("{name} is as it is to be"), LONG, async || {
            let all = self.of(name).await;
            let mut fit = all.iter().filter(|one| as_it_is_to_be(one));
            fit.next().cloned().ok_or(format!("{all:#?}"))
        })
        .await
    }

    pub async fn gone(&self, name: &str) {
        wait::until(&format!("{name} is gone"), LONG, async || {
            let all = self.of(name).await;
            if all.is_empty() { Ok(()) } else { Err(format!("{all:#?}")) }
        })
        .await;
    }

    async fn ended(&self, pid: u32) {
        wait::until(
            "the process has ended",
            LONG,
            async || {
                if runs(pid) { Err("it runs") } else { Ok(()) }
            },
        )
        .await;
    }

    async fn mounted(&self, alloc: &str, epoch: u64) {
        let context = self.attach(epoch + 1000).await;
        self.grant(alloc, epoch, &context);
        wait::until("it is mounted", LONG, async || {
            self.mount(alloc).await.map_err(|problem| problem.to_string())
        })
        .await;
    }

    async fn stop(&self, even_with_mounts: bool) -> Result<OrderedInstances, Problem> {
        let (plugin, by) = (plugin(), "ada".to_owned());
        let stop = StopPlugin { plugin, instance: None, even_with_mounts, by };
        self.ask_agent::<verb::AgentPluginStop>(&stop).await
    }

    /// The descriptions of a plugin in the last report.
    fn described(&self, id: &str) -> Vec<String> {
        let report = self.last_report().unwrap();
        let of_it = report.instances.into_iter().filter(|one| one.plugin.as_str() == id);
        of_it.map(|one| one.instance.description).collect()
    }
}

pub fn well(one: &LocalInstance) -> bool {
    one.healthy
}

#[tokio::test]
async fn a_half_that_a_plugin_does_not_have_is_never_reported() {
    let plant = Plant::start().await;
    let whole = plant.command("split", "1", "");
    plant.write("split", &whole.replacen("\"serve\"", "\"serve\", \"--serve=controller\"", 1));
    let id = PluginId::new("split").unwrap();
    wait::until("its controller is reported", LONG, async || {
        let report = plant.last_report().ok_or("nothing was reported")?;
        let mut own = report.instances.iter().filter(|one| one.plugin == id);
        let is_well = own.any(|one| one.half == Half::Controller && one.instance.healthy);
        if is_well { Ok(()) } else { Err(format!("{report:?}")) }
    })
    .await;
    for report in plant.reports() {
        let mut own = report.instances.iter().filter(|one| one.plugin == id);
        assert!(own.all(|one| one.half == Half::Controller), "{report:?}");
    }
}

#[tokio::test]
async fn files_and_sockets_come_and_go_while_the_agent_runs() {
    let plant = Plant::start().await;
    plant.write("by-command", &plant.command("c", "1.0", ""));
    let command = plant.one("by-command", well).await;
    assert!(command.supervised && command.serves && command.restarts == 0, "{command:?}");
    assert_eq!(command.version.as_deref(), Some("1.0"));
    let pid = command.pid.unwrap();

    // Its own socket, named by a file and then seen in the directory.
    plant.write("by-file", &format!("id = 'f'\nsocket = '{}'", command.socket));
    plant.one("by-file", well).await;
    let socket = plant.dir.join("sockets/s@old.sock");
    std::os::unix::fs::symlink(&command.socket, &socket).unwrap();
    let seen = plant.one("s@old.sock", well).await;
    let listener = seen.listener.unwrap();
    let known = (seen.plugin.as_str(), listener.pid, listener.command.as_str(), seen.pid);
    assert_eq!(known, ("s", pid, "berth-csi-dev", None));
    for id in ["c", "f", "s"] {
        wait::until("it is reported", PATIENCE, async || {
            let said = plant.described(id);
            if said.is_empty() { Err(format!("{id} is not")) } else { Ok(()) }
        })
        .await;
    }

    fs::remove_file(socket).unwrap();
    plant.gone("s@old.sock").await;
    plant.remove("by-file");
    plant.gone("by-file").await;
    assert!(runs(pid), "it is not theirs to end");
    plant.remove("by-command");
    plant.gone("by-command").await;
    plant.ended(pid).await;
    wait::until("they are no longer reported", PATIENCE, async || {
        let left: Vec<_> = ["c", "f", "s"].iter().flat_map(|id| plant.described(id)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    let kept = fs::read_dir(plant.dir.join("state/plugins")).unwrap().count();
    assert_eq!(kept, 1, "nothing is kept but of the one in the configuration");
}

#[tokio::test]
async fn a_process_outlives_the_agent_and_is_found_again_with_its_mounts() {
    let plant = Plant::start().await;
    plant.write("dev", &plant.command(PLUGIN, "1.0", ""));
    let first = plant.one("dev", well).await;
    plant.mounted("a", 10).await;
    let mounts = plant.mounts();
    plant.agent.kill9();
    assert!(runs(first.pid.unwrap()));
    plant.agent.restart();
    wait::until("the agent answers", LONG, async || plant.here().await).await;
    let again = plant.one("dev", well).await;
    assert_eq!((again.pid, again.restarts, again.mounts), (first.pid, 0, 1), "{again:?}");
    assert_eq!(again.since, first.since);
    assert_eq!(plant.mounts(), mounts);

    // Also after SIGTERM, and not only after a kill.
    assert!(plant.agent.terminate().await.success());
    plant.agent.restart();
    wait::until("the agent answers", LONG, async || plant.here().await).await;
    assert_eq!(plant.one("dev", well).await.pid, first.pid);

    signal(first.pid.unwrap(), Signal::SIGKILL);
    let next = plant.one("dev", |one| one.healthy && one.restarts == 1).await;
    assert_ne!(next.pid, first.pid);
    assert_eq!(plant.mounts(), mounts);
    plant.detach("a", 10, 11).await.unwrap();
    assert!(plant.mounts().is_empty());
    plant.judge();
}

#[tokio::test]
async fn a_plugin_with_mounts_is_not_stopped_without_being_told_twice() {
    let plant = Plant::start().await;
    plant.write("dev", &plant.command(PLUGIN, "1.0", ""));
    let first = plant.one("dev", well).await;
    let pid = first.pid.unwrap();
    plant.mounted("a", 10).await;
    let refused = plant.stop(false).await.unwrap_err();
    assert_eq!(refused.code, Code::PluginHeld, "{refused}");

    plant.remove("dev");
    let held = plant.one("dev", |one| one.leaving).await;
    assert_eq!((held.mounts, held.pid, held.healthy), (1, Some(pid), true), "{held:?}");
    wait::until("it is reported", PATIENCE, async || {
        let said = plant.described(PLUGIN).join("\n");
        if said.contains("its source is gone, 1 mount needs it") { Ok(()) } else { Err(said) }
    })
    .await;
    // Back again, as if nothing had been.
    plant.write("dev", &plant.command(PLUGIN, "1.0", ""));
    plant.one("dev", |one| !one.leaving && one.pid == Some(pid)).await;

    plant.remove("dev");
    plant.one("dev", |one| one.leaving).await;
    plant.detach("a", 10, 11).await.unwrap();
    plant.gone("dev").await;
    plant.ended(pid).await;
    plant.judge();
}

#[tokio::test]
async fn told_twice_it_is_stopped_and_started_when_told() {
    let plant = Plant::start().await;
    plant.write("dev", &plant.command(PLUGIN, "1.0", ""));
    let pid = plant.one("dev", well).await.pid.unwrap();
    plant.mounted("a", 10).await;
    let stopped = plant.stop(true).await.unwrap();
    assert_eq!(stopped.instances.len(), 1);
    plant.ended(pid).await;
    let one = plant.one("dev", |one| !one.healthy && one.pid.is_none()).await;
    assert_eq!(one.description, "stopped by ada");
    // It stays so, also when the agent is another.
    plant.agent.kill9();
    plant.agent.restart();
    wait::until("the agent answers", LONG, async || plant.here().await).await;
    assert_eq!(plant.one("dev", |_| true).await.stopped_by.as_deref(), Some("ada"));
    let start = StartPlugin { plugin: plugin(), instance: None };
    let started: OrderedInstances =
        plant.ask_agent::<verb::AgentPluginStart>(&start).await.unwrap();
    assert_eq!(started, stopped);
    plant.one("dev", well).await;
    plant.detach("a", 10, 11).await.unwrap();
    let nobody = StartPlugin { plugin: PluginId::new("nobody").unwrap(), instance: None };
    let refused = plant.ask_agent::<verb::AgentPluginStart>(&nobody).await.unwrap_err();
    assert_eq!(refused.code, Code::NoSuchPlugin);
}

#[tokio::test]
async fn an_upgrade_runs_beside_the_old_one_and_drops_no_mount() {
    let plant = Plant::start().await;
    plant.write("dev", &plant.command(PLUGIN, "1.0", ""));
    let old = plant.one("dev", well).await;
    plant.mounted("a", 10).await;
    let mounts = plant.mounts();
    plant.write("dev", &plant.command(PLUGIN, "2.0", ""));
    let new = plant.one("dev", |one| one.healthy && one.version.as_deref() == Some("2.0")).await;
    assert!(new.serves && !new.leaving && new.pid != old.pid, "{new:?}");
    let held = plant.one("dev", |one| one.leaving && one.pid == old.pid).await;
    assert_eq!((held.mounts, held.serves), (1, false), "{held:?}");
    assert_eq!(new.mounts, 0);
    wait::until("the new version is reported", PATIENCE, async || {
        let report = plant.last_report().unwrap();
        let versions: Vec<_> =
            report.instances.iter().map(|one| one.instance.version.clone()).collect();
        if versions == ["2.0", "2.0"] { Ok(()) } else { Err(format!("{versions:?}")) }
    })
    .await;
    // Both are known again.
    plant.agent.kill9();
    plant.agent.restart();
    wait::until("the agent answers", LONG, async || plant.here().await).await;
    let held = plant.one("dev", |one| one.leaving && one.pid == old.pid).await;
    assert_eq!(held.mounts, 1, "{held:?}");
    plant.one("dev", |one| one.pid == new.pid && one.healthy && one.mounts == 0).await;
    assert_eq!(plant.mounts(), mounts);
    // What the old one mounted is taken down by the new one, and nothing holds the old one then.
    plant.detach("a", 10, 11).await.unwrap();
    plant.ended(old.pid.unwrap()).await;
    plant.mounted("b", 20).await;
    plant.detach("b", 20, 21).await.unwrap();
    wait::until("the old one is gone", LONG, async || {
        let pids: Vec<_> = plant.of("dev").await.iter().map(|one| one.pid).collect();
        if pids == [new.pid] { Ok(()) } else { Err(format!("{pids:?}")) }
    })
    .await;
    plant.judge();
}

#[tokio::test]
async fn a_command_that_crashes_is_started_again_with_backoff_in_sight() {
    let plant = Plant::start().await;
    plant.write("bad", "id = 'bad'\ncommand = ['/bin/sh', '-c', 'echo boom; exit 3']");
    plant.write("none", "id = 'none'\ncommand = ['/nowhere/at/all']");
    let told = |one: &LocalInstance| one.description.contains("it exited with status 3");
    let bad = plant.one("bad", |one| one.restarts >= 2 && told(one)).await;
    assert!(!bad.healthy, "{bad:?}");
    let none = plant.one("none", |one| one.description.contains(", try ")).await;
    assert!(none.description.contains("/nowhere/at/all cannot be started"), "{none:?}");
    wait::until("it is reported", PATIENCE, async || {
        let said = plant.described("bad").join("\n");
        if said.contains("started again") { Ok(()) } else { Err(said) }
    })
    .await;
    assert!(plant.agent.log().contains("boom"), "what it says is in the log");
    plant.remove("bad");
    plant.remove("none");
    plant.gone("bad").await;
    plant.gone("none").await;
}

/// When each of its processes began, by the clock of the host, as it wrote it down itself.
fn starts(file: &Path) -> Vec<Duration> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| Duration::from_nanos(line.parse().unwrap())).collect()
}

/// The waits that the agent logged for an instance, in order.
fn waits(log: &str, instance: &str) -> Vec<Duration> {
    let of_it = |line: &&str| {
        let fields = line.split_whitespace();
        line.contains("is started again") && fields.clone().any(|field| field == instance)
    };
    let wait = |line: &str| {
        let said = line.split("wait=").nth(1)?.split_whitespace().next()?;
        let (number, unit) = said.split_at(said.find(char::is_alphabetic)?);
        let unit = if unit == "s" { 1.0 } else { 0.001 };
        Some(Duration::from_secs_f64(number.parse::<f64>().ok()? * unit))
    };
    log.lines().filter(of_it).map(|line| wait(line).unwrap_or_default()).collect()
}

/// A slow machine makes a start later and none earlier, so what is held against the bounds is the
/// wait that was chosen, and against the starts that none came before its wait was over.
#[tokio::test]
async fn waits_between_starts_double_with_jitter_and_are_waited_out() {
    const STARTS: usize = 5;
    let plant = Plant::start().await;
    let names = ["one", "two"];
    let file = |name: &str| plant.dir.join(format!("starts-{name}"));
    for name in names {
        let script = format!("date +%s%N >> {}; exit 3", file(name).display());
        plant.write(name, &format!("id = '{name}'\ncommand = ['/bin/sh', '-c', '{script}']"));
    }
    wait::until("both were started often enough", LONG, async || {
        let counts = names.map(|name| starts(&file(name)).len());
        if counts.iter().all(|count| *count >= STARTS) {
            Ok(())
        } else {
            Err(format!("{counts:?}"))
        }
    })
    .await;
    let log = plant.agent.log();
    let chosen = names.map(|name| waits(&log, &format!("plugin={name}")));
    for (name, chosen) in names.iter().zip(&chosen) {
        let starts = starts(&file(name));
        for (at, pair) in starts.windows(2).enumerate() {
            let (wait, passed) = (chosen[at], pair[1].saturating_sub(pair[0]));
            let whole = Duration::from_millis(500) * (1 << at);
            assert!((whole / 2..=whole).contains(&wait), "{name}, try {}: {chosen:?}", at + 1);
            assert!(passed >= wait, "{name}: {passed:?} passed, and {wait:?} was to be waited");
        }
    }
    // Plugins that fail together do not restart together: each pause is random, in nanoseconds.
    let equal = chosen[0].iter().zip(&chosen[1]).filter(|(one, two)| one == two).count();
    assert!(chosen[0].len() >= STARTS - 1 && equal <= 1, "{chosen:?}");
    for name in names {
        plant.remove(name);
        plant.gone(name).await;
    }
}

#[tokio::test]
async fn one_that_hangs_is_started_again_unless_mounts_need_it() {
    let plant = Plant::start().await;
    plant.write("dev", &plant.command(PLUGIN, "1.0", "health_timeout_ms = 1500"));
    let first = plant.one("dev", well).await;
    signal(first.pid.unwrap(), Signal::SIGSTOP);
    let next = plant.one("dev", |one| one.restarts == 1 && one.healthy).await;
    assert_ne!(next.pid, first.pid);
    assert!(!runs(first.pid.unwrap()));

    plant.mounted("a", 10).await;
    signal(next.pid.unwrap(), Signal::SIGSTOP);
    wait::until("it is said why it is left alone", LONG, async || {
        let said = plant.described(PLUGIN).join("\n");
        let told = said.contains("not started again") && said.contains("1 mount needs it");
        if told { Ok(()) } else { Err(said) }
    })
    .await;
    assert!(runs(next.pid.unwrap()));
    signal(next.pid.unwrap(), Signal::SIGCONT);
    plant.one("dev", |one| one.healthy && one.pid == next.pid).await;
    plant.detach("a", 10, 11).await.unwrap();
}

#[tokio::test]
async fn garbage_is_told_and_a_hundred_files_come_at_once() {
    let plant = Plant::start().await;
    fs::write(plant.file("garbage"), [0xff, 0xfe, 0x00]).unwrap();
    plant.write("empty", "");
    plant.write("wrong", "id = ''\nsocket = 'here'\ncolour = 'red'");
    for number in 0..100 {
        plant.write(&format!("p{number}"), &format!("id = 'p{number}'\nsocket = '/nowhere'"));
    }
    // One socket once: the others are told.
    let here = wait::until("the faults are told", LONG, async || {
        let here = plant.here().await.map_err(|problem| problem.to_string())?;
        if here.faults.len() == 102 { Ok(here) } else { Err(format!("{:?}", here.faults)) }
    })
    .await;
    let wrong = here.faults.iter().find(|one| one.source.contains("wrong")).unwrap();
    for part in ["line 1", "`id`", "line 2", "`socket`", "line 3", "`colour`"] {
        assert!(wrong.problem.contains(part), "{wrong:?}");
    }
    for number in 0..100 {
        let socket = plant.dir.join(format!("p{number}.sock"));
        let said = format!("id = 'p{number}'\nsocket = '{}'", socket.display());
        plant.write(&format!("p{number}"), &said);
    }
    // As many as a report can name; the others are told.
    let report = wait::until("those that there is room for are reported", LONG, async || {
        let report = plant.last_report().ok_or("nothing was reported".to_owned())?;
        let count = report.instances.len();
        if count == 32 { Ok(report) } else { Err(format!("{count} instances")) }
    })
    .await;
    assert!(report.instances.iter().all(|one| !one.instance.healthy));
    wait::until("the node says so, too", PATIENCE, async || {
        let said = plant.last_report().unwrap().attributes.get("plugin-faults").cloned();
        let said = said.ok_or("nothing is said".to_owned())?;
        if said.contains("4 of them") { Ok(()) } else { Err(said) }
    })
    .await;
    let here = plant.here().await.unwrap();
    let full = here.faults.iter().find(|one| one.source == "this node").unwrap();
    assert!(full.problem.contains("69 more are not taken in"), "{full:?}");
    assert!(plant.agent.log().contains("no plugin comes from there"));
    for entry in fs::read_dir(plant.dir.join("plugins.d")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    wait::until("all are gone", LONG, async || {
        let here = plant.here().await.map_err(|problem| problem.to_string())?;
        let (left, faults) = (here.instances.len(), here.faults.len());
        if (left, faults) == (1, 0) { Ok(()) } else { Err(format!("{left}, {faults} faults")) }
    })
    .await;
    assert!(plant.agent.is_running());
}

/// Between two probes another process may have taken the socket over.
#[tokio::test]
async fn who_is_behind_a_new_connection_is_asked_who_it_is() {
    let mut world = World::start().await;
    let before = world.last_report().unwrap().instances[0].instance.version.clone();
    world.agent.pause();
    world.replace_driver(&[], &["--vendor-version", "9.9"]).await;
    world.agent.resume();
    wait::until("the new version is reported", PATIENCE, async || {
        let report = world.last_report().unwrap();
        let instance = &report.instances[0].instance;
        if instance.healthy && instance.version == "9.9" {
            Ok(())
        } else {
            Err(instance.version.clone())
        }
    })
    .await;
    assert_ne!(before, "9.9");
}

/// An upgrade need not break the connection: behind a proxy, or where a plugin asks another.
#[tokio::test]
async fn what_a_plugin_can_do_is_read_again_when_its_version_changes_on_a_live_connection() {
    let world = World::start().await;
    let node = || half(&world.last_report().unwrap(), Half::Node)[0].instance.clone();
    let before = node();
    let stages = |one: &Instance| one.node.as_ref().is_some_and(|can| can.stage_unstage_volume);
    assert!(stages(&before), "{before:?}");
    let other = format!("{}-other", before.version);
    // Another version that stages no more, and the earlier one again.
    let upgrade = json!([
        {"rpc": "GetPluginInfo", "wrong": "other-version"},
        {"rpc": "NodeGetCapabilities", "wrong": "no-capabilities"},
    ]);
    for (faults, version, can_stage) in
        [(upgrade, &other, false), (json!([]), &before.version, true)]
    {
        world.plant(&faults);
        let after = wait::until("both are reported", PATIENCE, async || {
            let now = node();
            let read_again = now.version == *version && stages(&now) == can_stage;
            if read_again { Ok(now) } else { Err(format!("{now:?}")) }
        })
        .await;
        assert!(after.healthy && after.since == before.since, "it was well throughout: {after:?}");
        assert!(world.driver.is_running(), "the same process says so");
    }
}

/// A call to a plugin that no agent has, for the words.
#[tokio::test]
async fn a_plugin_that_is_gone_is_asked_for_in_vain_and_may_come_back() {
    let plant = Plant::start().await;
    let gone = plant.call(call(berth_domain::volume::CallKind::ControllerPublish, "a", 1, 1)).await;
    assert_eq!(gone.unwrap_err().code, Code::NoResponder, "{EXTERNAL} has no controller here");
    plant.write("dev", &plant.command(PLUGIN, "1.0", ""));
    plant.one("dev", well).await;
    plant.mounted("a", 10).await;
    plant.detach("a", 10, 11).await.unwrap();
}
