//! The plugin instances on this node: they come, change and leave with their declarations.
//!
//! **Owns** the set of instances, and how each leaves. An instance leaves when its source is gone:
//!
//! ```text
//!           source gone            no mount, no call,            process ended
//!   (here) ────────────▶ leaving ─────────────────────▶ ending ───────────────▶ (gone)
//!      ▲                    │      no release under way
//!      └────────────────────┘
//!        source back         or: told so once more, with `even_with_mounts`
//! ```
//!
//! A changed declaration is another instance. It comes beside the old instance, which then leaves.
//! So a changed file is an upgrade that drops no mount.
//!
//! **Promises** that no instance leaves because a source cannot be read, and that the instances of
//! a killed agent are back after its restart, by their records.

mod orders;
mod output;
mod requests;
mod run;
mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_contract::event::EventName;
use berth_contract::message::plugin::SourceFault;
use berth_domain::PluginId;
use berth_domain::limits::LIST_MAX;
use berth_host::pool::directory_share;
use berth_host::{HostOperation, HostPool};
use berth_service::clock;
use berth_service::shutdown::{Shutdown, Trigger};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use crate::controllers::{self, ControllerHosting};
use crate::fleet::finish;
use crate::host::pool::{CHANGE_MAX, with_agent_file};
use crate::journal::Journal;
use crate::plugins::member::describe_needing_mounts;
use crate::plugins::record::{InstanceRecord, InstanceRecords};
use crate::plugins::{Plugin, PluginInstance, Plugins, ProbeTiming, supervise};
pub use requests::{ORDERS_MAX, PluginOrders, RosterRequest};
use run::{ProcessContext, ProcessOrder};
pub use scan::PluginSources;
use scan::{PluginScanner, ScanResult};

/// Interval at which the sources of plugins are scanned.
const SCAN_INTERVAL: Duration = Duration::from_millis(300);
/// Largest number of plugins. A report names both halves of each plugin, and the registry refuses a
/// report that names too many.
const PLUGINS_MAX: usize = LIST_MAX / 2;
/// Largest number of instances of all plugins together.
const INSTANCES_MAX: usize = 256;
/// How long a leaving instance waits for another instance of its plugin to be healthy.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(10);

/// What a roster works with.
pub struct RosterContext {
    pub plugins: Plugins,
    pub sources: PluginSources,
    /// How often an instance is probed, and how long it may take to answer.
    pub supervision: ProbeTiming,
    pub records: InstanceRecords,
    pub journal: Journal,
    pub hosting: ControllerHosting,
    pub boot_id: String,
    /// How long releases that are under way keep a plugin from leaving.
    pub finish_releases: Duration,
}

/// Where plugins are declared.
/// Keeps the set of instances.
pub struct Roster {
    context: RosterContext,
    running: ProcessContext,
    // Locked by the thread that scans.
    scanner: Arc<Mutex<PluginScanner>>,
    seats: BTreeMap<String, SeatedInstance>,
    hosts: BTreeMap<PluginId, Trigger>,
    record_faults: Vec<SourceFault>,
    probes: JoinSet<()>,
    controllers: JoinSet<()>,
    shutdown: Shutdown,
}

/// One instance that is here.
#[derive(Debug)]
struct SeatedInstance {
    member: Arc<PluginInstance>,
    plugin: Plugin,
    command: Option<CommandTask>,
    leaving: Option<LeavingInstance>,
    // Ends its probes when it is dropped.
    _gone: Trigger,
}

#[derive(Debug)]
struct CommandTask {
    orders: watch::Sender<ProcessOrder>,
    task: JoinHandle<()>,
}

#[derive(Debug, Clone, Copy)]
struct LeavingInstance {
    since: Instant,
    /// Since when nothing needs the instance.
    free: Option<Instant>,
    /// An event said that mounts hold the instance.
    told: bool,
    /// An operator wants it to go even with mounts.
    even_with_mounts: bool,
}

impl SeatedInstance {
    fn order(&self, order: ProcessOrder) {
        if let Some(command) = &self.command {
            command.orders.send_if_modified(|known| {
                let is_news = *known != order;
                *known = order;
                is_news
            });
        }
    }
}

