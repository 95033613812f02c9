//! nats-servers, services and stand-ins, each a process of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_access::{LocalFleet, Role};
use berth_bus::{Bucket, Bus};
use berth_contract::bucket;
use berth_contract::verb::{self, Verb as _};
use berth_domain::{Namespace, NodeId, PluginId};
use berth_harness::dirs::Dir;
use berth_harness::nats::{NatsOptions, NatsServers};
use berth_harness::process::{Daemon, Program};
use berth_harness::wait;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::Fatal;
use crate::ask::{self, NODE};
use crate::bare;
use crate::identity;
use crate::machine::{busy, disk_used, resident};
use crate::stats::count;

/// How long a process may take to get ready.
const READY: Duration = Duration::from_secs(60);
/// The directory of the identities, below the site's directory.
const ACCESS: &str = "access";
/// The servers together, as a process.
const SERVER: &str = "nats-server";
/// The name of the first of three servers.
const FIRST: &str = "n1";

/// One system under measurement. Its processes end when it is dropped.
pub struct Site {
    /// The number of nats-servers.
    pub servers: u32,
    /// The only connection of the load generator.
    pub bus: Bus,
    // Dropped in this order: the processes before the servers, the files last.
    running: BTreeMap<String, Daemon>,
    nats: NatsServers,
    fleet: LocalFleet,
    dir: Dir,
}

impl Site {
    /// Starts the servers and connects to them; no service yet.
    pub async fn start(servers: u32) -> Result<Self, Fatal> {
        if !matches!(servers, 1 | 3) {
            return Err(format!("{servers} servers: it is 1 or 3").into());
        }
        let dir = Dir::new("bench");
        let access = dir.join(ACCESS);
        let fleet = LocalFleet::create(&access, &[identity::SERVER])?;
        let extra = &fleet.server_config(identity::SERVER)?;
        let login = Some(&identity::login(&fleet, &identity::admin("harness"))?);
        let options = NatsOptions { extra, login, ..NatsOptions::default() };
        let nats = NatsServers::start_with(usize::try_from(servers)?, options).await;
        let config = identity::config(&access, nats.first().url(), "load")?;
        let bus = Bus::connect(bare::plain(config)).await?;
        Ok(Self { servers, bus, running: BTreeMap::new(), nats, fleet, dir })
    }

    /// The first server, to which every process connects. Of three servers it leads every stream
    /// that is measured (see [`Self::lead_from_the_first`]).
    pub fn url(&self) -> String {
        self.nats.first().url()
    }

    /// Copies of each stream.
    pub fn copies(&self) -> u8 {
        self.nats.copies()
    }

    /// A path in the site's own directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The bucket of volumes.
    pub async fn volumes(&self) -> Result<Bucket, Fatal> {
        Ok(self.bus.bucket(&bucket::VOLUMES, self.copies()).await?)
    }

    /// The directory of the identities.
    pub fn access(&self) -> PathBuf {
        self.path(ACCESS)
    }

    /// Starts a service with these fields of its configuration; the others have their defaults.
    pub fn service(&mut self, role: &Role, fields: &str) -> Result<(), Fatal> {
        let (program, name) = match role {
            Role::Node { .. } => ("berth-node-agent".to_owned(), "agent"),
            Role::PluginRegistry => ("berth-plugin-registry".to_owned(), "registry"),
            other => (format!("berth-{}", other.kind()), other.kind()),
        };
        let program = Program::service_at(beside(&program)?, name, &self.dir).configured(fields);
        let daemon = program
            .on_bus(self.url(), self.copies())
            .identified(&identity::login(&self.fleet, role)?)
            .start();
        self.running.insert(name.to_owned(), daemon);
        Ok(())
    }

    /// Starts this program once more, with one of its hidden subcommands.
    pub fn servant(&mut self, name: &str, flags: &[(&str, &Path)]) -> Result<(), Fatal> {
        let mut args = vec![name.into(), "--nats".into(), self.url().into()];
        args.extend(["--access".into(), self.access().into()]);
        args.extend(["--replicas".into(), self.copies().to_string().into()]);
        for (flag, value) in flags {
            args.extend([(*flag).into(), value.as_os_str().to_owned()]);
        }
        self.start_program("berth-bench", name, args)
    }

    /// Starts a program that was built together with this one.
    pub fn start_program(
        &mut self,
        program: &str,
        name: &str,
        args: impl IntoIterator<Item = std::ffi::OsString>,
    ) -> Result<(), Fatal> {
        let daemon = Program::service_at(beside(program)?, name, &self.dir).args(args).start();
        self.running.insert(name.to_owned(), daemon);
        Ok(())
    }

    /// A running process.
    pub fn daemon(&self, name: &str) -> Result<&Daemon, Fatal> {
        self.running.get(name).ok_or_else(|| format!("{name} was not started").into())
    }

