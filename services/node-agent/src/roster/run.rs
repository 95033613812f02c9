//! The plugin processes that the agent runs: started, restarted, stopped.
//!
//! **Owns** the process of one instance, also across restarts of the agent. The process goes on
//! when the agent ends, and the next agent finds it by its record.
//!
//! **Promises** to restart a process with backoff and jitter when it ends, or when it has not been
//! healthy for its `health_timeout_ms`.
//!
//! **Never** stops an unhealthy process while mounts need it: the mounts of a FUSE driver would end
//! with it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_contract::event::EventName;
use berth_domain::retry::Schedule;
use berth_host::{HostOperation, HostPool};
use berth_service::clock;
use berth_service::shutdown::Shutdown;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::output::PluginOutput;
use crate::fleet::events::EventPublisher;
use crate::host::pool::{CHANGE_MAX, with_agent_file, with_processes};
use crate::journal::Journal;
use crate::plugins::declaration::PluginCommand;
use crate::plugins::member::describe_needing_mounts;
use crate::plugins::process::{PluginProcess, StartedProcess};
use crate::plugins::record::InstanceRecords;
use crate::plugins::{Plugin, PluginInstance};

/// Interval at which the process is checked and its output is read.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Pauses before restarts.
const RESTART_BACKOFF: Schedule =
    Schedule { first: Duration::from_millis(500), max: Duration::from_secs(30) };
/// How long a process must have run and been healthy before the backoff starts again.
const STABLE_AFTER: Duration = Duration::from_secs(30);

/// What the roster wants of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProcessOrder {
    Run,
    /// Stop it until an operator starts it.
    Stop,
    /// Stop it for good.
    End,
}

#[derive(Clone)]
pub(super) struct ProcessContext {
    pub(super) records: InstanceRecords,
    pub(super) journal: Journal,
    pub(super) events: EventPublisher,
    pub(super) boot_id: String,
}

impl ProcessContext {
    /// Counts the mounts that need an instance.
    pub(super) fn count_needing_mounts(&self, plugin: &Plugin, member: &PluginInstance) -> usize {
        let uses = self.journal.uses();
        let of_it = uses.iter().filter(|(.., entry)| entry.plugin == plugin.id);
        plugin
            .pool
            .count_needing_mounts(member, of_it.map(|(.., entry)| entry.external_id.as_str()))
    }
}

/// Runs the command of an instance until it was stopped by [`ProcessOrder::End`], or until the
/// shutdown, which the process outlives.
pub(super) async fn run_command(
    member: Arc<PluginInstance>,
    plugin: Plugin,
    running: ProcessContext,
    mut orders: watch::Receiver<ProcessOrder>,
    shutdown: Shutdown,
) {
    let Some(command) = member.declaration.command().cloned() else { return };
    let Some(process) = find_running(&member, &running, &shutdown).await else { return };
    let mut runner = ProcessRunner::new(member, plugin, running, command, process).await;
    loop {
        let order = orders.borrow_and_update().clone();
        runner.check_process(&order).await;
        if order == ProcessOrder::End && runner.process.is_none() {
            return;
        }
        tokio::select! {
            () = sleep(CHECK_INTERVAL) => {}
            Ok(()) = orders.changed() => {}
            () = shutdown.requested() => return,
        }
    }
}

/// Finds the process that an earlier agent process started, if there is one. Retries until that is
/// known: a second process must not be started beside it. Returns `None` at the shutdown.
async fn find_running(
    member: &PluginInstance,
    running: &ProcessContext,
    shutdown: &Shutdown,
) -> Option<Option<PluginProcess>> {
    let mut tries = 0;
    loop {
        let (known, socket) = (member.record().process, member.socket.clone());
        let boot_id = running.boot_id.clone();
        // The last record may not have reached the disk, so the process may be newer than it.
        let find =
            move || match known.map(|known| PluginProcess::adopt(known, &boot_id)).transpose()? {
                Some(Some(process)) => Ok(Some(process)),
                _ => PluginProcess::find(&socket, &boot_id),
            };
        let error = match with_processes("look for a plugin", &member.socket, find).await {
            Ok(process) => return Some(process),
            Err(error) => error,
        };
        tries += 1;
        let instance = &member.key;
        tracing::warn!(instance, %error, tries, "it is not known whether a plugin's process runs");
        tokio::select! {
            () = sleep(RESTART_BACKOFF.wait(tries, clock::jitter())) => {}
            () = shutdown.requested() => return None,
        }
    }
}