impl Roster {
    /// Takes in the instances of an earlier process, and those declared now.
    pub async fn start(context: RosterContext, shutdown: Shutdown) -> Self {
        let running = ProcessContext {
            records: context.records.clone(),
            journal: context.journal.clone(),
            events: context.hosting.events.clone(),
            boot_id: context.boot_id.clone(),
        };
        let mut roster = Self {
            scanner: Arc::new(Mutex::new(PluginScanner::new(context.sources.clone()))),
            context,
            running,
            seats: BTreeMap::new(),
            hosts: BTreeMap::new(),
            record_faults: Vec::new(),
            probes: JoinSet::new(),
            controllers: JoinSet::new(),
            shutdown,
        };
        let records = roster.context.records.clone();
        let dir = records.root().to_owned();
        let operation = HostOperation::new("read records", directory_share(&dir), dir);
        let pool = HostPool::of_process();
        let read = pool.run(operation, CHANGE_MAX, move || records.load()).await;
        match read.map_err(io::Error::from).flatten() {
            Ok((records, faults)) => {
                roster.record_faults = faults;
                roster.remember_records(&records);
                for record in records {
                    roster.add_instance(record).await;
                }
            }
            Err(error) => {
                let (source, problem) = ("what is kept of plugins".to_owned(), error.to_string());
                roster.record_faults = vec![SourceFault { source, problem }];
            }
        }
        roster.scan_once().await;
        roster
    }

    /// Reserves the sockets of recorded instances for them.
    fn remember_records(&mut self, records: &[InstanceRecord]) {
        let mut records: Vec<&InstanceRecord> = records.iter().collect();
        records.sort_by_key(|record| record.since);
        for record in records {
            let mut scanner = self.scanner.lock().unwrap_or_else(PoisonError::into_inner);
            scanner.remember(record.source.clone(), &record.declaration);
        }
    }

    /// Keeps the set of instances until the shutdown. Then every plugin counts as unhealthy.
    /// Returns the controllers that are still to end. No process of a plugin is ended.
    pub async fn run(mut self, mut asked: mpsc::Receiver<RosterRequest>) -> JoinSet<()> {
        loop {
            tokio::select! {
                () = sleep(SCAN_INTERVAL) => self.scan_once().await,
                Some(asked) = asked.recv() => self.answer_request(asked),
                () = self.shutdown.requested() => break,
            }
        }
        while self.probes.join_next().await.is_some() {}
        self.controllers
    }

    /// Scans the sources once, and takes in or lets go what changed.
    async fn scan_once(&mut self) {
        let scanner = Arc::clone(&self.scanner);
        let scan = move || Ok(scanner.lock().unwrap_or_else(PoisonError::into_inner).scan());
        let PluginSources { plugins_dir, sockets_dir, .. } = &self.context.sources;
        let dir = plugins_dir.as_ref().or(sockets_dir.as_ref()).map_or(Path::new("."), |dir| dir);
        let ScanResult { found, mut faults } =
            match with_agent_file("look for plugins", dir, scan).await {
                Ok(scan) => scan,
                // No instance leaves because of that.
                Err(error) => {
                    let (source, problem) = (dir.display().to_string(), error.to_string());
                    return self.set_faults(&[SourceFault { source, problem }]);
                }
            };
        let keys: BTreeSet<String> =
            found.iter().map(|(source, declaration)| declaration.key(source)).collect();
        let mut too_many = 0;
        for (source, declaration) in found {
            if self.seats.contains_key(&declaration.key(&source)) {
                continue;
            }
            let is_one_more =
                self.hosts.len() >= PLUGINS_MAX && !self.hosts.contains_key(&declaration.id);
            if is_one_more || self.seats.len() >= INSTANCES_MAX {
                too_many += 1;
                continue;
            }
            let record = InstanceRecord::new(source, declaration, clock::now());
            let instance = record.key();
            let (plugin, source) = (&record.declaration.id, &record.source);
            tracing::info!(%plugin, instance, %source, "a plugin");
            self.add_instance(record).await;
        }
        faults.extend(self.record_faults.iter().cloned());
        if too_many > 0 {
            let source = "this node".to_owned();
            let (plugins, instances) = (self.hosts.len(), self.seats.len());
            let problem = format!(
                "has {plugins} plugins by {instances} instances already, of {PLUGINS_MAX} and \
                 {INSTANCES_MAX} at most: {too_many} more are not taken in"
            );
            faults.push(SourceFault { source, problem });
        }
        self.set_faults(&faults);
        self.forget_volumes();
        for seat in self.seats.values().filter(|seat| seat.member.is_unsaved()) {
            seat.member.save().await;
        }
        self.let_leave(&keys).await;
    }