    /// Processor time so far: of the load generator, of all servers together, of each service.
    pub fn worked(&self) -> Result<BTreeMap<String, Duration>, Fatal> {
        let mut worked = BTreeMap::from([("load".to_owned(), busy(std::process::id())?)]);
        let servers = self.nats_pids().into_iter().map(busy).collect::<Result<Vec<_>, _>>()?;
        worked.insert(SERVER.to_owned(), servers.into_iter().sum());
        for (name, daemon) in &self.running {
            worked.insert(name.clone(), busy(daemon.pid())?);
        }
        Ok(worked)
    }

    /// Processor time of each process since `before`, per operation, in microseconds.
    pub fn worked_each(
        &self,
        before: &BTreeMap<String, Duration>,
        operations: usize,
    ) -> Result<BTreeMap<String, f64>, Fatal> {
        let each = |(process, after): (String, Duration)| {
            let before = before.get(&process).copied().unwrap_or_default();
            let us = after.saturating_sub(before).as_secs_f64() * 1e6;
            (process, us / count(operations))
        };
        Ok(self.worked()?.into_iter().map(each).collect())
    }

    /// Does some work; returns its output and each process's share of one core meanwhile, in
    /// percent.
    pub async fn shares<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<(T, BTreeMap<String, f64>), Fatal> {
        let (began, before) = (Instant::now(), self.worked()?);
        let output = work.await;
        let took_us = began.elapsed().as_secs_f64() * 1e6;
        let worked_us = self.worked_each(&before, 1)?.into_iter();
        Ok((output, worked_us.map(|(process, us)| (process, us / took_us * 100.0)).collect()))
    }

    /// Kills a service and starts it again: the time until it answers at this subject. It answers
    /// once it has read everything.
    pub async fn restarted(
        &self,
        name: &str,
        subject: &str,
        body: &Value,
        within: Duration,
    ) -> Result<Duration, Fatal> {
        self.daemon(name)?.kill9();
        wait::until(&format!("{name} is gone"), PATIENCE, || async {
            match ask::ask(&self.bus, subject, body).await {
                Ok(_) => Err("the killed service answers"),
                Err(_) => Ok(()),
            }
        })
        .await;
        let began = Instant::now();
        self.daemon(name)?.restart();
        while ask::ask(&self.bus, subject, body).await.is_err() {
            if began.elapsed() > within {
                return Err(format!("{name} does not answer after {within:?}").into());
            }
            sleep(Duration::from_millis(2)).await;
        }
        Ok(began.elapsed())
    }

    /// The resident memory of a process, in bytes; of all servers together.
    pub fn memory(&self, name: &str) -> Result<u64, Fatal> {
        match name {
            SERVER => self.nats_pids().into_iter().map(resident).sum(),
            name => resident(self.daemon(name)?.pid()),
        }
    }

    /// The space that the servers' stores take on the disk, in bytes.
    pub fn disk_used(&self) -> Result<u64, Fatal> {
        self.nats.servers().iter().map(|server| disk_used(&server.store())).sum()
    }

    /// The nats-servers' processes.
    pub fn nats_pids(&self) -> Vec<u32> {
        self.nats.servers().iter().map(|server| server.daemon().pid()).collect()
    }

    /// Starts the claim service and the registry, and waits until both answer.
    pub async fn start_claims(&mut self) -> Result<(), Fatal> {
        self.start_claims_with("").await
    }

    /// Starts them with these fields of the claim service's configuration.
    pub async fn start_claims_with(&mut self, fields: &str) -> Result<(), Fatal> {
        self.service(&Role::PluginRegistry, "")?;
        self.service(&Role::Claim, fields)?;
        let list = verb::ClaimStatus::subject(&Namespace::default());
        for subject in [list, verb::PluginStatus::subject(&())] {
            self.answers(&subject).await;
        }
        Ok(())
    }

    /// Starts the watcher and the collector.
    pub async fn start_releases(&mut self) -> Result<(), Fatal> {
        self.service(&Role::Volumewatcher, "")?;
        self.service(&Role::Gc, "")?;
        self.answers("$SRV.INFO.berth-volumewatcher").await;
        Ok(())
    }

    /// Waits until a service answers at this subject.
    pub async fn answers(&self, subject: &str) {
        wait::until(&format!("{subject} is answered"), READY, async || {
            ask::ask(&self.bus, subject, &json!({})).await
        })
        .await;
    }

    /// Starts the stand-in node, and waits until the registry counts its plugins healthy.
    pub async fn start_stand_in(&mut self) -> Result<(), Fatal> {
        self.servant("stand-in", &[])?;
        self.healthy(crate::stand_in::ATTACHING).await;
        Ok(())
    }