struct ProcessRunner {
    member: Arc<PluginInstance>,
    plugin: Plugin,
    running: ProcessContext,
    command: PluginCommand,
    // Locked only by the thread that reads it.
    output: Arc<Mutex<PluginOutput>>,
    process: Option<PluginProcess>,
    /// The process got SIGTERM, and gets SIGKILL at this time.
    kill_at: Option<Instant>,
    last_healthy: Instant,
    started: Instant,
    tries: u32,
    next_start: Instant,
}

impl ProcessRunner {
    async fn new(
        member: Arc<PluginInstance>,
        plugin: Plugin,
        running: ProcessContext,
        command: PluginCommand,
        process: Option<PluginProcess>,
    ) -> Self {
        let (id, instance) = (&plugin.id, &member.key);
        if let Some(process) = &process {
            let pid = process.id.pid;
            tracing::info!(plugin = %id, instance, pid, "a plugin's process is found again");
        }
        let down = process.is_none().then(|| "it is being started".to_owned());
        member.set_process(process.as_ref().map(|process| process.id.clone()), down);
        member.save().await;
        let now = Instant::now();
        let output = PluginOutput::follow(&running.records.output(&member.key));
        let output = Arc::new(Mutex::new(output));
        Self {
            member,
            plugin,
            running,
            command,
            output,
            process,
            kill_at: None,
            last_healthy: now,
            started: now,
            tries: 0,
            next_start: now,
        }
    }

    async fn check_process(&mut self, order: &ProcessOrder) {
        if let Some(how) = self.process.as_mut().and_then(PluginProcess::describe_end) {
            self.process_ended(&how, order).await;
        }
        self.log_output(false).await;
        match order {
            ProcessOrder::Run if self.process.is_none() => {
                if Instant::now() >= self.next_start {
                    self.start().await;
                }
            }
            ProcessOrder::Run => self.check_health(),
            ProcessOrder::Stop | ProcessOrder::End if self.process.is_some() => self.end_process(),
            ProcessOrder::Stop | ProcessOrder::End => self.record_stopped().await,
        }
    }

    async fn start(&mut self) {
        let (command, socket) = (self.command.clone(), self.member.socket.clone());
        let output = self.running.records.output(&self.member.key);
        let boot_id = self.running.boot_id.clone();
        let operation =
            HostOperation::new("start a plugin", "starts of plugins", self.member.socket.clone());
        let start = move || PluginProcess::start(&command, &socket, &output, &boot_id);
        let started = HostPool::of_process().run(operation, CHANGE_MAX, start).await;
        let started = started.map_err(io::Error::from).flatten().map(StartedProcess::into_process);
        let again = self.tries > 0;
        match started {
            Ok(None) => {}
            Ok(Some(process)) => {
                if again {
                    self.member.count_restart();
                }
                let id = process.id.clone();
                let pid = id.pid;
                self.process = Some(process);
                self.member.set_process(Some(id), None);
                // At once: the next agent finds the process by its record.
                self.member.save().await;
                (self.started, self.last_healthy) = (Instant::now(), Instant::now());
                let (plugin, instance) = (&self.plugin.id, &self.member.key);
                tracing::info!(%plugin, instance, pid, "a plugin's process was started");
                self.publish_event(EventName::PluginStarted, format!("pid {pid}"));
                self.member.probe_requested.notify_one();
            }
            Err(why) => {
                let program = self.command.argv.first().map_or("it", String::as_str);
                self.wait_to_start(&format!("{program} cannot be started: {why}"));
            }
        }
        self.plugin.pool.choose_instances();
    }

    async fn process_ended(&mut self, how: &str, order: &ProcessOrder) {
        self.process = None;
        self.log_output(true).await;
        let was_told = self.kill_at.take().is_some();
        if *order == ProcessOrder::Run {
            if self.started.elapsed() >= STABLE_AFTER && self.last_healthy.elapsed() < STABLE_AFTER
            {
                self.tries = 0;
            }
            self.wait_to_start(how);
            self.publish_event(EventName::PluginEnded, how.to_owned());
        } else {
            let why = if was_told { "" } else { ", before it was told to" };
            let (plugin, instance) = (&self.plugin.id, &self.member.key);
            tracing::info!(%plugin, instance, how, "a plugin's process has ended{why}");
            self.publish_event(EventName::PluginStopped, how.to_owned());
            self.record_stopped().await;
        }
        self.member.set_spared(None);
        self.member.probe_requested.notify_one();
        self.plugin.pool.choose_instances();
    }