    fn set_faults(&self, faults: &[SourceFault]) {
        let before = self.context.plugins.faults();
        if self.context.plugins.set_faults(faults) {
            for SourceFault { source, problem } in faults.iter().filter(|one| !before.contains(one))
            {
                tracing::warn!(source, problem, "no plugin comes from there");
            }
        }
    }

    /// Forgets which instance has mounted volumes that are no longer mounted.
    fn forget_volumes(&self) {
        let plugins = self.context.plugins.list();
        for plugin in plugins.iter().filter(|plugin| plugin.pool.has_old_volumes()) {
            plugin.pool.keep_volumes(&self.mounted_by(&plugin.id));
        }
    }

    /// The volumes of a plugin of which something is, or may be, mounted here. A volume is in the
    /// journal before its plugin is called for it.
    fn mounted_by(&self, plugin: &PluginId) -> BTreeSet<String> {
        let uses = self.context.journal.uses().into_iter();
        let mounted = uses.filter(|(.., entry)| entry.plugin == *plugin);
        mounted.map(|(.., entry)| entry.external_id).collect()
    }

    /// Takes an instance in.
    async fn add_instance(&mut self, record: InstanceRecord) {
        if let Some(plugin) = self.context.plugins.get(&record.declaration.id) {
            plugin.pool.record_unknown_volumes(&self.mounted_by(&plugin.id)).await;
        }
        let order =
            if record.stopped_by.is_some() { ProcessOrder::Stop } else { ProcessOrder::Run };
        let member = PluginInstance::new(record, Some(self.context.records.clone()), clock::now());
        member.save().await;
        let (plugin, is_new) = self.context.plugins.add_instance(Arc::clone(&member));
        if is_new {
            let (trigger, ended) = Shutdown::new();
            let hosting = self.context.hosting.clone();
            self.controllers.spawn(controllers::host(plugin.clone(), hosting, ended));
            self.hosts.insert(plugin.id.clone(), trigger);
        }
        let (trigger, gone) = Shutdown::new();
        let supervision = self.context.supervision;
        let watching = supervise(
            Arc::clone(&member),
            plugin.clone(),
            supervision,
            gone,
            self.shutdown.clone(),
        );
        self.probes.spawn(watching);
        while self.probes.try_join_next().is_some() {}
        while self.controllers.try_join_next().is_some() {}
        let command = member.declaration.command().map(|_| {
            let (orders, known) = watch::channel(order);
            let (member, plugin) = (Arc::clone(&member), plugin.clone());
            let (running, shutdown) = (self.running.clone(), self.shutdown.clone());
            let task = tokio::spawn(run::run_command(member, plugin, running, known, shutdown));
            CommandTask { orders, task }
        });
        let key = member.key.clone();
        let seat = SeatedInstance { member, plugin, command, leaving: None, _gone: trigger };
        self.seats.insert(key, seat);
    }

    /// Ends the instances that are no longer declared, once nothing needs them.
    async fn let_leave(&mut self, found: &BTreeSet<String>) {
        let mut leaving = Vec::new();
        for (key, seat) in &mut self.seats {
            if !found.contains(key) {
                leaving.push(key.clone());
            } else if seat.leaving.take().is_some() {
                tracing::info!(plugin = %seat.plugin.id, instance = key, "a plugin is said again");
                seat.member.set_leaving(None);
                // A source that is put back overrides an earlier stop.
                seat.member.set_stopped_by(None);
                seat.order(ProcessOrder::Run);
                seat.plugin.pool.choose_instances();
            }
        }
        for key in leaving {
            if self.may_end(&key).await {
                self.end_instance(&key).await;
            }
        }
    }