    /// Waits until a plugin is healthy on the node, and so are its controllers.
    pub async fn healthy(&self, plugin: &str) {
        wait::until(&format!("{plugin} is healthy"), READY, || async {
            let body = json!({"id": plugin});
            let answer = ask::ask(&self.bus, &verb::PluginStatus::subject(&()), &body).await;
            let answer = answer.map_err(|error| error.to_string())?;
            let status = &answer["plugins"][0];
            let all_healthy =
                |count: &Value| count.is_null() || count["healthy"] == count["expected"];
            let nodes = &status["nodes"];
            if nodes["healthy"] == 1 && all_healthy(nodes) && all_healthy(&status["controllers"]) {
                Ok(())
            } else {
                Err(answer.to_string())
            }
        })
        .await;
    }

    /// Starts the bare service. It writes and answers what one claim wrote and was answered, which
    /// is made for that. Returns the value that it writes.
    pub async fn start_bare(&mut self) -> Result<Vec<u8>, Fatal> {
        let namespace = Namespace::new("probe")?;
        let (volume, alloc) = ("volume-000000", "alloc-000000");
        let plugin = crate::stand_in::PLAIN;
        ask::register_volume(&self.bus, &namespace, volume, plugin, "single-node-writer").await?;
        ask::register_alloc(&self.bus, &namespace, alloc, volume).await?;
        // Healthy at the registry is not yet healthy at the claim service.
        let grant = wait::until("a claim is granted", READY, || {
            ask::take(&self.bus, &namespace, alloc, volume)
        })
        .await;
        let key = format!("{}.{volume}.claim.{alloc}", namespace.as_str());
        let stored = self.volumes().await?.get(&key).await?.and_then(|stored| stored.value);
        let value = stored.ok_or("the claim that was granted is not in the bucket")?.to_vec();
        let (value_file, answer_file) = (self.path("value.json"), self.path("answer.json"));
        std::fs::write(&value_file, &value)?;
        std::fs::write(&answer_file, grant.to_string())?;
        let files = [("--value", value_file.as_path()), ("--answer", answer_file.as_path())];
        self.servant("bare", &files)?;
        self.answers("$SRV.INFO.bench-bare").await;
        Ok(value)
    }

    /// On three servers: makes the first lead the streams, so that each measured writer is the same
    /// number of hops from its leader.
    pub async fn lead_from_the_first(&self) -> Result<(), Fatal> {
        if self.servers == 1 {
            return Ok(());
        }
        let service_buckets = [bucket::VOLUMES.name, bucket::ALLOCS.name];
        for name in service_buckets.into_iter().chain([bare::BUCKET.name, bare::FOLLOWED.name]) {
            let stream = format!("KV_{name}");
            let subject = format!("$JS.API.STREAM.LEADER.STEPDOWN.{stream}");
            let mut tries = 0;
            while self.leader_of(&stream).await != FIRST {
                tries += 1;
                if tries > 20 {
                    return Err(format!("{stream} is not led by the first server").into());
                }
                let first = json!({"placement": {"preferred": FIRST}});
                // Refused while another election runs; the next round checks.
                let _: Result<Value, _> = ask::ask(&self.bus, &subject, &first).await;
                sleep(Duration::from_millis(250)).await;
            }
        }
        Ok(())
    }

    /// The name of the server that leads the stream.
    async fn leader_of(&self, stream: &str) -> String {
        let subject = format!("$JS.API.STREAM.INFO.{stream}");
        wait::until(&format!("{stream} has a leader"), READY, async || {
            let info = ask::ask(&self.bus, &subject, &json!({})).await;
            let info = info.map_err(|error| error.to_string())?;
            let leader = info["cluster"]["leader"].as_str().map(str::to_owned);
            leader.ok_or_else(|| info.to_string())
        })
        .await
    }
}

/// The identity of the agent of the one node.
pub fn agent(plugin: &str) -> Result<Role, Fatal> {
    Ok(Role::Node { node: NodeId::new(NODE)?, controllers: vec![PluginId::new(plugin)?] })
}

/// A configuration for the agent of the one node, hosting a plugin at a socket.
pub fn agent_config(state_dir: &Path, plugin: &str, socket: &Path) -> String {
    format!(
        "node = \"{NODE}\"\nstate_dir = \"{}\"\nprobe_interval_ms = 500\n\n\
         [[plugin]]\nid = \"{plugin}\"\nsocket = \"{}\"\n",
        state_dir.display(),
        socket.display()
    )
}

/// A program that was built together with this one.
pub fn beside(program: &str) -> Result<PathBuf, Fatal> {
    let path = std::env::current_exe()?.with_file_name(program);
    if path.is_file() {
        return Ok(path);
    }
    Err(format!("{} is not there; `make bench` builds it", path.display()).into())
}

/// How long anything here may wait for one answer.
pub const PATIENCE: Duration = Duration::from_secs(60);