    fn wait_to_start(&mut self, why: &str) {
        self.tries += 1;
        let wait = RESTART_BACKOFF.wait(self.tries, clock::jitter());
        self.next_start = Instant::now() + wait;
        let (plugin, instance, tries) = (&self.plugin.id, &self.member.key, self.tries);
        tracing::warn!(%plugin, instance, why, tries, ?wait, "a plugin's process is started again");
        let down = format!("{why}; it is started again, try {tries}");
        self.member.set_process(None, Some(down));
    }

    /// Stops a process that is unhealthy for too long, unless mounts need it.
    fn check_health(&mut self) {
        if let Some(kill_at) = self.kill_at {
            self.kill_from(kill_at);
            return;
        }
        if self.member.view().healthy {
            self.last_healthy = Instant::now();
            if self.member.set_spared(None) {
                self.plugin.pool.choose_instances();
            }
            return;
        }
        let timeout = self.command.health_timeout();
        if self.last_healthy.elapsed() < timeout {
            return;
        }
        let mounts = self.running.count_needing_mounts(&self.plugin, &self.member);
        let (plugin, instance, after) = (&self.plugin.id, &self.member.key, timeout.as_millis());
        if mounts == 0 {
            tracing::warn!(%plugin, instance, "a plugin was not healthy for {after} ms: restarted");
            self.end_process();
            return;
        }
        let why = format!(
            "not started again though it was not healthy for {after} ms: {}",
            describe_needing_mounts(mounts)
        );
        if self.member.set_spared(Some(why.clone())) {
            tracing::warn!(%plugin, instance, why, "a plugin is left alone");
            self.publish_event(EventName::PluginHeld, why);
            self.plugin.pool.choose_instances();
        }
    }

    fn end_process(&mut self) {
        let Some(process) = &mut self.process else { return };
        if let Some(kill_at) = self.kill_at {
            self.kill_from(kill_at);
            return;
        }
        self.kill_at = Some(Instant::now() + self.command.stop_timeout());
        if let Err(error) = process.terminate() {
            let (plugin, instance) = (&self.plugin.id, &self.member.key);
            tracing::warn!(%plugin, instance, %error, "a plugin's process cannot be told to end");
        }
    }

    fn kill_from(&mut self, kill_at: Instant) {
        let Some(process) = self.process.as_mut().filter(|_| Instant::now() >= kill_at) else {
            return;
        };
        let (plugin, instance) = (&self.plugin.id, &self.member.key);
        tracing::warn!(%plugin, instance, "a plugin's process did not end when told: killed");
        if let Err(error) = process.kill() {
            tracing::warn!(%plugin, instance, %error, "a plugin's process cannot be killed");
        }
        self.kill_at = Some(Instant::now() + self.command.stop_timeout());
    }

    async fn record_stopped(&mut self) {
        let by = self.member.record().stopped_by;
        let down = by.map_or_else(|| "stopped".to_owned(), |by| format!("stopped by {by}"));
        self.tries = 0;
        self.next_start = Instant::now();
        if self.member.set_process(None, Some(down)) {
            self.member.save().await;
            self.plugin.pool.choose_instances();
        }
    }

    async fn log_output(&self, last: bool) {
        let output = Arc::clone(&self.output);
        let look =
            move || output.lock().unwrap_or_else(PoisonError::into_inner).read_new_lines(last);
        let path = self.running.records.output(&self.member.key);
        let (plugin, instance) = (&self.plugin.id, &self.member.key);
        match with_agent_file("read what a plugin says", &path, look).await {
            Ok(output) => {
                for line in output.lines {
                    tracing::info!(%plugin, instance, "{line}");
                }
                if output.left_out > 0 {
                    let bytes = output.left_out;
                    tracing::warn!(%plugin, instance, bytes, "a plugin says too much: left out");
                }
            }
            Err(error) => tracing::debug!(%plugin, instance, %error, "its output cannot be read"),
        }
    }

    fn publish_event(&self, name: EventName, detail: String) {
        let detail = format!("instance {}: {detail}", self.member.key);
        self.running.events.publish_plugin_event(name, &self.plugin.id, detail);
    }
}