    /// Whether nothing needs the undeclared instance any more.
    async fn may_end(&mut self, key: &str) -> bool {
        let Some(seat) = self.seats.get_mut(key) else { return false };
        let mounts = self.running.count_needing_mounts(&seat.plugin, &seat.member);
        let now = Instant::now();
        let first =
            LeavingInstance { since: now, free: None, told: false, even_with_mounts: false };
        let mut leaving = seat.leaving.unwrap_or(first);
        if seat.leaving.is_none() || mounts > 0 || leaving.free.is_none() {
            seat.member.set_leaving(Some(mounts));
            seat.plugin.pool.choose_instances();
        }
        let needed = mounts > 0 || seat.member.in_flight() > 0;
        if mounts > 0 && !leaving.told && !leaving.even_with_mounts {
            leaving.told = true;
            let (plugin, source) = (&seat.plugin.id, &seat.member.record().source);
            let why = format!("{source} is gone, {}", describe_needing_mounts(mounts));
            tracing::warn!(%plugin, instance = key, why, "a plugin stays while mounts need it");
            let detail = format!("instance {key}: {why}");
            self.context.hosting.events.publish_plugin_event(EventName::PluginHeld, plugin, detail);
        }
        leaving.free = if needed { None } else { leaving.free.or(Some(now)) };
        seat.leaving = Some(leaving);
        if leaving.even_with_mounts {
            return true;
        }
        let Some(free) = leaving.free else { return false };
        let (id, is_run) = (seat.plugin.id.clone(), seat.command.is_some());
        let awaited =
            now.duration_since(leaving.since) < HANDOVER_TIMEOUT && self.awaits_successor(&id);
        if awaited {
            return false;
        }
        let hosting = &self.context.hosting;
        // Its controller may still have to detach what was just unmounted (S4).
        !is_run
            || free.elapsed() >= self.context.finish_releases
            || finish::count_leaving(&hosting.bus, &hosting.node).await.is_ok_and(|left| left == 0)
    }

    /// Whether the plugin has instances that stay, and none of them is healthy yet.
    fn awaits_successor(&self, plugin: &PluginId) -> bool {
        let mut staying = self
            .seats
            .values()
            .filter(|seat| seat.plugin.id == *plugin && seat.leaving.is_none())
            .map(|seat| seat.member.view().healthy)
            .peekable();
        staying.peek().is_some() && !staying.any(|healthy| healthy)
    }

    /// Ends an instance, and first its process if the agent runs one.
    async fn end_instance(&mut self, key: &str) {
        let Some(seat) = self.seats.get(key) else { return };
        seat.order(ProcessOrder::End);
        if seat.command.as_ref().is_some_and(|command| !command.task.is_finished()) {
            return;
        }
        let Some(seat) = self.seats.remove(key) else { return };
        let id = &seat.plugin.id;
        if self.context.plugins.remove_instance(&seat.member) {
            self.hosts.remove(id);
        }
        let (records, file) = (self.context.records.clone(), self.context.records.file(key));
        let owned = key.to_owned();
        let remove = move || records.remove(&owned);
        if let Err(error) = with_agent_file("remove a record", &file, remove).await {
            tracing::warn!(plugin = %id, instance = key, %error, "what was kept of it is left");
        }
        tracing::info!(plugin = %id, instance = key, "a plugin has left");
    }

    /// The instances of a plugin whose process the agent runs, or the one of that key.
    fn list_commanded(&self, plugin: &PluginId, instance: Option<&str>) -> Vec<String> {
        let seats = self.seats.iter().filter(|(key, seat)| {
            let meant = instance.is_none_or(|instance| instance == key.as_str());
            seat.plugin.id == *plugin && seat.command.is_some() && meant
        });
        seats.map(|(key, _)| key.clone()).collect()
    }
}
